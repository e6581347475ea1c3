package program

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"os/signal"
	"syscall"
	"testing"
	"time"
)

// timeout is how long the child may take.
const timeout = time.Minute

// envChild names what a child of the test does.
const envChild = "CAPSTAN_TEST_SHUTDOWN"

var children = map[string]func(){"late": late, "hangup": hangup, "nohup": nohup}

// late stands for a main that is reached late: the child signals itself before it asks for the context.
func late() {
	signalSelf(syscall.SIGTERM)
	ctx := Context()
	<-ctx.Done()
	os.Stdout.WriteString(context.Cause(ctx).Error())
	// Signals have their usual meaning again.
	signalSelf(syscall.SIGTERM)
	<-time.After(timeout)
}

// hangup stands for a program whose terminal is closed: both the shell and the system say so.
func hangup() {
	noted := make(chan os.Signal, 1)
	signal.Notify(noted, syscall.SIGHUP) // it is not ignored, also where the tests run under nohup
	signal.Stop(noted)
	ctx := UntilHangup(Context())
	signalSelf(syscall.SIGHUP)
	<-ctx.Done()
	signalSelf(syscall.SIGHUP)
	os.Stdout.WriteString("ended in order")
	os.Exit(0)
}

// nohup stands for a program that is to outlive its terminal.
func nohup() {
	signal.Ignore(syscall.SIGHUP)
	ctx := UntilHangup(Context())
	signalSelf(syscall.SIGHUP)
	signalSelf(syscall.SIGTERM)
	<-ctx.Done()
	os.Stdout.WriteString("ended in order")
	os.Exit(0)
}

func signalSelf(s syscall.Signal) {
	if err := syscall.Kill(os.Getpid(), s); err != nil {
		panic(err)
	}
}

func TestMain(m *testing.M) {
	if child := children[os.Getenv(envChild)]; child != nil {
		child()
		os.Exit(1)
	}
	os.Exit(m.Run())
}

// run runs a child until it has ended.
func run(t *testing.T, child string) (printed string, ended *os.ProcessState) {
	t.Helper()
	command := exec.CommandContext(t.Context(), os.Args[0])
	command.Env = append(os.Environ(), envChild+"="+child)
	var out bytes.Buffer
	command.Stdout = &out
	_ = command.Run() // how it ended is in its state
	return out.String(), command.ProcessState
}

// A signal that comes before the program asks for the context ends it, and the second one kills.
func TestSignalBeforeContext(t *testing.T) {
	t.Parallel()
	printed, ended := run(t, "late")
	if printed != "terminated signal received" {
		t.Errorf("the first signal did not end the context: printed %q, %v", printed, ended)
	}
	status, ok := ended.Sys().(syscall.WaitStatus)
	if !ok || !status.Signaled() || status.Signal() != syscall.SIGTERM {
		t.Errorf("the second signal did not kill: %v", ended)
	}
}

// A program whose terminal is closed ends as after an interrupt.
func TestHangup(t *testing.T) {
	t.Parallel()
	for _, child := range []string{"hangup", "nohup"} {
		if printed, ended := run(t, child); printed != "ended in order" || !ended.Success() {
			t.Errorf("%s: printed %q, %v", child, printed, ended)
		}
	}
}
