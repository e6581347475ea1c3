package playground

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"
)

// Processes are the background processes of a home. Each has a pid file and a log there, by its name.
type Processes struct{ home string }

const pidExtension = ".json"

func (p Processes) runDir() string             { return filepath.Join(p.home, "run") }
func (p Processes) logDir() string             { return filepath.Join(p.home, "logs") }
func (p Processes) pidFile(name string) string { return filepath.Join(p.runDir(), name+pidExtension) }
func (p Processes) logFile(name string) string { return filepath.Join(p.logDir(), name+".log") }

// previous is where the log of the run before is kept.
func previous(log string) string { return log + ".previous" }

// get reads a pid file. Without one, or with one of another home, it is a process that never ran: its PID is 0.
func (p Processes) get(name string) (*Process, error) {
	never := Process{Name: name, Log: p.logFile(name), file: p.pidFile(name)}
	process := never
	content, err := os.ReadFile(process.file)
	if errors.Is(err, fs.ErrNotExist) {
		return &never, nil
	}
	if err != nil {
		return nil, err
	}
	if err := json.Unmarshal(content, &process); err != nil {
		return nil, fmt.Errorf("%s is broken: %w: remove it if the process it is about does not run", process.file, err)
	}
	if process.isCopy(name) {
		return &never, nil
	}
	return &process, nil
}

// Start runs the program in a session of its own, so that it outlives us, or returns the process that runs already. The
// second result says which.
func (p Processes) Start(program Program) (process *Process, started bool, err error) {
	running, err := p.get(program.Name)
	if err != nil {
		return nil, false, err
	}
	if running.Running() {
		return running, false, nil
	}
	log, err := p.openLog(program.Name)
	if err != nil {
		return nil, false, fmt.Errorf("open the log of %s: %w", program.Name, err)
	}
	defer log.Close()
	cmd := exec.Command(program.Path, program.Args...)
	cmd.Dir, cmd.Stdout, cmd.Stderr = p.home, log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	process, err = p.run(program, cmd, log.Name())
	return process, err == nil, err
}

// attach runs the program as a child that writes to logs. It is sent SIGTERM when the context ends.
func (p Processes) attach(ctx context.Context, program Program, logs io.Writer) (*Process, error) {
	cmd := exec.CommandContext(ctx, program.Path, program.Args...)
	cmd.Stdout, cmd.Stderr = logs, logs
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true} // an interrupt from the terminal reaches it through us alone
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = shutdownGrace
	return p.run(program, cmd, attachedLog)
}

// run starts the command of a program, and writes the pid file.
func (p Processes) run(program Program, cmd *exec.Cmd, log string) (*Process, error) {
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", program.Name, err)
	}
	process := &Process{
		Name: program.Name, PID: cmd.Process.Pid, Command: cmd.Args, StartedAt: time.Now().UTC(),
		Endpoint: program.Endpoint, Log: log, file: p.pidFile(program.Name), exited: make(chan struct{}),
	}
	go func() {
		process.result = cmd.Wait()
		close(process.exited)
	}()
	if err := process.save(); err != nil {
		return nil, errors.Join(fmt.Errorf("write the pid file of %s: %w", program.Name, err), process.signal(syscall.SIGKILL))
	}
	return process, nil
}

// openLog starts a new log and keeps the one of the run before next to it.
func (p Processes) openLog(name string) (*os.File, error) {
	file := p.logFile(name)
	if err := os.Rename(file, previous(file)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	return os.OpenFile(file, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
}

// names are those of the processes that have a pid file.
func (p Processes) names() (names []string, err error) {
	entries, err := os.ReadDir(p.runDir())
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	for _, entry := range entries {
		if name, isPidFile := strings.CutSuffix(entry.Name(), pidExtension); isPidFile {
			names = append(names, name)
		}
	}
	return names, nil
}

// running are the processes that have a pid file and have not ended, whether they are in the state or not.
func (p Processes) running() ([]*Process, error) {
	names, err := p.names()
	if err != nil {
		return nil, err
	}
	var running []*Process
	for _, name := range names {
		process, err := p.get(name)
		if err != nil {
			return nil, err
		}
		if process.Running() {
			running = append(running, process)
		}
	}
	return running, nil
}

func stopAll(ctx context.Context, processes []*Process, report Reporter) error {
	errs := make([]error, len(processes))
	var stopping sync.WaitGroup
	for i, process := range processes {
		report.Wait(process.Name, "stopping")
		stopping.Go(func() {
			forced, err := process.Stop(ctx, shutdownGrace)
			switch {
			case err != nil:
				errs[i] = err
			case forced:
				report.Done(process.Name, fmt.Sprintf("killed, it did not stop in %s; its log is %s", shutdownGrace, process.Log))
			default:
				report.Done(process.Name, "stopped")
			}
		})
	}
	stopping.Wait()
	return errors.Join(errs...)
}
