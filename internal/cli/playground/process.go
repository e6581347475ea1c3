package playground

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	gopsutil "github.com/shirou/gopsutil/v4/process"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/capstan-io/capstan/internal/cli/hubapi"
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

// Process is a background process as its pid file describes it. It may have ended.
type Process struct {
	Name string `json:"name"`
	// Home is the folder that the pid file was written in.
	Home      string    `json:"home,omitempty"`
	PID       int       `json:"pid"`
	Command   []string  `json:"command"`
	StartedAt time.Time `json:"startedAt"`
	Endpoint  string    `json:"endpoint,omitempty"`
	Log       string    `json:"log"`
	// StoppingSince is when it was sent SIGTERM, so that the next command waits for that and does not take it for running.
	StoppingSince *time.Time `json:"stoppingSince,omitempty"`

	file string // its pid file
	// exited is closed when the process has ended, if it is a child of ours; result is its error then.
	exited chan struct{}
	result error
}

func (p *Process) save() error {
	p.Home = filepath.Dir(filepath.Dir(p.file))
	content, err := json.MarshalIndent(p, "", "  ")
	if err != nil {
		return err
	}
	return WriteSecretFile(p.file, content)
}

// isCopy reports whether the pid file is a copy of one that another home still has for the same process, which is of that home. One whose
// home was moved goes with it.
func (p *Process) isCopy(name string) bool {
	if p.Home == "" {
		return false
	}
	file := Processes{p.Home}.pidFile(name)
	if file == p.file || hubapi.SameFile(file, p.file) {
		return false
	}
	content, err := os.ReadFile(file)
	original := Process{}
	return err == nil && json.Unmarshal(content, &original) == nil && original.PID == p.PID
}

// Running reports whether the process has not ended. Process IDs are used again, so the process that has ours now must also
// have our command, which names folders of this home, or have been started when ours was. The command alone would not do:
// a program may be a script that starts the real one. Nor would the time: clocks are set.
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
	// ranAlready reports whether the process ran before this command, and is no child of ours.
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

// Stop sends SIGTERM to the process, and SIGKILL when it has not ended within the grace. forced reports whether that was needed.
func (p *Process) Stop(ctx context.Context, grace time.Duration) (forced bool, err error) {
	if !p.Running() {
		return false, nil
	}
	var unsaved error           // is of no consequence once the process has ended
	if p.StoppingSince == nil { // a second signal would cut short what the first one started
		if err := p.signal(syscall.SIGTERM); err != nil {
			return false, err
		}
		now := time.Now().UTC()
		p.StoppingSince = &now
		unsaved = p.save()
	}
	if forced, err = p.awaitStop(ctx, grace); err != nil {
		return forced, errors.Join(err, unsaved)
	}
	return forced, nil
}

// awaitStop returns when a process that was sent SIGTERM has ended. It sends SIGKILL after the grace.
func (p *Process) awaitStop(ctx context.Context, grace time.Duration) (forced bool, err error) {
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

// signal sends a signal; that the process has ended already is no error.
func (p *Process) signal(signal syscall.Signal) error {
	process, err := os.FindProcess(p.PID)
	if err != nil {
		return fmt.Errorf("find %s (process %d): %w", p.Name, p.PID, err)
	}
	defer process.Release() //nolint:errcheck // there is nothing to do about it
	if !p.Running() {       // the ID may have been another's before FindProcess had it
		return nil
	}
	if err := process.Signal(signal); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("stop %s (process %d): %w", p.Name, p.PID, err)
	}
	return nil
}

// Result waits for an attached process and returns how it ended.
func (p *Process) Result() error {
	<-p.exited
	return p.result
}
