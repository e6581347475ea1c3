package install

import (
	"testing"
	"time"
)

// The program for charts ends before the command does, and always has some time.
func TestChartTimeout(t *testing.T) {
	t.Parallel()
	for left, want := range map[time.Duration]time.Duration{
		5 * time.Minute: 280 * time.Second, 5*time.Minute - time.Millisecond: 280 * time.Second, 30 * time.Second: 15 * time.Second,
		time.Second: time.Second, time.Millisecond: time.Second,
	} {
		if got := chartTimeout(left); got != want {
			t.Errorf("of %s, the program has %s, want %s", left, got, want)
		}
	}
}
