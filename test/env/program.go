package env

import (
	"path/filepath"
	"testing"
)

// NewProgram lays out a program that has no function of its own here, such as one of the examples, without starting it. It runs
// with the variables, given as NAME=VALUE, in its environment.
func NewProgram(t testing.TB, variables []string, program string, args ...string) *Process {
	t.Helper()
	p := newProcess(filepath.Join(t.TempDir(), filepath.Base(program)+".log"), program, args...)
	p.env = variables
	p.StopWith(t)
	return p
}

// NewProcess lays out a program that outlives a test, without starting it. It writes to a log file, and has to be stopped.
func NewProcess(logFile, program string, args ...string) *Process {
	return newProcess(logFile, program, args...)
}
