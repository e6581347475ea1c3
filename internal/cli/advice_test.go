package cli_test

import (
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	kubectl "k8s.io/kubectl/pkg/cmd"

	"github.com/capstan-io/capstan/internal/cli"
)

// programs are those whose commands messages name.
var programs = map[string]func() *cobra.Command{
	"capstan": func() *cobra.Command { return cli.NewCommand(strings.NewReader(""), io.Discard, io.Discard) },
	"kubectl": func() *cobra.Command {
		return kubectl.NewKubectlCommand(kubectl.KubectlOptions{IOStreams: genericiooptions.NewTestIOStreamsDiscard(),
			ConfigFlags: genericclioptions.NewConfigFlags(true)})
	},
}

// notAdvice are texts that look like a command and are none.
var notAdvice = map[string]bool{
	"foo bar":               true, // how a plugin is called
	"upgrade 1 --wait":      true, // one of two commands
	"upgrade 1 --force":     true,
	"join --hub-token-file": true, // a flag
	"join --proxy-ca-file":  true,
	"apply -f":              true, // with files that are not named
	"come after":            true, // of flags of kubectl
	"Approve":               true, // reasons of conditions
	"Deny":                  true,
}

// rootsOfTexts are the folders with the code that users get.
var rootsOfTexts = []string{"..", "../../addon", "../../cmd"}

// CA-04: every command of capstan or kubectl that a message, a condition or a help text names is one that there is, with the flags that it
// has.
func TestAdvice(t *testing.T) {
	t.Parallel()
	var texts []text
	for _, root := range rootsOfTexts {
		texts = append(texts, textsBelow(t, root)...)
	}
	if found := checkCommands(t, texts); found["capstan"] < 100 || found["kubectl"] < 20 {
		t.Errorf("%v commands are found; there are more than 100 of capstan, and 20 of kubectl", found)
	}
}

// CA-04: the same holds for what Helm prints when it has installed a chart.
func TestAdviceOfCharts(t *testing.T) {
	t.Parallel()
	if found := checkCommands(t, notesOfCharts(t)); found["capstan"] < 5 || found["kubectl"] < 15 {
		t.Errorf("%v commands are found; there are 6 of capstan, and 19 of kubectl", found)
	}
}

// checkCommands fails the test for each command in texts that there is not. It returns how many commands of each program are in them.
func checkCommands(t *testing.T, texts []text) map[string]int {
	t.Helper()
	found := map[string]int{}
	for _, text := range texts {
		for program := range programs {
			for _, command := range commandsIn(program, text.content) {
				found[program]++
				if err := parse(program, command); err != nil && !notAdvice[command] {
					t.Errorf("%s:%d: %s %s: %v", text.file, text.line, program, command, err)
				}
			}
		}
	}
	return found
}

var (
	templateAction = regexp.MustCompile(`\{\{-? *(.*?) *-?\}\}`)
	// controlAction is an action that prints nothing.
	controlAction = regexp.MustCompile(`^(?:(?:if|else|end|range|with)\b|\$\w+ :=)`)
)

// notesOfCharts are the notes of all charts, each with all of its branches: commands in quotes, on one line, and with 1 for each value.
func notesOfCharts(t *testing.T) (texts []text) {
	t.Helper()
	files, err := filepath.Glob("../../deploy/charts/*/templates/NOTES.txt")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		content, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		printed := templateAction.ReplaceAllStringFunc(string(content), func(action string) string {
			if controlAction.MatchString(templateAction.FindStringSubmatch(action)[1]) {
				return ""
			}
			return "1"
		})
		printed = strings.NewReplacer("`", `"`, "\\\n", " ").Replace(printed)
		texts = append(texts, text{file: filepath.ToSlash(filepath.Join("internal/cli", file)), line: 1, content: printed})
	}
	return texts
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
		"delete it with capstan delete work %s, then go on":       "delete work 1",
		"it is installed (capstan init --wait)":                   "init --wait",
		"capstan get token":                                       "get token",
	} {
		if got := strings.Join(commandsIn("capstan", text), "|"); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
	if got := commandsIn("kubectl", "Then run:\n  kubectl delete crd %s && kubectl get crd"); !slices.Equal(got, []string{"delete crd 1"}) {
		t.Errorf("%q", got)
	}
	for arguments, valid := range map[string]bool{"delete crd 1": true, "delete crd --no-such-flag": false, "no-such-command": false} {
		if err := parse("kubectl", arguments); (err == nil) != valid {
			t.Errorf("kubectl %s: %v", arguments, err)
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
		if err := parse("capstan", command); (err == nil) != valid {
			t.Errorf("capstan %s: %v", command, err)
		}
	}
}

// text is a string of the code, with 1 for each part that is not constant.
type text struct {
	file    string // from the root of the repository
	line    int
	content string
	example bool // of the help of a command
}

func textsBelow(t *testing.T, root string) (texts []text) {
	t.Helper()
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && (entry.Name() == "clitest" || entry.Name() == "fakehub"): // parts of tests
			return filepath.SkipDir
		case entry.IsDir() || filepath.Ext(path) != ".go" || strings.HasSuffix(path, "_test.go"):
			return nil
		}
		files := token.NewFileSet()
		file, err := parser.ParseFile(files, path, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		for _, found := range textsIn(file, false) {
			texts = append(texts, text{filepath.ToSlash(filepath.Join("internal/cli", path)), files.Position(found.at.Pos()).Line,
				contentOf(found.at), found.example})
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return texts
}

// expression is one that makes a text.
type expression struct {
	at      ast.Expr
	example bool
}

// textsIn are the strings, and the sums of strings, in a part of a file. example says that it is the example of a command.
func textsIn(root ast.Node, example bool) (found []expression) {
	ast.Inspect(root, func(node ast.Node) bool {
		switch node := node.(type) {
		case *ast.ImportSpec:
			return false
		case *ast.KeyValueExpr:
			if key, ok := node.Key.(*ast.Ident); ok && key.Name == "Example" {
				found = append(found, textsIn(node.Value, true)...)
				return false
			}
		case *ast.AssignStmt:
			if field, ok := node.Lhs[0].(*ast.SelectorExpr); ok && field.Sel.Name == "Example" {
				found = append(found, textsIn(node.Rhs[0], true)...)
				return false
			}
		case *ast.BinaryExpr:
			if node.Op == token.ADD {
				found = append(found, expression{node, example})
				for _, operand := range operandsOf(node) { // the arguments of calls in it are texts of their own
					found = append(found, textsIn(operand, example)...)
				}
				return false
			}
		case *ast.BasicLit:
			if node.Kind == token.STRING {
				found = append(found, expression{node, example})
			}
		}
		return true
	})
	return found
}

// operandsOf are the parts of a sum that are no literals.
func operandsOf(sum ast.Expr) []ast.Expr {
	switch sum := sum.(type) {
	case *ast.BinaryExpr:
		return append(operandsOf(sum.X), operandsOf(sum.Y)...)
	case *ast.ParenExpr:
		return operandsOf(sum.X)
	case *ast.BasicLit:
		return nil
	}
	return []ast.Expr{sum}
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

// The forms in which a text names a command: in quotes, after a colon or semicolon, in brackets, in a sentence, as all of the text, and on
// an indented line.
const (
	quotedCommand   = `["«]%s ([^"»\n]+)`
	namedCommand    = `[:;] %s ([^"»\n;,]+)`
	bracketCommand  = `\(%s ([^)\n]+)\)`
	sentenceCommand = `\b(?:with|by|as|of) %s ([^"»\n;,)]+)`
	wholeCommand    = `^%s ([^"»\n;,]+)`
	indentedCommand = `(?m)^[ \t]+(?:[^\n]*\| )?%s ([^\n]+)$`
)

var quotedArgument = regexp.MustCompile(`"[^"]*"|'[^']*'`)

var shellSyntax = regexp.MustCompile(`\s(#|&&|\||>|&).*$`)

var placeholder = regexp.MustCompile(`%(\[\d+\])?[a-z]|…`)

// commandsIn are the arguments of the command lines of a program in a text.
func commandsIn(program, content string) (commands []string) {
	matches := func(form string) [][]string {
		return regexp.MustCompile(fmt.Sprintf(form, program)).FindAllStringSubmatch(content, -1)
	}
	for _, match := range matches(indentedCommand) {
		commands = append(commands, tidy(quotedArgument.ReplaceAllString(shellSyntax.ReplaceAllString(match[1], ""), "1")))
	}
	for _, form := range []string{quotedCommand, namedCommand, bracketCommand, sentenceCommand, wholeCommand} {
		for _, match := range matches(form) {
			commands = append(commands, tidy(shellSyntax.ReplaceAllString(match[1], "")))
		}
	}
	return commands
}

func tidy(command string) string {
	return strings.Join(strings.Fields(placeholder.ReplaceAllString(command, "1")), " ")
}

// parse finds the command that arguments are for, and parses its flags. Of arguments, it checks that they are no unknown subcommand.
func parse(program, arguments string) error {
	command, rest, err := programs[program]().Find(strings.Fields(arguments))
	if err != nil {
		return err
	}
	switch command.CommandPath() {
	case "capstan logs", "capstan exec", "capstan port-forward", "capstan cp": // with the flags of kubectl
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
