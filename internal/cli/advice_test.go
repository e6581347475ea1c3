package cli_test

import (
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"io/fs"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/spf13/pflag"

	"github.com/capstan-io/capstan/internal/cli"
)

// notAdvice are texts that look like a command and are none.
var notAdvice = map[string]bool{
	"foo bar":               true, // how a plugin is called
	"upgrade 1 --wait":      true, // one of two commands
	"join --hub-token-file": true, // a flag
	"join --proxy-ca-file":  true,
}

// Every command that a message, a condition or a help text names is one that there is, with the flags that it has.
func TestAdvice(t *testing.T) {
	t.Parallel()
	found := 0
	for _, root := range []string{"..", "../../addon", "../../cmd"} {
		for _, text := range textsBelow(t, root) {
			for _, command := range commandsIn(text.content) {
				found++
				if err := parse(command); err != nil && !notAdvice[command] {
					t.Errorf("%s: capstan %s: %v", text.at, command, err)
				}
			}
		}
	}
	if found < 100 {
		t.Errorf("%d commands are found; there are more than 100", found)
	}
}

// What TestAdvice relies on: commands are found in texts, and only those that exist are accepted.
func TestCommandsIn(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"Run \"capstan accept --clusters %s\" first":              "accept --clusters 1",
		"Go on with:\n  capstan unjoin --cluster-name %[1]s":      "unjoin --cluster-name 1",
		"  capstan clean --wait      # while \"capstan up\" runs": "clean --wait|up",
		"  kubectl get cm -o yaml | capstan create work x -f -":   "create work x -f -",
		"To let it in, run: capstan accept --clusters %s":         "accept --clusters 1",
		"use the capstan of that version":                         "",
	} {
		if got := strings.Join(commandsIn(text), "|"); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
	for command, valid := range map[string]bool{
		"accept --clusters 1":                     true,
		"--kubeconfig 1 get token":                true,
		"accept --no-such-flag":                   false,
		"accept --clusters":                       false,
		"no-such-command":                         false,
		"clusterset no-such-command --clusters 1": false,
	} {
		if err := parse(command); (err == nil) != valid {
			t.Errorf("capstan %s: %v", command, err)
		}
	}
}

// text is a string of the code, with 1 for each part that is not constant.
type text struct{ at, content string }

func textsBelow(t *testing.T, root string) (texts []text) {
	t.Helper()
	files := token.NewFileSet()
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || filepath.Ext(path) != ".go" || strings.HasSuffix(path, "_test.go") {
			return err
		}
		file, err := parser.ParseFile(files, path, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		ast.Inspect(file, func(node ast.Node) bool {
			switch node := node.(type) {
			case *ast.ImportSpec:
				return false
			case *ast.BinaryExpr:
				if node.Op == token.ADD {
					texts = append(texts, text{files.Position(node.Pos()).String(), contentOf(node)})
					return false
				}
			case *ast.BasicLit:
				if node.Kind == token.STRING {
					texts = append(texts, text{files.Position(node.Pos()).String(), contentOf(node)})
				}
			}
			return true
		})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return texts
}

func contentOf(expression ast.Expr) string {
	switch expression := expression.(type) {
	case *ast.BinaryExpr:
		return contentOf(expression.X) + contentOf(expression.Y)
	case *ast.ParenExpr:
		return contentOf(expression.X)
	case *ast.BasicLit:
		if content, err := strconv.Unquote(expression.Value); err == nil && expression.Kind == token.STRING {
			return content
		}
	}
	return "1"
}

var quotedCommand = regexp.MustCompile(`["«]capstan ([^"»\n]+)`)

var namedCommand = regexp.MustCompile(`: capstan ([^"»\n;,]+)`)

var indentedCommand = regexp.MustCompile(`(?m)^[ \t]+(?:[^\n]*\| )?capstan ([^\n]+)$`)

var quotedArgument = regexp.MustCompile(`"[^"]*"|'[^']*'`)

var shellSyntax = regexp.MustCompile(`\s(#|&&|\||>|&).*$`)

var placeholder = regexp.MustCompile(`%(\[\d+\])?[a-z]|…`)

// commandsIn are the arguments of the command line in a text: in quotes, after a colon, or on an indented line.
func commandsIn(content string) (commands []string) {
	for _, match := range indentedCommand.FindAllStringSubmatch(content, -1) {
		commands = append(commands, tidy(quotedArgument.ReplaceAllString(shellSyntax.ReplaceAllString(match[1], ""), "1")))
	}
	for _, form := range []*regexp.Regexp{quotedCommand, namedCommand} {
		for _, match := range form.FindAllStringSubmatch(content, -1) {
			commands = append(commands, tidy(shellSyntax.ReplaceAllString(match[1], "")))
		}
	}
	return commands
}

func tidy(command string) string {
	return strings.Join(strings.Fields(placeholder.ReplaceAllString(command, "1")), " ")
}

// parse finds the command that arguments are for, and parses its flags. Of arguments, it checks that they are no unknown subcommand.
func parse(arguments string) error {
	command, rest, err := cli.NewCommand(strings.NewReader(""), io.Discard, io.Discard).Find(strings.Fields(arguments))
	if err != nil {
		return err
	}
	switch command.Name() {
	case "logs", "exec", "port-forward", "cp": // with the flags of kubectl
		return nil
	}
	if err := command.ParseFlags(rest); err != nil && !errors.Is(err, pflag.ErrHelp) {
		return fmt.Errorf("%s: %w", command.CommandPath(), err)
	}
	if positional := command.Flags().Args(); command.HasSubCommands() && len(positional) > 0 {
		return command.ValidateArgs(positional)
	}
	return nil
}
