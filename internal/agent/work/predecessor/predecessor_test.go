package predecessor

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	clocktesting "k8s.io/utils/clock/testing"
)

// WK-03: only a hub that says so has lost a cluster, and it is asked once for all works.
func TestLeft(t *testing.T) {
	t.Parallel()
	asked, known, failure := 0, true, error(nil)
	clock := clocktesting.NewFakePassiveClock(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC))
	c := &Clusters{Clock: clock, Known: func(context.Context, string) (bool, error) { asked++; return known, failure }}
	expect := func(what string, left bool, times int) {
		t.Helper()
		for range 3 {
			got, err := c.Left(t.Context(), "old")
			if got != left || (err != nil) != (failure != nil) || err != nil && !strings.Contains(err.Error(), "cluster old") {
				t.Errorf("%s: left %t (%v)", what, got, err)
			}
		}
		if asked != times {
			t.Errorf("%s: asked %d times, want %d", what, asked, times)
		}
		clock.SetTime(clock.Now().Add(Recheck))
	}
	expect("still there", false, 1)
	known, failure = false, errors.New("who are you?")
	expect("no answer", false, 2)
	failure = nil
	expect("gone", true, 3)
	known = true
	expect("there again", false, 4)
}
