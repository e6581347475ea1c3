package node

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/capstan-io/capstan/test/env"
)

// removeTimeout is how long the processes of a node may take to end once they are killed.
const removeTimeout = time.Minute

// RunCommand is the argument of the program that runs the inside of a node: realcluster run INDEX.
const RunCommand = "run"

// Start starts the node and returns while its programs are starting. The program realcluster runs the inside of the node. A node that
// cannot be started has to be stopped, too.
func (n *Node) Start(realcluster string) error {
	if err := n.start(realcluster); err != nil {
		return fmt.Errorf("start a node in %s: %w", n.Dir(), err)
	}
	return nil
}

func (n *Node) start(realcluster string) error {
	if err := n.writeFiles(); err != nil {
		return err
	}
	if err := n.makeCgroups(); err != nil {
		return err
	}
	log, err := os.OpenFile(n.Path("log", "node.log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	input, lifeline, err := os.Pipe()
	if err != nil {
		return err
	}
	defer input.Close()
	n.lifeline = lifeline
	command := exec.Command(realcluster, RunCommand, strconv.Itoa(n.Index))
	command.Env, command.Stdin, command.Stdout, command.Stderr = env.Environ(), input, log, log
	if n.Detached {
		command.ExtraFiles = []*os.File{n.owner} // keeps it locked
	}
	command.SysProcAttr = &syscall.SysProcAttr{
		Setsid:     true, // an interrupt from the terminal is for the tests, which then stop the node
		Cloneflags: syscall.CLONE_NEWNET | syscall.CLONE_NEWNS | syscall.CLONE_NEWPID | syscall.CLONE_NEWUTS | syscall.CLONE_NEWIPC,
	}
	if err := command.Start(); err != nil {
		return err
	}
	n.process, n.ended = command.Process, make(chan struct{})
	go func() {
		_ = command.Wait() // it is killed
		close(n.ended)
	}()
	if err := n.writePID(); err != nil {
		return err
	}
	if err := n.connect(); err != nil {
		return err
	}
	_, err = n.lifeline.Write([]byte(connected))
	return err
}

// Ended is closed when the first process of the node has ended, and with it all others.
func (n *Node) Ended() <-chan struct{} { return n.ended }

// Release gives the node up: a detached node then belongs to its own first process.
func (n *Node) Release() error {
	var err error
	for _, file := range []**os.File{&n.lifeline, &n.owner} {
		if *file != nil {
			err = errors.Join(err, (*file).Close())
			*file = nil
		}
	}
	return err
}

// Stop ends all processes of the node and removes all that it has left on the machine.
func (n *Node) Stop() error {
	if n.owner != nil { // nobody else removes it
		if err := n.end(); err != nil {
			return err
		}
	}
	unlock, err := lockMachine()
	if err != nil {
		return err
	}
	defer unlock()
	if err := n.remove(); err != nil {
		return err
	}
	_ = os.Remove(Root) // it stays as long as there are other nodes
	return nil
}

// remove takes it that the machine is locked.
func (n *Node) remove() error {
	if err := n.end(); err != nil {
		return err
	}
	if err := n.disconnect(); err != nil {
		return err
	}
	if err := os.RemoveAll(n.Dir()); err != nil {
		return err
	}
	return n.Release()
}

// end ends all processes of the node and removes their cgroups.
func (n *Node) end() error {
	if err := n.kill(); err != nil {
		return err
	}
	return n.removeCgroups()
}

// kill ends the first process of the node. The kernel then kills all others, and the first one is gone when they are.
func (n *Node) kill() error {
	pid, err := n.pid()
	if err != nil {
		return nil //nolint:nilerr // it has not been started, or ended before
	}
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil && !errors.Is(err, syscall.ESRCH) {
		return err
	}
	return within(removeTimeout, func() error {
		if _, err := n.pid(); err != nil {
			return nil //nolint:nilerr // it has ended
		}
		return fmt.Errorf("process %d does not end", pid)
	})
}

// writePID also writes when the process started: another process may get its number later.
func (n *Node) writePID() error {
	first, err := readProcess(n.process.Pid)
	if err != nil {
		return err
	}
	return os.WriteFile(n.Path("pid"), fmt.Appendf(nil, "%d %s", n.process.Pid, first.started), 0o600)
}

// pid is that of the first process of the node, as long as it has not ended.
func (n *Node) pid() (int, error) {
	content, err := os.ReadFile(n.Path("pid"))
	if err != nil {
		return 0, err
	}
	var pid int
	var started string
	if _, err := fmt.Sscan(string(content), &pid, &started); err != nil {
		return 0, err
	}
	first, err := readProcess(pid)
	if err != nil {
		return 0, err
	}
	if first.started != started || first.hasEnded() {
		return 0, fmt.Errorf("process %d has ended", pid)
	}
	return pid, nil
}

// process is what the kernel says of a process: see proc_pid_stat(5).
type process struct {
	state   string
	threads string // that have not ended, and the main one
	started string // in ticks since this machine did
}

// hasEnded tells whether only the entry in the table is left. The state is that of the main thread alone. Other threads may be ending
// still, and one of the first process of a node has all processes of it to kill.
func (p process) hasEnded() bool { return (p.state == "Z" || p.state == "X") && p.threads == "1" }

func readProcess(pid int) (process, error) {
	path := fmt.Sprintf("/proc/%d/stat", pid)
	content, err := os.ReadFile(path)
	if err != nil {
		return process{}, err
	}
	rest := content[bytes.LastIndexByte(content, ')')+1:] // after the number and the name
	fields := strings.Fields(string(rest))
	if len(fields) < 20 {
		return process{}, fmt.Errorf("%s has no time of the start: %q", path, content)
	}
	return process{state: fields[0], threads: fields[17], started: fields[19]}, nil
}

// Command is a command that runs in the namespaces of the node.
func (n *Node) Command(ctx context.Context, name string, args ...string) *exec.Cmd {
	pid, err := n.pid()
	if err != nil {
		return &exec.Cmd{Path: name, Err: fmt.Errorf("the node does not run: %w", err)}
	}
	enter := []string{"--target", strconv.Itoa(pid), "--mount", "--net", "--pid", "--uts", "--ipc", "--", name}
	return exec.CommandContext(ctx, "nsenter", append(enter, args...)...)
}

// Import imports the images of an archive, as "docker save" writes it.
func (n *Node) Import(ctx context.Context, archive io.Reader) error {
	command := n.Command(ctx, "ctr", "--address", containerdSocket, "--namespace", "k8s.io", "images", "import", "-")
	command.Stdin = archive
	if output, err := command.CombinedOutput(); err != nil {
		return fmt.Errorf("import images: %w: %s", err, bytes.TrimSpace(output))
	}
	return nil
}

// AwaitContainerd waits until containerd takes images.
func (n *Node) AwaitContainerd(ctx context.Context) error {
	return within(removeTimeout, func() error {
		output, err := n.Command(ctx, "ctr", "--address", containerdSocket, "version").CombinedOutput()
		if err != nil {
			return fmt.Errorf("containerd is not ready: %w: %s", err, bytes.TrimSpace(output))
		}
		return nil
	})
}

// Restart kills a program of the node, such as "kubelet", and waits until the node has started it again.
func (n *Node) Restart(ctx context.Context, program string) error {
	before, err := os.ReadFile(n.Path("run.pids", program))
	if err != nil {
		return err
	}
	if output, err := n.Command(ctx, "kill", "-KILL", string(before)).CombinedOutput(); err != nil {
		return fmt.Errorf("kill %s: %w: %s", program, err, bytes.TrimSpace(output))
	}
	return within(removeTimeout, func() error {
		after, err := os.ReadFile(n.Path("run.pids", program))
		if err != nil || bytes.Equal(before, after) {
			return fmt.Errorf("%s has not been started again", program)
		}
		return nil
	})
}

// Logs has the end of the log of each program.
func (n *Node) Logs(lines int) map[string]string {
	paths, _ := filepath.Glob(n.Path("log", "*.log"))
	logs := map[string]string{}
	for _, path := range paths {
		content, err := os.ReadFile(path)
		if err != nil {
			content = []byte(err.Error())
		}
		all := strings.Split(strings.TrimSpace(string(content)), "\n")
		logs[strings.TrimSuffix(filepath.Base(path), ".log")] = strings.Join(all[max(0, len(all)-lines):], "\n")
	}
	return logs
}
