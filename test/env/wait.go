package env

import (
	"context"
	"iter"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
)

// WaitTimeout is how long a test waits for one thing: far longer than anything takes, for a machine that is busy with other tests. What
// takes longer than a moment by itself, such as the start of a server, has a longer time, with the reason.
const WaitTimeout = time.Minute

// Poll asks for a condition until it holds, fails, or the context ends: often at first, and four times a second when it takes longer. What
// many tests ask for at a time takes the CPU that others need.
func Poll(ctx context.Context, condition wait.ConditionWithContextFunc) error {
	const steps = 20 // more than it takes to come from the first interval to the last
	interval := wait.Backoff{Duration: 10 * time.Millisecond, Factor: 1.2, Cap: 250 * time.Millisecond, Steps: steps}
	return interval.DelayFunc().Until(ctx, true, false, condition)
}

// Eventually waits until check returns no error, and fails the test with the last one if it never does.
func Eventually(t testing.TB, check func(ctx context.Context) error) {
	t.Helper()
	EventuallyAfter(t, 0, check)
}

// Receive returns what comes by a channel, and fails the test if nothing does.
func Receive[T any](t testing.TB, from <-chan T) (received T) {
	t.Helper()
	select {
	case received = <-from:
	case <-time.After(WaitTimeout):
		t.Fatalf("still nothing after %s", WaitTimeout)
	}
	return received
}

// EventuallyAfter is Eventually for what takes some time by itself, which is added to WaitTimeout: a program does it only when that has
// passed, or has much to do.
func EventuallyAfter(t testing.TB, delay time.Duration, check func(ctx context.Context) error) {
	t.Helper()
	var last error
	limit := delay + WaitTimeout
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	err := Poll(ctx, func(ctx context.Context) (bool, error) {
		err := check(ctx)
		if ctx.Err() == nil || last == nil {
			last = err // not that it was cut off, which says nothing
		}
		return err == nil, nil
	})
	if err != nil {
		t.Fatalf("still after %s: %v", limit, last)
	}
}

// Events are those of a watch, until it ends. It fails the test if the next one does not come.
func Events(t testing.TB, w watch.Interface) iter.Seq[watch.Event] {
	t.Helper()
	return func(yield func(watch.Event) bool) {
		for {
			event, open := NextEvent(t, w)
			if !open || !yield(event) {
				return
			}
		}
	}
}

// NextEvent is the next event of a watch, and whether there is one: a watch may end. It fails the test if nothing comes.
func NextEvent(t testing.TB, w watch.Interface) (event watch.Event, open bool) {
	t.Helper()
	select {
	case event, open = <-w.ResultChan():
	case <-time.After(WaitTimeout):
		t.Fatalf("the watch goes on, and nothing has come for %s", WaitTimeout)
	}
	return event, open
}
