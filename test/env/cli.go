package env

import (
	"bytes"
	"errors"
	"os/exec"
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
	path, err := Binary("capstan")
	if err != nil {
		t.Fatal(err)
	}
	var out, errOut bytes.Buffer
	command := exec.CommandContext(t.Context(), path, append([]string{"--kubeconfig", s.Kubeconfig}, args...)...)
	command.Stdin, command.Stdout, command.Stderr = strings.NewReader(stdin), &out, &errOut
	err = command.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return Result{out.String(), errOut.String(), command.ProcessState.ExitCode()}
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
