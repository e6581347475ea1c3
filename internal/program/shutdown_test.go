package program

import (
	"bytes"
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"
)

// timeout is how long the child may take.
const timeout = time.Minute

const envChild = "CAPSTAN_TEST_SHUTDOWN"

// late stands for a main that is reached late: the child signals itself before it asks for the context.
func late() {
	signalSelf()
	<-Context().Done()
	os.Stdout.WriteString("ended")
	// Signals have their usual meaning again.
	signalSelf()
	<-time.After(timeout)
}

func signalSelf() {
	if err := syscall.Kill(os.Getpid(), syscall.SIGTERM); err != nil {
		panic(err)
	}
}

func TestMain(m *testing.M) {
	if os.Getenv(envChild) != "" {
		late()
		os.Exit(1)
	}
	os.Exit(m.Run())
}

// A signal that comes before the program asks for the context ends it, and the second one kills.
func TestSignalBeforeContext(t *testing.T) {
	t.Parallel()
	child := exec.CommandContext(t.Context(), os.Args[0])
	child.Env = append(os.Environ(), envChild+"=1")
	var out bytes.Buffer
	child.Stdout = &out
	err := child.Run()
	if out.String() != "ended" {
		t.Errorf("the first signal did not end the context: %v", err)
	}
	status, ok := child.ProcessState.Sys().(syscall.WaitStatus)
	if !ok || !status.Signaled() || status.Signal() != syscall.SIGTERM {
		t.Errorf("the second signal did not kill: %v", child.ProcessState)
	}
}
