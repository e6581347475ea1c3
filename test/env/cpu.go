package env

import (
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// clockTick is the unit of CPU time in /proc: USER_HZ of Linux, which is 100 for every program.
const clockTick = time.Second / 100

// cpuOf is the CPU time that a running process has taken so far, without that of its children.
func cpuOf(pid int) (time.Duration, error) {
	content, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, err
	}
	// After the name of the program, which may have spaces in it, the user time and the system time are the 12th and the 13th field.
	text := string(content)
	fields := strings.Fields(text[strings.LastIndexByte(text, ')')+1:])
	if len(fields) < 13 {
		return 0, fmt.Errorf("/proc/%d/stat is %q", pid, text)
	}
	var total time.Duration
	for _, field := range fields[11:13] {
		ticks, err := strconv.ParseInt(field, 10, 64)
		if err != nil {
			return 0, err
		}
		total += time.Duration(ticks) * clockTick
	}
	return total, nil
}

// CPUTime is the CPU time that the process has taken so far, in all its runs.
func (p *Process) CPUTime() time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.running {
		return p.cpu
	}
	now, err := cpuOf(p.cmd.Process.Pid)
	if err != nil { // it has just ended
		return p.cpu
	}
	return p.cpu + now
}

// account is what a test has started: processes, and commands that have ended.
type account struct {
	mu        sync.Mutex
	processes []*Process
	commands  map[string]time.Duration
}

// accounts are those of the tests that run.
var accounts sync.Map

// accountOf is the account of a test. With -v it is logged at the end of the test, when what was started before has been stopped.
func accountOf(t testing.TB) *account {
	found, known := accounts.LoadOrStore(t, &account{commands: map[string]time.Duration{}})
	a, _ := found.(*account)
	if !known {
		t.Cleanup(func() {
			accounts.Delete(t)
			if testing.Verbose() {
				t.Log(a)
			}
		})
	}
	return a
}

func (a *account) addProcess(p *Process) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.processes = append(a.processes, p)
}

func (a *account) addCommand(name string, took time.Duration) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.commands[name] += took
}

// String is the CPU time in one line: all of it, and that of each program.
func (a *account) String() string {
	a.mu.Lock()
	defer a.mu.Unlock()
	took := maps.Clone(a.commands)
	for _, p := range a.processes {
		took[p.program] += p.CPUTime()
	}
	var total time.Duration
	var parts []string
	for _, program := range slices.Sorted(maps.Keys(took)) {
		total += took[program]
		parts = append(parts, fmt.Sprintf("%s %.2f s", program, took[program].Seconds()))
	}
	return fmt.Sprintf("CPU time of its own processes: %.2f s (%s)", total.Seconds(), strings.Join(parts, ", "))
}

// started are all processes that were ever started.
var started struct {
	sync.Mutex
	processes []*Process
}

func noteStarted(p *Process) {
	started.Lock()
	defer started.Unlock()
	if !slices.Contains(started.processes, p) {
		started.processes = append(started.processes, p)
	}
}

// printShared prints a line for each process that was not stopped with a test, because others use it, too.
func printShared(w io.Writer) {
	started.Lock()
	defer started.Unlock()
	for _, p := range started.processes {
		if p.isShared() {
			log := filepath.Join(filepath.Base(filepath.Dir(p.logFile)), filepath.Base(p.logFile))
			fmt.Fprintf(w, "CPU time of %s, which tests share (%s): %.2f s\n", p.program, log, p.CPUTime().Seconds())
		}
	}
}

func (p *Process) isShared() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return !p.ofTest
}
