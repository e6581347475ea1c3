package cli

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/capstan-io/capstan/internal/cli/options"
	"github.com/capstan-io/capstan/internal/cli/output"
)

// pluginPrefixes start the names of programs in PATH that are commands, too: capstan-NAME, and clusteradm-NAME, which others have written
// for clusteradm.
var pluginPrefixes = []string{"capstan-", "clusteradm-"}

const pluginLong = `Programs in PATH whose names begin with capstan- or clusteradm- are commands: "capstan foo bar" runs capstan-foo-bar, else
capstan-foo with the argument bar, if there is no command of that name. A dash in the name of a command is an underscore in that of
the program. What is found first counts.`

// newPluginCommand is "capstan plugin".
func newPluginCommand(global *options.Global) *cobra.Command {
	list := &cobra.Command{
		Use: "list", Short: "Show the programs in PATH that are commands", Args: options.FlagsOnly, ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(command *cobra.Command, _ []string) error { return listPlugins(global, command.Root()) },
	}
	command := options.Parent("plugin", "Programs that are commands, too", list)
	command.Long = pluginLong
	return command
}

func listPlugins(global *options.Global, root *cobra.Command) error {
	programs := plugins()
	if len(programs) == 0 {
		return fmt.Errorf("no program in PATH has a name that begins with %s", strings.Join(pluginPrefixes, " or "))
	}
	seen := map[string]string{}
	for _, program := range programs {
		global.Say("%s", program)
		words := commandWords(filepath.Base(program))
		name := strings.Join(words, " ")
		if first, twice := seen[name]; twice {
			global.Note("  Warning: %s comes first in PATH", first)
			continue
		}
		seen[name] = program
		if found, _, err := root.Find(words); err == nil && found != root {
			global.Note("  Warning: %q is a command of this program, which comes first", found.CommandPath())
		}
	}
	return nil
}

// plugins are the programs in PATH that are commands, in the order of PATH.
func plugins() []string {
	var programs []string
	for _, dir := range filepath.SplitList(os.Getenv("PATH")) {
		entries, err := os.ReadDir(dir)
		if err != nil {
			continue // a folder that is not there is no news in PATH
		}
		for _, entry := range entries {
			file := filepath.Join(dir, entry.Name())
			if len(commandWords(entry.Name())) > 0 && isExecutable(file) && !slices.Contains(programs, file) {
				programs = append(programs, file)
			}
		}
	}
	return programs
}

func isExecutable(file string) bool {
	info, err := os.Stat(file)
	const anyExecutable fs.FileMode = 0o111
	return err == nil && info.Mode().IsRegular() && info.Mode()&anyExecutable != 0
}

// commandWords are the words of the command that a program is; none if it is none.
func commandWords(program string) []string {
	for _, prefix := range pluginPrefixes {
		if name, ok := strings.CutPrefix(program, prefix); ok && name != "" {
			words := strings.Split(name, "-")
			for i := range words {
				words[i] = strings.ReplaceAll(words[i], "_", "-")
			}
			return words
		}
	}
	return nil
}

// findPlugin finds the program that the first words of the arguments name, as many of them as possible, and the arguments that are left.
func findPlugin(args []string) (program string, rest []string) {
	words := args
	for i, arg := range args {
		if strings.HasPrefix(arg, "-") {
			words = args[:i]
			break
		}
	}
	for n := len(words); n > 0; n-- {
		var name []string
		for _, word := range words[:n] {
			if strings.ContainsAny(word, `/\`) {
				return "", nil
			}
			name = append(name, strings.ReplaceAll(word, "-", "_"))
		}
		for _, prefix := range pluginPrefixes {
			if path, err := exec.LookPath(prefix + strings.Join(name, "-")); err == nil && filepath.IsAbs(path) {
				return path, args[n:]
			}
		}
	}
	return "", nil
}

// runPlugin runs the program that the arguments name, if they are no command of ours. It returns its exit code.
func runPlugin(root *cobra.Command, args []string, in io.Reader, out, errOut io.Writer) (code int, ran bool) {
	if len(args) == 0 || strings.HasPrefix(args[0], "-") || strings.HasPrefix(args[0], cobra.ShellCompRequestCmd) || isCommand(root, args[0]) {
		return 0, false
	}
	program, rest := findPlugin(args)
	if program == "" {
		return 0, false
	}
	command := exec.Command(program, rest...) //nolint:noctx // signals end it, as they are
	command.Stdin, command.Stdout, command.Stderr = in, out, errOut
	err := options.RunProgram(command)
	var exit options.ExitError
	switch {
	case err == nil:
		return 0, true
	case errors.As(err, &exit):
		return exit.Code, true
	}
	fmt.Fprintln(errOut, output.StyleOf(errOut).Error("Error:"), err)
	return 1, true
}

// isCommand reports whether a word is a command of ours, also of those that cobra adds when it runs.
func isCommand(root *cobra.Command, word string) bool {
	if word == "help" || word == "completion" {
		return true
	}
	return slices.ContainsFunc(root.Commands(), func(command *cobra.Command) bool { return command.Name() == word || command.HasAlias(word) })
}
