package playground

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	gopsutil "github.com/shirou/gopsutil/v4/process"
	"k8s.io/apimachinery/pkg/util/wait"
)

const (
	// exitPollInterval is how often the state of a process is read that is not our child: no system we run on notifies us when it ends.
	exitPollInterval = 25 * time.Millisecond
	// shutdownGrace is how long a process may take to stop before it is killed.
	shutdownGrace = 20 * time.Second
	// startTolerance is how far apart the start of a process may be by its pid file and by the operating system, which
	// knows it to the second.
	startTolerance = 3 * time.Second
	// attachedLog stands for the log of a process that writes to a terminal.
	attachedLog = "in its terminal"
	// logTail is how many lines of the log of a process that died are shown.
	logTail = 12
)

// Program is a background process to be.
type Program struct {
	// Name is unique in the home, such as cluster1-agent.
	Name string
	// Path is the executable, Args are its arguments. They hold no secrets: everybody on the machine can see them.
	Path string
	Args []string
	// Endpoint is the URL it serves, empty if none.
	Endpoint string
}

// Process is a background process as its pid file describes it. It may have ended.
type Process struct {
	Name      string    `json:"name"`
	PID       int       `json:"pid"`
	Command   []string  `json:"command"`
	StartedAt time.Time `json:"startedAt"`
	Endpoint  string    `json:"endpoint,omitempty"`
	Log       string    `json:"log"`
	// StoppingSince is when it was sent SIGTERM, so that the next command waits for that and does not take it for running.
	StoppingSince *time.Time `json:"stoppingSince,omitempty"`

	file string // its pid file, empty if it has none
	// exited is closed when the process has ended, if it is a child of ours; result is its error then.
	exited chan struct{}
	result error
}

func (h Home) pidFile(name string) string { return filepath.Join(h.runDir(), name+".json") }
func (h Home) logFile(name string) string { return filepath.Join(h.logDir(), name+".log") }

// Process reads a pid file. A missing one is a process that never ran: its PID is 0.
func (h Home) Process(name string) (*Process, error) {
	process := &Process{Name: name, Log: h.logFile(name), file: h.pidFile(name)}
	content, err := os.ReadFile(h.pidFile(name))
	if errors.Is(err, fs.ErrNotExist) {
		return process, nil
	}
	if err != nil {
		return nil, err
	}
	if err := json.Unmarshal(content, process); err != nil {
		return nil, fmt.Errorf("%s is broken: %w: remove it if the process it is about does not run", h.pidFile(name), err)
	}
	return process, nil
}

// Start runs the program in a session of its own, so that it outlives us, or returns the process that runs already. The
// second result tells which.
func (h Home) Start(program Program) (process *Process, started bool, err error) {
	running, err := h.Process(program.Name)
	if err != nil {
		return nil, false, err
	}
	if running.Running() {
		return running, false, nil
	}
	log, err := h.openLog(program.Name)
	if err != nil {
		return nil, false, fmt.Errorf("open the log of %s: %w", program.Name, err)
	}
	defer log.Close()
	cmd := exec.Command(program.Path, program.Args...)
	cmd.Dir, cmd.Stdout, cmd.Stderr = h.Dir, log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		return nil, false, fmt.Errorf("start %s: %w", program.Name, err)
	}
	process = &Process{
		Name: program.Name, PID: cmd.Process.Pid, Command: cmd.Args, StartedAt: time.Now().UTC(),
		Endpoint: program.Endpoint, Log: log.Name(), file: h.pidFile(program.Name), exited: make(chan struct{}),
	}
	go func() {
		process.result = cmd.Wait()
		close(process.exited)
	}()
	if err := process.save(); err != nil {
		return nil, false, errors.Join(fmt.Errorf("write the pid file of %s: %w", program.Name, err), process.signal(syscall.SIGKILL))
	}
	return process, true, nil
}

func (p *Process) save() error {
	content, err := json.MarshalIndent(p, "", "  ")
	if err != nil {
		return err
	}
	return WriteSecretFile(p.file, content)
}

// openLog starts a new log and keeps the one of the run before next to it.
func (h Home) openLog(name string) (*os.File, error) {
	file := h.logFile(name)
	if err := os.Rename(file, previous(file)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	return os.OpenFile(file, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
}

// previous is where the log of the run before is kept.
func previous(log string) string { return log + ".previous" }

// Running tells whether the process has not ended. Process IDs are used again, so the process that has ours now must also
// have our command, which names folders of this home, or have been started when ours was. The command alone would not do:
// a program may be a script that starts the real one in its place. Nor would the time: clocks are set.
func (p *Process) Running() bool {
	if p.exited != nil {
		select {
		case <-p.exited:
			return false
		default:
			return true
		}
	}
	if p.PID <= 0 {
		return false
	}
	found := &gopsutil.Process{Pid: int32(p.PID)} //nolint:gosec // Linux has at most 4,194,304
	if states, err := found.Status(); err != nil || slices.Contains(states, gopsutil.Zombie) {
		return false
	}
	if command, err := found.CmdlineSlice(); err == nil && slices.Equal(command, p.Command) {
		return true
	}
	created, err := found.CreateTime()
	return err == nil && p.StartedAt.Sub(time.UnixMilli(created)).Abs() < startTolerance
}

// RSS is the memory of the process that is in RAM, in bytes; 0 if it has ended.
func (p *Process) RSS() uint64 {
	memory, err := (&gopsutil.Process{Pid: int32(p.PID)}).MemoryInfo() //nolint:gosec // as above
	if err != nil || memory == nil {
		return 0
	}
	return memory.RSS
}

// WaitExit returns when the process has ended (nil) or the context has.
func (p *Process) WaitExit(ctx context.Context) error {
	if p.exited != nil {
		select {
		case <-p.exited:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return wait.PollUntilContextCancel(ctx, exitPollInterval, true, func(context.Context) (bool, error) { return !p.Running(), nil })
}

// ExitError says how the process ended, with the last lines of its log.
func (p *Process) ExitError() error {
	how := "it ended"
	if p.exited != nil && p.result != nil {
		how = "it ended with " + p.result.Error()
	}
	tail := p.tail()
	if tail == "" {
		tail = "  (it wrote nothing)"
	}
	return &exitError{
		name: p.Name, ranAlready: p.exited == nil,
		message: fmt.Sprintf("%s does not run: %s. The last lines of its log:\n%s\nThe whole log is %s.", p.Name, how, tail, p.Log),
	}
}

// exitError is what ExitError returns.
type exitError struct {
	name, message string
	// ranAlready tells whether the process ran before this command, and is no child of ours.
	ranAlready bool
}

func (e *exitError) Error() string { return e.message }

func (p *Process) tail() string {
	content, err := os.ReadFile(p.Log)
	if err != nil {
		return ""
	}
	lines := strings.Split(string(bytes.TrimSpace(content)), "\n")
	lines = lines[max(0, len(lines)-logTail):]
	return strings.TrimRight("  "+strings.Join(lines, "\n  "), " ")
}

// Stop sends SIGTERM to the process, and SIGKILL when it has not ended within the grace. forced tells whether that was needed.
func (p *Process) Stop(ctx context.Context, grace time.Duration) (forced bool, err error) {
	if !p.Running() {
		return false, nil
	}
	if p.StoppingSince == nil { // a second signal would cut short what the first one started
		if err := p.requestStop(); err != nil {
			return false, err
		}
	}
	graceful, cancel := context.WithTimeout(ctx, grace)
	defer cancel()
	if p.WaitExit(graceful) == nil {
		return false, nil
	}
	if ctx.Err() != nil {
		return false, fmt.Errorf("stop %s: %w: it was asked to and may still be doing so", p.Name, context.Cause(ctx))
	}
	if err := p.signal(syscall.SIGKILL); err != nil {
		return true, err
	}
	return true, p.WaitExit(ctx)
}

func (p *Process) requestStop() error {
	if err := p.signal(syscall.SIGTERM); err != nil {
		return err
	}
	now := time.Now().UTC()
	p.StoppingSince = &now
	return p.save()
}

// signal sends a signal; that the process has ended already is no error.
func (p *Process) signal(signal syscall.Signal) error {
	process, err := os.FindProcess(p.PID)
	if err != nil {
		return fmt.Errorf("find %s (process %d): %w", p.Name, p.PID, err)
	}
	defer process.Release() //nolint:errcheck // there is nothing to do about it
	if !p.Running() {       // the ID may have been another's before FindProcess took hold of it
		return nil
	}
	if err := process.Signal(signal); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("stop %s (process %d): %w", p.Name, p.PID, err)
	}
	return nil
}

// FindProgram returns the path of one of our programs: next to this one, else in PATH.
func FindProgram(name string) (string, error) {
	self, err := os.Executable()
	if err != nil {
		return "", err
	}
	sibling := filepath.Join(filepath.Dir(self), name)
	if info, err := os.Stat(sibling); err == nil && info.Mode().IsRegular() {
		return sibling, nil
	}
	if found, err := exec.LookPath(name); err == nil {
		return filepath.Abs(found)
	}
	return "", fmt.Errorf("%s is neither in %s nor in PATH: install it there; \"make build\" makes all programs of Capstan", name,
		filepath.Dir(self))
}

// attach runs the program as a child that writes to logs. It is sent SIGTERM when the context ends.
func (p Program) attach(ctx context.Context, logs io.Writer) (*Process, error) {
	cmd := exec.CommandContext(ctx, p.Path, p.Args...)
	cmd.Stdout, cmd.Stderr = logs, logs
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true} // an interrupt from the terminal reaches it through us alone
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = shutdownGrace
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", p.Name, err)
	}
	process := &Process{Name: p.Name, PID: cmd.Process.Pid, Command: cmd.Args, StartedAt: time.Now().UTC(), Log: attachedLog,
		exited: make(chan struct{})}
	go func() {
		process.result = cmd.Wait()
		close(process.exited)
	}()
	return process, nil
}

// Result waits for an attached process and returns how it ended.
func (p *Process) Result() error {
	<-p.exited
	return p.result
}
