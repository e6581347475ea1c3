// Package ci tries .ci/run on a small repository, with the packages by which the tests of this one start programs.
package ci

import (
	"bytes"
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"
)

// root is the top of this repository, as seen from this package.
const root = "../.."

// limit is how long one run may take.
const limit = 5 * time.Minute

// What a test has looked at runs it again when it changes, and nothing else does.
func TestRunsWhatChanged(t *testing.T) {
	t.Parallel()
	r := newRepository(t)
	r.write("README.md", "read me")
	r.write("cmd/program/main.go", `package main; func main() { print("first") }`)
	r.write("chart/values.yaml", "value: 1")
	r.write("test/started/started_test.go", `package started

import (
	"os"
	"os/exec"
	"testing"

	"github.com/capstan-io/capstan/test/env"
)

func Test(t *testing.T) {
	program, err := env.Binary("program")
	if err != nil {
		t.Fatal(err)
	}
	command := exec.CommandContext(t.Context(), program)
	command.Env = env.Environ()
	if err := command.Run(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.ReadDir("../../chart"); err != nil {
		t.Fatal(err)
	}
	if _, err := os.ReadFile("../../chart/values.yaml"); err != nil {
		t.Fatal(err)
	}
	if "expected" != "expected" {
		t.Fatal("broken")
	}
}
`)
	r.write(".ci/steps", `#!/bin/sh
set -eu
go build -buildvcs=false -o bin/built/ ./cmd/...
tools/update bin/built/* bin
go test ./test/started
touch chart/written
`)
	for _, change := range []struct {
		name      string
		make      func()
		variables []string
		cached    bool
	}{
		{name: "everything is new", make: func() {}},
		{name: "nothing changed", make: func() {}, cached: true},
		{name: "a page", make: func() { r.write("README.md", "read this") }, cached: true},
		{name: "a program", make: func() { r.replace("cmd/program/main.go", "first", "other") }},
		{name: "a chart", make: func() { r.replace("chart/values.yaml", "1", "2") }},
		{name: "another file of the chart", make: func() { r.write("chart/other.yaml", "") }},
		{name: "the chart without it", make: func() { r.remove("chart/other.yaml") }, cached: true},
		{name: "the chart of before", make: func() { r.replace("chart/values.yaml", "2", "1") }, cached: true},
		{name: "files that a killed run has written as they were", make: func() { r.writeAgain() }, cached: true},
		{name: "a variable that programs get", make: func() {}, variables: []string{"GOGC=77"}},
		{name: "a variable that they do not get", make: func() {}, variables: []string{"GOGC=77", "KUBECONFIG=mine"}, cached: true},
		{name: "a test, not committed", make: func() { r.replace("test/started/started_test.go", `"expected" !=`, `"broken" !=`) }},
	} {
		change.make()
		if !strings.Contains(change.name, "not committed") {
			r.commit(change.name)
		}
		output, err := r.run(change.variables...)
		broken := strings.Contains(r.read("test/started/started_test.go"), `"broken" !=`)
		if broken != (err != nil) {
			t.Fatalf("%s: %v\n%s", change.name, err, output)
		}
		if cached := strings.Contains(output, "(cached)"); cached != change.cached {
			t.Errorf("%s: the result is from the cache: %t, expected %t\n%s", change.name, cached, change.cached, output)
		}
		if !broken {
			r.runUntilCached(change.variables...)
		}
	}
	if output, err := r.run(); err == nil {
		t.Errorf("the test that fails passes when it is run again:\n%s", output)
	}
}

// A file that is written again as it was has the time that it had, so that tests that have read it come from the cache; another content has
// another time. A folder has the time of all folders.
func TestContentTimes(t *testing.T) {
	t.Parallel()
	script, err := filepath.Abs(filepath.Join(root, "tools", "content-times"))
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	path := filepath.Join(dir, "a file")
	timeOf := func(content string) time.Time {
		t.Helper()
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		command := exec.CommandContext(t.Context(), script, path, dir, filepath.Join(dir, "missing"))
		if output, err := command.CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, output)
		}
		info, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		return info.ModTime()
	}
	first, other, again := timeOf("first\n"), timeOf("other\n"), timeOf("first\n")
	if !again.Equal(first) || other.Equal(first) {
		t.Errorf("a file has the time %s, with another content %s, and with that of before %s", first, other, again)
	}
	if age := time.Since(first); age < time.Hour {
		t.Errorf("a file is %s old, which Go takes for too new to trust its time", age)
	}
	folder := func() time.Time {
		info, err := os.Stat(dir)
		if err != nil {
			t.Fatal(err)
		}
		return info.ModTime()
	}
	before := folder()
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if timeOf("first\n"); !folder().Equal(before) {
		t.Errorf("a folder has the time %s, and %s when a file in it has been replaced", before, folder())
	}
}

// A run that is killed leaves half a repository, or locks of git, which do not hold up the next one, and processes, which that ends. Two
// runs wait for each other.
func TestKilledRun(t *testing.T) {
	t.Parallel()
	r := newRepository(t)
	r.write(".ci/steps", "#!/bin/sh\ncat \"$PIPE\"\n")
	r.commit("wait for what is written to a pipe")
	pipe := filepath.Join(t.TempDir(), "pipe")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}

	// What git leaves when it is killed while it makes a repository.
	if err := os.MkdirAll(filepath.Join(r.checkout(), ".git"), 0o700); err != nil {
		t.Fatal(err)
	}
	killed := r.command("PIPE=" + pipe)
	if err := killed.Start(); err != nil {
		t.Fatal(err)
	}
	left := openPipe(t, pipe)
	_ = killed.Process.Kill()
	_ = killed.Wait() // it was killed
	// What git leaves when it is killed while it writes.
	if err := os.WriteFile(filepath.Join(r.checkout(), ".git", "index.lock"), nil, 0o600); err != nil {
		t.Fatal(err)
	}

	var output bytes.Buffer
	next := r.command("PIPE=" + pipe)
	next.Stdout, next.Stderr = &output, &output
	if err := next.Start(); err != nil {
		t.Fatal(err)
	}
	awaitClosed(t, left)
	first := openPipe(t, pipe)

	waiting := r.command("PIPE=" + pipe)
	progress, err := waiting.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := waiting.Start(); err != nil {
		t.Fatal(err)
	}
	if said, err := io.ReadAll(io.LimitReader(progress, int64(len("waits for another run")))); string(said) != "waits for another run" {
		t.Errorf("the second run says %q, %v", said, err)
	}
	first.Close()
	if err := next.Wait(); err != nil {
		t.Errorf("after a run that was killed: %v\n%s", err, output.String())
	}
	openPipe(t, pipe).Close()
	if err := waiting.Wait(); err != nil {
		t.Errorf("after a run that it has waited for: %v", err)
	}
}

// openPipe opens a pipe for writing as soon as somebody reads it.
func openPipe(t *testing.T, path string) *os.File {
	t.Helper()
	var pipe *os.File
	await(t, "nobody reads the pipe", func() bool {
		var err error
		pipe, err = os.OpenFile(path, os.O_WRONLY|syscall.O_NONBLOCK, 0)
		if err != nil && !errors.Is(err, syscall.ENXIO) {
			t.Fatal(err)
		}
		return err == nil
	})
	return pipe
}

// awaitClosed waits until nobody reads the pipe any more: until then, it takes what is written.
func awaitClosed(t *testing.T, pipe *os.File) {
	t.Helper()
	defer pipe.Close()
	await(t, "what the killed run has left runs on", func() bool {
		_, err := pipe.WriteString("\n")
		return err != nil
	})
}

// await waits for a minute at most, and then fails with what is wrong.
func await(t *testing.T, wrong string, is func() bool) {
	t.Helper()
	deadline := time.After(time.Minute)
	ticker := time.NewTicker(10 * time.Millisecond)
	defer ticker.Stop()
	for !is() {
		select {
		case <-deadline:
			t.Fatal(wrong)
		case <-ticker.C:
		}
	}
}

// repository is one with .ci/run, and a cache of its own.
type repository struct {
	t          *testing.T
	dir, cache string
}

func newRepository(t *testing.T) *repository {
	t.Helper()
	r := &repository{t: t, dir: t.TempDir(), cache: t.TempDir()}
	for _, file := range []string{".ci/run", "tools/content-times", "tools/update", ".gitignore", "go.sum"} {
		r.copy(file)
	}
	r.copyModule()
	r.git("init", "--quiet")
	return r
}

// copyModule copies the package of the tests that starts programs, and what it imports.
func (r *repository) copyModule() {
	r.t.Helper()
	mod, err := os.ReadFile(filepath.Join(root, "go.mod"))
	if err != nil {
		r.t.Fatal(err)
	}
	top, err := filepath.Abs(root)
	if err != nil {
		r.t.Fatal(err)
	}
	r.write("go.mod", regexp.MustCompile(`=> \./`).ReplaceAllString(string(mod), "=> "+top+"/"))
	const list = "{{with .Module}}{{if .Main}}{{$.Dir}}{{end}}{{end}}"
	command := exec.CommandContext(r.t.Context(), "go", "list", "-deps", "-f", list, "./test/env")
	command.Dir = root
	packages, err := command.Output()
	if err != nil {
		r.t.Fatal(err)
	}
	for dir := range strings.FieldsSeq(string(packages)) {
		files, err := filepath.Glob(dir + "/*.go")
		if err != nil {
			r.t.Fatal(err)
		}
		for _, file := range files {
			name, err := filepath.Rel(top, file)
			if err != nil {
				r.t.Fatal(err)
			}
			if !strings.HasSuffix(name, "_test.go") {
				r.copy(name)
			}
		}
	}
}

func (r *repository) copy(name string) {
	r.t.Helper()
	content, err := os.ReadFile(filepath.Join(root, name))
	if err != nil {
		r.t.Fatal(err)
	}
	r.write(name, string(content))
}

// write writes a file. Programs are those of .ci and tools.
func (r *repository) write(name, content string) {
	r.t.Helper()
	path, mode := filepath.Join(r.dir, name), fs.FileMode(0o644)
	if strings.HasPrefix(name, ".ci/") || strings.HasPrefix(name, "tools/") {
		mode = 0o755
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		r.t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(content), mode); err != nil {
		r.t.Fatal(err)
	}
}

func (r *repository) read(name string) string {
	r.t.Helper()
	content, err := os.ReadFile(filepath.Join(r.dir, name))
	if err != nil {
		r.t.Fatal(err)
	}
	return string(content)
}

func (r *repository) remove(name string) {
	r.t.Helper()
	if err := os.Remove(filepath.Join(r.dir, name)); err != nil {
		r.t.Fatal(err)
	}
}

func (r *repository) replace(name, old, now string) {
	r.t.Helper()
	content := r.read(name)
	if !strings.Contains(content, old) {
		r.t.Fatalf("%s has no %q", name, old)
	}
	r.write(name, strings.ReplaceAll(content, old, now))
}

// checkout is the folder of .ci/run.
func (r *repository) checkout() string { return filepath.Join(r.cache, "capstan-ci", "checkout") }

// writeAgain writes the files of the folder of .ci/run as they are.
func (r *repository) writeAgain() {
	r.t.Helper()
	command := exec.CommandContext(r.t.Context(), "sh", "-c", "git ls-files -z | xargs -0 touch")
	command.Dir = r.checkout()
	if output, err := command.CombinedOutput(); err != nil {
		r.t.Fatalf("%v\n%s", err, output)
	}
}

func (r *repository) commit(subject string) {
	r.t.Helper()
	r.git("add", "--all")
	r.git("commit", "--quiet", "--allow-empty", "--message", subject)
}

func (r *repository) git(args ...string) {
	r.t.Helper()
	command := exec.CommandContext(r.t.Context(), "git", append([]string{"-c", "user.name=t", "-c", "user.email=t@localhost"}, args...)...)
	command.Dir = r.dir
	if output, err := command.CombinedOutput(); err != nil {
		r.t.Fatalf("git %s: %v\n%s", strings.Join(args, " "), err, output)
	}
}

// command runs .ci/run in a clone in a folder of its own, as for each change.
func (r *repository) command(variables ...string) *exec.Cmd {
	r.t.Helper()
	clone := r.t.TempDir()
	r.git("clone", "--quiet", r.dir, clone)
	r.copyUncommitted(clone)
	ctx, cancel := context.WithTimeout(r.t.Context(), limit)
	r.t.Cleanup(cancel)
	command := exec.CommandContext(ctx, ".ci/run")
	command.Dir, command.WaitDelay = clone, time.Minute // for what a killed run has left, which has its output
	command.Env = append(os.Environ(), "XDG_CACHE_HOME="+r.cache, "GOCACHE="+goCache(r.t), "CGO_ENABLED=0", "GOFLAGS=-mod=mod", "GOWORK=off")
	command.Env = append(command.Env, variables...)
	return command
}

func (r *repository) copyUncommitted(clone string) {
	r.t.Helper()
	command := exec.CommandContext(r.t.Context(), "git", "diff", "--name-only", "HEAD")
	command.Dir = r.dir
	changed, err := command.Output()
	if err != nil {
		r.t.Fatal(err)
	}
	for name := range strings.FieldsSeq(string(changed)) {
		if err := os.WriteFile(filepath.Join(clone, name), []byte(r.read(name)), 0o600); err != nil {
			r.t.Fatal(err)
		}
	}
}

// goCache is Go's build cache, which does not move with the cache of .ci/run.
func goCache(t *testing.T) string {
	t.Helper()
	dir, err := exec.CommandContext(t.Context(), "go", "env", "GOCACHE").Output()
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(dir))
}

func (r *repository) run(variables ...string) (output string, err error) {
	r.t.Helper()
	out, err := r.command(variables...).CombinedOutput()
	return string(out), err
}

// runUntilCached runs again what has passed. Go keeps no result of a test that has looked at a file of the last two seconds.
func (r *repository) runUntilCached(variables ...string) {
	r.t.Helper()
	for range 20 {
		output, err := r.run(variables...)
		if err != nil {
			r.t.Fatalf("what has passed fails when it is run again: %v\n%s", err, output)
		}
		if strings.Contains(output, "(cached)") {
			return
		}
	}
	r.t.Fatal("what has passed does not come from the cache when it is run again")
}
