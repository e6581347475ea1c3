package env

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// Result is what a command printed and how it ended.
type Result struct {
	Out, ErrOut string
	Code        int
}

// Capstan runs the command line with the administrator's credential of the server.
func (s *Server) Capstan(t testing.TB, stdin string, args ...string) Result {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), WaitTimeout)
	defer cancel()
	command := s.capstan(ctx, t, args)
	command.Stdin = strings.NewReader(stdin)
	return run(t, command)
}

// CodeInterrupted is the exit code of a command that was interrupted.
const CodeInterrupted = 130

// Interrupted runs the command line as Capstan does, and interrupts it once it watches a resource, such as "managedclusters". So what a
// command says of what it waits for does not depend on how long it takes to get there.
func (s *Server) Interrupted(t testing.TB, watched string, args ...string) Result {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), WaitTimeout)
	defer cancel()
	command := s.capstan(ctx, t, args)
	InterruptOnceItWatches(command, watched)
	result := run(t, command)
	if ctx.Err() != nil {
		t.Fatalf("%s does not watch %s:\n%s%s", strings.Join(args, " "), watched, result.Out, result.ErrOut)
	}
	return result
}

func (s *Server) capstan(ctx context.Context, t testing.TB, args []string) *exec.Cmd {
	t.Helper()
	path, err := Binary("capstan")
	if err != nil {
		t.Fatal(err)
	}
	return Command(ctx, path, append([]string{"--kubeconfig", s.Kubeconfig}, args...)...)
}

// Command is exec.CommandContext of a command that is interrupted when the context ends, so that it says what it is at, and killed if it
// goes on.
func Command(ctx context.Context, path string, args ...string) *exec.Cmd {
	command := exec.CommandContext(ctx, path, args...)
	command.Cancel = func() error { return command.Process.Signal(os.Interrupt) }
	command.WaitDelay = stopGrace
	command.Env = Environ()
	return command
}

// InterruptOnceItWatches has a command of capstan log its requests, and interrupts it, as Ctrl-C does, once it watches a resource.
func InterruptOnceItWatches(command *exec.Cmd, resource string) {
	command.Args = append(command.Args, "-v", "6")
	// Parameters of requests are sorted, and only watches ask for bookmarks.
	command.Stderr = &interrupter{command: command, words: "/" + resource + "?allowWatchBookmarks=true"}
}

// interrupter is the standard error of a command, which is interrupted once it has written some words.
type interrupter struct {
	command     *exec.Cmd
	words       string
	interrupted bool
	written     bytes.Buffer
}

// String is what the command has written.
func (i *interrupter) String() string { return i.written.String() }

// Write keeps what the command writes.
func (i *interrupter) Write(p []byte) (int, error) {
	n, err := i.written.Write(p)
	if !i.interrupted && strings.Contains(i.String(), i.words) {
		i.interrupted = true
		_ = i.command.Process.Signal(os.Interrupt) // it may have ended
	}
	return n, err
}

// run runs a command, and adds its CPU time to that of the test.
func run(t testing.TB, command *exec.Cmd) Result {
	t.Helper()
	var out bytes.Buffer
	command.Stdout = &out
	if command.Stderr == nil {
		command.Stderr = &bytes.Buffer{}
	}
	err := command.Run()
	var exit *exec.ExitError
	if command.ProcessState == nil || err != nil && !errors.As(err, &exit) {
		t.Fatalf("%s: %v\n%s%s", strings.Join(command.Args, " "), err, out.String(), command.Stderr)
	}
	accountOf(t).addCommand(filepath.Base(command.Path), command.ProcessState.UserTime()+command.ProcessState.SystemTime())
	return Result{out.String(), fmt.Sprint(command.Stderr), command.ProcessState.ExitCode()}
}

// Succeeds fails the test unless the command did what it was to and printed some words.
func (r Result) Succeeds(t testing.TB, words ...string) {
	t.Helper()
	r.Ends(t, 0)
	for _, word := range words {
		if !strings.Contains(r.Out, word) {
			t.Errorf("%q is missing in:\n%s", word, r.Out)
		}
	}
}

// Ends fails the test unless the command ended with an exit code and said some words of what is wrong.
func (r Result) Ends(t testing.TB, code int, words ...string) {
	t.Helper()
	if r.Code != code {
		t.Fatalf("exit code %d, want %d: %s%s", r.Code, code, r.Out, r.ErrOut)
	}
	for _, word := range words {
		if !strings.Contains(r.ErrOut, word) {
			t.Errorf("%q is missing in:\n%s", word, r.ErrOut)
		}
	}
}
