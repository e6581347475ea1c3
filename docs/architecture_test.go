package docs

import (
	"go/parser"
	"go/token"
	"io/fs"
	"path"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// module is the path of the packages of this repository.
const module = "github.com/capstan-io/capstan/"

// TestCommandLineImports keeps what hub, agents and operators need out of the packages of the command line, which nobody else imports but
// tests of it. The linter keeps the other rules of architecture.md, and this one.
func TestCommandLineImports(t *testing.T) {
	t.Parallel()
	const commandLine = "internal/cli"
	within := func(dir, name string) bool { return name == dir || strings.HasPrefix(name, dir+"/") }
	seen := 0
	for _, root := range []string{"addon", "api", "cmd", "deploy", "examples", "internal", "tools"} {
		err := filepath.WalkDir(filepath.Join("..", root), func(file string, entry fs.DirEntry, err error) error {
			if err != nil || entry.IsDir() || path.Ext(file) != ".go" {
				return err
			}
			name := strings.TrimPrefix(filepath.ToSlash(file), "../")
			if within(commandLine, name) || within("cmd/capstan", name) {
				seen++
				return nil
			}
			parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.ImportsOnly)
			if err != nil {
				return err
			}
			for _, imported := range parsed.Imports {
				if of, err := strconv.Unquote(imported.Path.Value); err == nil && within(module+commandLine, of) {
					t.Errorf("%s imports %s: move what it needs out of %s", name, of, commandLine)
				}
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if seen == 0 {
		t.Errorf("there is no %s", commandLine)
	}
}
