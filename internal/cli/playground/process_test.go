package playground

import (
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func newHome(t *testing.T) Home {
	t.Helper()
	return homeIn(t, filepath.Join(t.TempDir(), "home"))
}

// homeIn is a home in a folder that is made.
func homeIn(t *testing.T, dir string) Home {
	t.Helper()
	home := Home{Dir: dir}
	unlock, err := home.Lock()
	if err != nil {
		t.Fatal(err)
	}
	unlock()
	return home
}

func shell(t *testing.T, name, script string) Program {
	t.Helper()
	path, err := exec.LookPath("sh")
	if err != nil {
		t.Fatal(err)
	}
	return Program{Name: name, Path: path, Args: []string{"-c", script, name}}
}

// start starts a program that is stopped when the test ends.
func start(t *testing.T, home Home, program Program) *Process {
	t.Helper()
	process, started, err := home.Processes().Start(program)
	if err != nil || !started {
		t.Fatalf("started %t, error %v", started, err)
	}
	t.Cleanup(func() {
		if _, err := process.Stop(context.Background(), time.Second); err != nil {
			t.Error(err)
		}
	})
	return process
}

// reread is the process as another run of the command sees it: not as its child.
func reread(t *testing.T, home Home, name string) *Process {
	t.Helper()
	process, err := home.Processes().get(name)
	if err != nil {
		t.Fatal(err)
	}
	return process
}

func TestProcessLives(t *testing.T) {
	t.Parallel()
	home := newHome(t)
	program := shell(t, "hub", "echo hello; exec sleep 1000")
	if reread(t, home, "hub").Running() {
		t.Error("a process that never ran is running")
	}
	process := start(t, home, program)
	other := reread(t, home, "hub")
	if !other.Running() || other.PID != process.PID {
		t.Fatalf("pid file %+v of a process that runs as %d", other, process.PID)
	}
	again, started, err := home.Processes().Start(program)
	if err != nil || started || again.PID != process.PID {
		t.Errorf("started %t again as %d, error %v; it runs as %d", started, again.PID, err, process.PID)
	}
	if other.RSS() == 0 {
		t.Error("no memory")
	}
	if info, err := os.Stat(process.Log); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("log: %v, error %v, want mode 0600", info, err)
	}
	forced, err := other.Stop(t.Context(), time.Minute)
	if err != nil || forced {
		t.Errorf("stop: forced %t, error %v", forced, err)
	}
	if err := process.WaitExit(t.Context()); err != nil || other.Running() {
		t.Errorf("still running after stop, error %v", err)
	}
}

// A process ID is used again by another process.
func TestProcessIDReused(t *testing.T) {
	t.Parallel()
	home := newHome(t)
	process := start(t, home, shell(t, "hub", "exec sleep 1000"))
	tests := map[string]struct {
		change func(*Process)
		ours   bool
	}{
		"ours":                             {change: func(*Process) {}, ours: true},
		"another command, another start":   {change: func(p *Process) { p.Command, p.StartedAt = []string{"x"}, p.StartedAt.Add(-time.Hour) }},
		"a script that became our program": {change: func(p *Process) { p.Command = []string{"wrapper"} }, ours: true},
		"ours after the clock has been set": {change: func(p *Process) {
			p.Command, p.StartedAt = []string{"sleep", "1000"},
				p.StartedAt.Add(time.Hour)
		}, ours: true},
		"a process ID that nobody has": {change: func(p *Process) { p.PID = 1 << 30 }},
	}
	if !eventually(t, func() bool { // until the shell has become sleep
		probe := reread(t, home, "hub")
		probe.Command, probe.StartedAt = []string{"sleep", "1000"}, time.Time{}
		return probe.Running()
	}) {
		t.Fatal("the shell does not become sleep")
	}
	for name, test := range tests {
		reused := reread(t, home, "hub")
		test.change(reused)
		if reused.Running() != test.ours {
			t.Errorf("%s: running %t, want %t", name, !test.ours, test.ours)
		}
	}
	stranger := reread(t, home, "hub")
	stranger.Command, stranger.StartedAt = []string{"x"}, time.Time{}
	if _, err := stranger.Stop(t.Context(), time.Second); err != nil || !process.Running() {
		t.Errorf("stopped a process that is not ours; error %v", err)
	}
}

// The processes of a home that was moved are its own; those of one that was copied are the original's.
func TestProcessOfAnotherHome(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		transfer func(from, to string) error
		ours     bool
	}{
		"moved": {os.Rename, true},
		"moved, and another made there": {func(from, to string) error {
			if err := os.Rename(from, to); err != nil {
				return err
			}
			return (&Process{PID: os.Getpid(), file: Processes{from}.pidFile("hub")}).save()
		}, true},
		"copied": {func(from, to string) error { return os.CopyFS(to, os.DirFS(from)) }, false},
		"linked": {os.Symlink, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			original := newHome(t)
			process := start(t, original, shell(t, "hub", "exec sleep 1000"))
			other := Home{Dir: original.Dir + "-2"}
			if err := test.transfer(original.Dir, other.Dir); err != nil {
				t.Fatal(err)
			}
			if got := reread(t, other, "hub").Running(); got != test.ours {
				t.Errorf("running %t, want %t", got, test.ours)
			}
			stopped, err := other.Down(t.Context(), false, &recorder{})
			if err != nil || stopped != map[bool]int{true: 1}[test.ours] {
				t.Errorf("stopped %d, error %v, want one: %t", stopped, err, test.ours)
			}
			if !test.ours {
				if !process.Running() {
					t.Error("the process of the original was stopped")
				}
				return
			}
			if err := process.WaitExit(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
}

func eventually(t *testing.T, condition func() bool) bool {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	ticker := time.NewTicker(5 * time.Millisecond)
	defer ticker.Stop()
	for !condition() {
		select {
		case <-ctx.Done():
			return false
		case <-ticker.C:
		}
	}
	return true
}

func TestProcessIsKilled(t *testing.T) {
	t.Parallel()
	home := newHome(t)
	start(t, home, shell(t, "hub", `trap "" TERM; echo ignoring; while :; do sleep 0.05; done`))
	process := reread(t, home, "hub")
	if !eventually(t, func() bool { return strings.Contains(process.tail(), "ignoring") }) {
		t.Fatal("the process does not start")
	}
	forced, err := process.Stop(t.Context(), 10*time.Millisecond)
	if err != nil || !forced || process.Running() {
		t.Errorf("stop: forced %t, error %v, running %t", forced, err, process.Running())
	}
}

// A full disk, on which no pid file can be written, does not keep a process from being stopped.
func TestStopWithoutPidFile(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		script         string
		interrupted    bool
		forced, goesOn bool
	}{
		"a process that stops":   {script: "echo ready; exec sleep 1000"},
		"one that does not":      {script: `trap "" TERM; echo ready; while :; do sleep 0.05; done`, forced: true},
		"an interrupted command": {script: `trap "" TERM; echo ready; while :; do sleep 0.05; done`, interrupted: true, goesOn: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			home := newHome(t)
			start(t, home, shell(t, "hub", test.script))
			process := reread(t, home, "hub")
			if !eventually(t, func() bool { return strings.Contains(process.tail(), "ready") }) {
				t.Fatal("the process does not start")
			}
			process.file = filepath.Join(process.Log, "hub.json") // below a file
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			if test.interrupted {
				cancel()
			}
			grace := time.Minute
			if test.forced {
				grace = 10 * time.Millisecond
			}
			forced, err := process.Stop(ctx, grace)
			if forced != test.forced || process.Running() != test.goesOn || process.StoppingSince == nil {
				t.Errorf("forced %t, running %t, stopping since %v", forced, process.Running(), process.StoppingSince)
			}
			var unsaved *fs.PathError
			if (err != nil) != test.goesOn || errors.As(err, &unsaved) != test.goesOn {
				t.Errorf("error %v, want that of the pid file: %t", err, test.goesOn)
			}
		})
	}
}

func TestProcessDied(t *testing.T) {
	t.Parallel()
	home := newHome(t)
	process := start(t, home, shell(t, "hub", `i=0; while [ $i -lt 30 ]; do i=$((i+1)); echo line $i; done; exit 3`))
	ctx, release := cancelOnExit(t.Context(), process)
	defer release()
	<-ctx.Done()
	message := context.Cause(ctx).Error()
	for p, found := range map[*Process]bool{process: false, reread(t, home, "hub"): true} {
		var exit *exitError
		if !errors.As(p.ExitError(), &exit) || exit.ranAlready != found {
			t.Errorf("death %+v, want that of a process that was found: %t", exit, found)
		}
	}
	for _, want := range []string{"hub does not run", "exit status 3", "line 30", process.Log} {
		if !strings.Contains(message, want) {
			t.Errorf("%q is missing in: %s", want, message)
		}
	}
	if strings.Contains(message, "line 1\n") {
		t.Errorf("the whole log instead of its end: %s", message)
	}
}

// The log of the run before is kept: it may say why "up" is run again.
func TestLogOfRunBefore(t *testing.T) {
	t.Parallel()
	home := newHome(t)
	for _, word := range []string{"one", "two"} {
		process := start(t, home, shell(t, "hub", "echo "+word))
		if err := process.WaitExit(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	for file, want := range map[string]string{"hub.log": "two\n", "hub.log.previous": "one\n"} {
		content, err := os.ReadFile(filepath.Join(home.Processes().logDir(), file))
		if err != nil || string(content) != want {
			t.Errorf("%s holds %q, error %v, want %q", file, content, err, want)
		}
	}
}

func TestBrokenPidFile(t *testing.T) {
	t.Parallel()
	home := newHome(t)
	if err := WriteSecretFile(home.Processes().pidFile("hub"), []byte("{")); err != nil {
		t.Fatal(err)
	}
	if _, err := home.Processes().get("hub"); err == nil || !strings.Contains(err.Error(), home.Processes().pidFile("hub")) {
		t.Errorf("error %v does not name the file", err)
	}
}

func TestAttach(t *testing.T) {
	t.Parallel()
	var log strings.Builder
	ctx, cancel := context.WithCancel(t.Context())
	program := shell(t, "agent", `trap "echo bye; exit 0" TERM; echo hello; while :; do sleep 0.05; done`)
	process, err := newHome(t).Processes().attach(ctx, program, &watchedLog{w: &log, on: "hello", then: cancel})
	if err != nil {
		t.Fatal(err)
	}
	_ = process.Result()
	if log.String() != "hello\nbye\n" {
		t.Errorf("log %q: the process was not asked to stop", log.String())
	}
}

// watchedLog calls then once it has seen a word. os/exec writes from one goroutine.
type watchedLog struct {
	w    *strings.Builder
	on   string
	then func()
}

func (l *watchedLog) Write(p []byte) (int, error) {
	n, err := l.w.Write(p)
	if strings.Contains(l.w.String(), l.on) {
		l.then()
	}
	return n, err
}

// The pid file is for people and programs, too: its names are stable.
func TestPidFile(t *testing.T) {
	t.Parallel()
	home := newHome(t)
	program := shell(t, "hub", "exec sleep 1000")
	program.Endpoint = "https://127.0.0.1:1"
	process := start(t, home, program)
	content, err := os.ReadFile(home.Processes().pidFile("hub"))
	if err != nil {
		t.Fatal(err)
	}
	var file map[string]any
	if err := json.Unmarshal(content, &file); err != nil {
		t.Fatal(err)
	}
	if file["pid"] != float64(process.PID) || file["endpoint"] != program.Endpoint || file["log"] != process.Log || file["name"] != "hub" {
		t.Errorf("pid file %s", content)
	}
}
