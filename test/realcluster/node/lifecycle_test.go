package node

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"testing"
)

// envLeave makes the test binary end its main thread, and the other ones when its input ends.
const envLeave = "CAPSTAN_TEST_LEAVE"

func TestMain(m *testing.M) {
	if os.Getenv(envLeave) != "" {
		leaveMainThread()
	}
	os.Exit(m.Run())
}

func init() { runtime.LockOSThread() } // TestMain runs on the main thread

func leaveMainThread() {
	go func() {
		fmt.Println("runs")
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(0)
	}()
	_, _, _ = syscall.Syscall(syscall.SYS_EXIT, 0, 0, 0)
}

// The state of a process is that of its main thread, which may have ended long before the others.
func TestProcessEndsWithItsLastThread(t *testing.T) {
	command := exec.CommandContext(t.Context(), os.Args[0])
	command.Env = append(os.Environ(), envLeave+"=1")
	input, err := command.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	output, err := command.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	if _, err := bufio.NewReader(output).ReadString('\n'); err != nil {
		t.Fatal(err)
	}
	await(t, command, func(p process) bool { return p.state == "Z" })
	if p := read(t, command); p.hasEnded() {
		t.Errorf("has ended, although a thread of it waits for input: %+v", p)
	}
	if err := input.Close(); err != nil {
		t.Fatal(err)
	}
	await(t, command, process.hasEnded)
	if err := command.Wait(); err != nil {
		t.Error(err)
	}
}

func await(t *testing.T, command *exec.Cmd, condition func(process) bool) {
	t.Helper()
	err := within(removeTimeout, func() error {
		if p := read(t, command); !condition(p) {
			return fmt.Errorf("is %+v", p)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

func read(t *testing.T, command *exec.Cmd) process {
	t.Helper()
	p, err := readProcess(command.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	return p
}
