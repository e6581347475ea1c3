// Package env runs the built programs as child processes for tests: a hub, sandbox clusters and agents, as a user would run
// them. The programs are taken from bin/ at the top of the repository; `make build` puts them there.
package env

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/capstan-io/capstan/internal/freeport"
)

// stopGrace is how long a child may take to stop when asked.
const stopGrace = 30 * time.Second

// Process is a child process that writes to a log file.
type Process struct {
	program string
	args    []string
	env     []string
	logFile string

	mu      sync.Mutex
	cmd     *exec.Cmd
	running bool
	done    chan struct{}
	err     error
	cpu     time.Duration // of the runs that have ended
	ofTest  bool          // it is stopped with a test
}

func newProcess(logFile, program string, args ...string) *Process {
	return &Process{program: program, args: args, logFile: logFile}
}

// AddArgs adds arguments for the next Start.
func (p *Process) AddArgs(args ...string) { p.args = append(p.args, args...) }

// AddEnv adds variables, as NAME=VALUE, for the next Start.
func (p *Process) AddEnv(variables ...string) { p.env = append(p.env, variables...) }

// Start starts the process, again if it has run before. The log goes on in the same file.
func (p *Process) Start() error {
	path, err := Binary(p.program)
	if err != nil {
		return err
	}
	log, err := os.OpenFile(p.logFile, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	cmd := exec.Command(path, p.args...)
	cmd.Env = Environ(p.env...)
	cmd.Stdout, cmd.Stderr = log, log
	// A child must not outlive a test binary that was killed.
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cmd, p.running, p.done = cmd, true, make(chan struct{})
	noteStarted(p)
	go p.wait(cmd, p.done, OnDeadline(p.tail))
	return nil
}

// wait returns when the process has ended.
func (p *Process) wait(cmd *exec.Cmd, done chan<- struct{}, forget func()) {
	err := cmd.Wait()
	forget()
	p.mu.Lock()
	p.running, p.err = false, err
	p.cpu += cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()
	p.mu.Unlock()
	close(done)
}

// Done is closed when the process has ended.
func (p *Process) Done() <-chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.done
}

// AwaitExit waits until the process has ended.
func (p *Process) AwaitExit(t testing.TB) {
	t.Helper()
	select {
	case <-p.Done():
	case <-time.After(WaitTimeout):
		t.Fatalf("%s still runs after %s; it wrote:\n%s", p.program, WaitTimeout, p.tail())
	}
}

// Pid of the running process.
func (p *Process) Pid() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.cmd.Process.Pid
}

// Stop asks the process to stop and returns how it ended.
func (p *Process) Stop() error { return p.signal(syscall.SIGTERM) }

// Kill ends the process as a crash would.
func (p *Process) Kill() { _ = p.signal(syscall.SIGKILL) }

func (p *Process) signal(s syscall.Signal) error {
	p.mu.Lock()
	cmd, done := p.cmd, p.done
	p.mu.Unlock()
	if cmd == nil {
		return nil
	}
	_ = cmd.Process.Signal(s)
	select {
	case <-done:
	case <-time.After(stopGrace):
		_ = cmd.Process.Kill()
		<-done
		return fmt.Errorf("%s did not stop within %s", p.program, stopGrace)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.err
}

// Log is all that the process has written.
func (p *Process) Log() string {
	content, err := os.ReadFile(p.logFile)
	if err != nil {
		return err.Error()
	}
	return string(content)
}

// tail is the end of the log, for the messages of tests that fail, or take too long.
func (p *Process) tail() string {
	const lines = 30
	all := bytes.Split(bytes.TrimSpace([]byte(p.Log())), []byte("\n"))
	return fmt.Sprintf("%s wrote last:\n%s", p.program, bytes.Join(all[max(0, len(all)-lines):], []byte("\n")))
}

// StopWith stops the process at the end of the test, and shows what it wrote if the test failed.
func (p *Process) StopWith(t testing.TB) {
	p.mu.Lock()
	p.ofTest = true
	p.mu.Unlock()
	accountOf(t).addProcess(p)
	t.Cleanup(func() {
		err := p.Stop()
		var exit *exec.ExitError
		if err != nil && !errors.As(err, &exit) {
			t.Errorf("stop: %v", err)
		}
		if t.Failed() {
			t.Log(p.tail())
		}
	})
}

// siblings are the programs that a program starts from its own folder.
var siblings = map[string][]string{"capstan": {"capstan-charts"}}

// Binary is the path of a built program. Go takes a result of a test from its cache as long as the programs that the test has asked for,
// and those that they start, are what they were. A test of "capstan up" asks for those of the playground, too. An absolute path, as of the
// test binary itself, stays.
func Binary(name string) (string, error) {
	if filepath.IsAbs(name) {
		return name, nil
	}
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for ; dir != filepath.Dir(dir); dir = filepath.Dir(dir) {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err != nil {
			continue
		}
		for _, program := range append(slices.Clone(siblings[name]), name) {
			path := filepath.Join(dir, "bin", program)
			if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
				return "", fmt.Errorf("%s is not built; run: make build", path)
			}
		}
		return filepath.Join(dir, "bin", name), nil
	}
	return "", errors.New("the tests run outside of the repository")
}

// ports are for the servers of tests. Test binaries that run at the same time share them.
var ports = freeport.Between(10000, 14999)

// FreeAddress is an address of the loopback interface that nothing listens on.
func FreeAddress(t testing.TB) string {
	t.Helper()
	port, err := ports.Next()
	if err != nil {
		t.Fatal(err)
	}
	return net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
}
