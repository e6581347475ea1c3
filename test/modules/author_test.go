// Package modules builds on the modules of this repository as others do, from a module elsewhere, and holds their versions against each
// other.
package modules

import (
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

const module = "github.com/capstan-io/capstan/"

// heavy is what an add-on must not inherit from the SDK.
var heavy = regexp.MustCompile(`(?m)^\s*(k8s\.io/kubernetes|k8s\.io/apiserver|go\.etcd\.io/\S+|helm\.sh/\S+|github\.com/capstan-io/capstan) v.*$`)

// The tutorial's add-on builds in a module of its own, as docs/modules.md says for a clone, and requires neither etcd nor the API server.
func TestAuthorOfAddOn(t *testing.T) {
	t.Parallel()
	clone, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := os.CopyFS(dir, os.DirFS(filepath.Join(clone, "examples/nodecount"))); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(filepath.Join(dir, "tutorial_test.go")); err != nil { // it looks for the page in the repository
		t.Fatal(err)
	}
	run(t, dir, "mod", "init", "example.com/nodecount")
	edit := []string{"mod", "edit"}
	for _, name := range []string{"api", "addon", "internal/machinery"} {
		look(t, filepath.Join(clone, name))
		edit = append(edit, "-replace", module+name+"="+filepath.Join(clone, name))
	}
	run(t, dir, edit...)
	// With the versions of the SDK: others might be newer, and are not downloaded for this test.
	requirements(t, filepath.Join(clone, "addon/go.mod"), dir)
	run(t, dir, "mod", "tidy")
	run(t, dir, "vet", ".")

	required, err := os.ReadFile(filepath.Join(dir, "go.mod"))
	if err != nil {
		t.Fatal(err)
	}
	if found := heavy.FindAllString(string(required), -1); found != nil {
		t.Errorf("an add-on requires %q", found)
	}
	if !strings.Contains(string(required), module+"addon v") {
		t.Errorf("the add-on does not require the SDK:\n%s", required)
	}
}

// look makes the files of a folder inputs of the test: Go's cache of test results does not know what the go command reads for it.
func look(t *testing.T, dir string) {
	t.Helper()
	if err := filepath.WalkDir(dir, func(_ string, _ fs.DirEntry, err error) error { return err }); err != nil {
		t.Fatal(err)
	}
}

// requirements adds those of a go.mod to the module in dir, with their versions; tidy removes what is not needed.
func requirements(t *testing.T, from, dir string) {
	t.Helper()
	content, err := os.ReadFile(from)
	if err != nil {
		t.Fatal(err)
	}
	edit := []string{"mod", "edit"}
	for _, match := range regexp.MustCompile(`(?m)^\t(\S+) (v\S+)`).FindAllStringSubmatch(string(content), -1) {
		if !strings.HasPrefix(match[1], module) {
			edit = append(edit, "-require", match[1]+"@"+match[2])
		}
	}
	run(t, dir, edit...)
}

func run(t *testing.T, dir string, args ...string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GOFLAGS=-mod=mod", "GOWORK=off", "CGO_ENABLED=0")
	if output, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("go %s: %v\n%s", strings.Join(args, " "), err, output)
	}
}
