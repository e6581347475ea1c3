package env

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// inRepository has Binary find a script among the built programs.
func inRepository(t *testing.T, name, script string) {
	t.Helper()
	dir := t.TempDir()
	for path, content := range map[string]string{"go.mod": "module example.com\n", filepath.Join("bin", name): "#!/bin/sh\n" + script} {
		file := filepath.Join(dir, path)
		if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(content), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	t.Chdir(dir)
}

// The CPU time of a process grows while it runs, stays when it has ended, and goes on when it is started again; it belongs to the test that
// stops it, or to none.
func TestCPUTime(t *testing.T) { //nolint:paralleltest // it changes the working directory
	inRepository(t, "busy", "echo one; echo two; while :; do :; done\n")
	p := NewProcess(filepath.Join(t.TempDir(), "busy.log"), "busy")
	for range 2 {
		before := p.CPUTime()
		if err := p.Start(); err != nil {
			t.Fatal(err)
		}
		Eventually(t, func(context.Context) error {
			if now := p.CPUTime(); now < before+2*clockTick {
				return fmt.Errorf("its CPU time was %s and is %s", before, now)
			}
			return nil
		})
		running := p.CPUTime()
		p.Kill()
		if ended := p.CPUTime(); ended < running {
			t.Errorf("%s when it has ended, and %s before", ended, running)
		}
	}
	took := p.CPUTime()
	var shared strings.Builder
	if printShared(&shared); !strings.Contains(shared.String(), fmt.Sprintf("/busy.log): %.2f s\n", took.Seconds())) {
		t.Errorf("what is not of a test: %s", &shared)
	}
	t.Run("of a test", func(t *testing.T) {
		p.StopWith(t)
		a := accountOf(t)
		a.addCommand("capstan", time.Second)
		want := fmt.Sprintf("CPU time of its own processes: %.2f s (busy %.2f s, capstan 1.00 s)", (took + time.Second).Seconds(), took.Seconds())
		if line := a.String(); line != want {
			t.Errorf("the test has %q, want %q", line, want)
		}
	})
	shared.Reset()
	if printShared(&shared); strings.Contains(shared.String(), "busy.log") {
		t.Errorf("what is of a test: %s", &shared)
	}
}

// What a process has written last is shown at the deadline of the test binary, as long as it runs.
func TestDeadline(t *testing.T) { //nolint:paralleltest // it changes the working directory
	inRepository(t, "waits", "i=0; while [ $i -lt 40 ]; do i=$((i+1)); echo line $i; done; exec sleep 1000\n")
	p := NewProcess(filepath.Join(t.TempDir(), "waits.log"), "waits")
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
	Eventually(t, func(context.Context) error {
		if !strings.Contains(p.Log(), "line 40\n") {
			return errors.New(p.tail())
		}
		return nil
	})
	var shown strings.Builder
	printAtDeadline(&shown)
	if !strings.Contains(shown.String(), "waits wrote last:\nline 11\n") || !strings.Contains(shown.String(), "line 40\n") {
		t.Errorf("while it runs: %s", &shown)
	}
	p.Kill()
	shown.Reset()
	printAtDeadline(&shown)
	if strings.Contains(shown.String(), "waits") {
		t.Errorf("when it has ended: %s", &shown)
	}
}
