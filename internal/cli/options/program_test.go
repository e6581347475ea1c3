package options

import (
	"os"
	"os/signal"
	"slices"
	"syscall"
	"testing"
)

// A program that nohup has started goes on when its terminal is closed.
func TestTerminations(t *testing.T) { //nolint:paralleltest // what is ignored is so in the whole process
	if got := Terminations(); !slices.Equal(got, []os.Signal{syscall.SIGTERM, syscall.SIGHUP}) {
		t.Errorf("%v", got)
	}
	signal.Ignore(syscall.SIGHUP)
	t.Cleanup(func() { // Reset would leave it ignored
		signals := make(chan os.Signal, 1)
		signal.Notify(signals, syscall.SIGHUP)
		signal.Stop(signals)
	})
	if got := Terminations(); !slices.Equal(got, []os.Signal{syscall.SIGTERM}) {
		t.Errorf("with an ignored hangup: %v", got)
	}
}
