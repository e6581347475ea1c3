package terminal

import (
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	clocktesting "k8s.io/utils/clock/testing"
)

// screen collects what is written and lets a test wait for a word.
type screen struct {
	mu      sync.Mutex
	changed *sync.Cond
	text    strings.Builder
}

func newScreen() *screen {
	s := &screen{}
	s.changed = sync.NewCond(&s.mu)
	return s
}

func (s *screen) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	defer s.changed.Broadcast()
	return s.text.Write(p)
}

func (s *screen) waitFor(word string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for !strings.Contains(s.text.String(), word) {
		s.changed.Wait()
	}
}

func (s *screen) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.String()
}

// Where nobody watches there are lines for what has happened, and nothing else.
func TestProgressPlain(t *testing.T) {
	t.Parallel()
	out, clock := newScreen(), clocktesting.NewFakeClock(time.Unix(0, 0))
	progress := newProgress(out, clock, false)
	progress.Wait("hub", "starting")
	clock.Step(1234 * time.Millisecond)
	progress.Done("hub", "ready")
	progress.Wait("cluster1", "joining")
	clock.Step(time.Second)
	progress.Warn("cluster1", "no certificate")
	progress.Report("cluster1", "it is not accepted yet")
	progress.Report("cluster1", "")
	progress.Close()
	if got, want := out.String(), "✓ hub: ready (1.2s)\n! cluster1: no certificate (2.2s)\n· cluster1: it is not accepted yet (2.2s)\n"; got != want {
		t.Errorf("wrote %q, want %q", got, want)
	}
}

func TestProgressLive(t *testing.T) {
	t.Parallel()
	out, clock := newScreen(), clocktesting.NewFakeClock(time.Unix(0, 0))
	progress := newProgress(out, clock, true)
	progress.Wait("hub", "starting")
	progress.Wait("cluster1", "starting")
	progress.Wait("cluster1", "joining")
	clock.Step(frameInterval)
	out.waitFor(frames[1] + " 0.1s  hub: starting · cluster1: joining")
	progress.Done("hub", "ready")
	progress.Close()
	progress.Close()
	lines := strings.Split(out.String(), clearLine)
	last := lines[len(lines)-3:]
	if last[0] != "✓ hub: ready (100ms)\n" || last[1] != frames[1]+" 0.1s  cluster1: joining" || last[2] != "" {
		t.Errorf("ended with %q", last)
	}
}

// What changes all the time is asked for whenever the line is drawn, and never where nobody watches.
func TestFollow(t *testing.T) {
	t.Parallel()
	for _, live := range []bool{true, false} {
		out, clock := newScreen(), clocktesting.NewFakeClock(time.Unix(0, 0))
		progress := newProgress(out, clock, live)
		var read atomic.Int64
		progress.Follow("backup", func() string { return fmt.Sprintf("%d of 3 MB", read.Add(1)) })
		if live {
			out.waitFor("backup: 1 of 3 MB")
			clock.Step(frameInterval)
			out.waitFor("backup: 2 of 3 MB")
		}
		progress.Done("backup", "read")
		progress.Close()
		if !strings.Contains(out.String(), "✓ backup: read (") || !live && read.Load() > 0 {
			t.Errorf("live %t: wrote %q, having asked %d times", live, out, read.Load())
		}
	}
}

// A line that is longer than the terminal could not be taken away again.
func TestProgressLongLine(t *testing.T) {
	t.Parallel()
	out := newScreen()
	progress := newProgress(out, clocktesting.NewFakeClock(time.Unix(0, 0)), true)
	defer progress.Close()
	progress.Wait("hub", strings.Repeat("ü", 200))
	line := []rune(out.String()[strings.LastIndex(out.String(), clearLine)+len(clearLine):])
	if len(line) >= fallbackWidth || line[len(line)-1] != '…' {
		t.Errorf("line of %d: %s", len(line), string(line))
	}
}
