package predecessor

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	clocktesting "k8s.io/utils/clock/testing"
)

// WK-03: only a hub that says so has lost a cluster, and it is checked once for all works.
func TestLeft(t *testing.T) {
	t.Parallel()
	calls, known, failure := 0, true, error(nil)
	clock := clocktesting.NewFakePassiveClock(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC))
	c := &Clusters{Clock: clock, Exists: func(context.Context, string) (bool, error) { calls++; return known, failure }}
	expect := func(what string, left bool, times int) {
		t.Helper()
		for range 3 {
			got, err := c.Left(t.Context(), "old")
			if got != left || (err != nil) != (failure != nil) || err != nil && !strings.Contains(err.Error(), "cluster old") {
				t.Errorf("%s: left %t (%v)", what, got, err)
			}
		}
		if calls != times {
			t.Errorf("%s: asked %d times, want %d", what, calls, times)
		}
		clock.SetTime(clock.Now().Add(PollInterval))
	}
	expect("still there", false, 1)
	known, failure = false, errors.New("who are you?")
	expect("no answer", false, 2)
	failure = nil
	expect("gone", true, 3)
	known = true
	expect("there again", false, 4)
}

// Works that wait for the answer about one cluster do not wait for that about another, nor longer than they live.
func TestAsksAboutEachByItself(t *testing.T) {
	t.Parallel()
	calls, answer := make(chan struct{}), make(chan struct{})
	var times atomic.Int32
	c := &Clusters{Clock: clocktesting.NewFakePassiveClock(time.Now()), Exists: func(_ context.Context, cluster string) (bool, error) {
		if cluster == "slow" {
			if times.Add(1) == 1 {
				close(calls)
			}
			<-answer
		}
		return false, nil
	}}
	var slow sync.WaitGroup
	slow.Go(func() {
		if left, err := c.Left(t.Context(), "slow"); !left || err != nil {
			t.Errorf("left %t (%v)", left, err)
		}
	})
	<-calls
	if left, err := c.Left(t.Context(), "other"); !left || err != nil {
		t.Errorf("another cluster: left %t (%v)", left, err)
	}
	ended, end := context.WithCancel(t.Context())
	end()
	if left, err := c.Left(ended, "slow"); left || !errors.Is(err, context.Canceled) {
		t.Errorf("after its end: left %t (%v)", left, err)
	}
	slow.Go(func() {
		if left, err := c.Left(t.Context(), "slow"); !left || err != nil {
			t.Errorf("left %t (%v)", left, err)
		}
	})
	close(answer)
	slow.Wait()
	if n := times.Load(); n != 1 {
		t.Errorf("asked %d times", n)
	}
}

// WK-03: the error is for a condition: of a connection that fails, it says the same every time, and contains no addresses.
func TestErrorsLast(t *testing.T) {
	t.Parallel()
	port := 40000
	clock := clocktesting.NewFakePassiveClock(time.Now())
	failure := func() error {
		port++
		return fmt.Errorf("get it: %w", &url.Error{Op: "Get", URL: "https://hub.internal:6443/apis",
			Err: fmt.Errorf("read tcp 10.0.0.1:%d: reset", port)})
	}
	c := &Clusters{Clock: clock, Exists: func(context.Context, string) (bool, error) { return false, failure() }}
	_, first := c.Left(t.Context(), "old")
	clock.SetTime(clock.Now().Add(PollInterval))
	_, second := c.Left(t.Context(), "old")
	if first == nil || second == nil || first.Error() != second.Error() || strings.Contains(first.Error(), "hub.internal") {
		t.Errorf("%v, then %v", first, second)
	}
	failure = func() error { return errors.New("there is no bootstrap kubeconfig") }
	clock.SetTime(clock.Now().Add(PollInterval))
	if _, err := c.Left(t.Context(), "old"); err == nil || !strings.Contains(err.Error(), "there is no bootstrap kubeconfig") {
		t.Errorf("what can be mended is not told: %v", err)
	}
}
