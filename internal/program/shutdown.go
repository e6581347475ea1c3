package program

import (
	"context"
	"os"
	"os/signal"
	"syscall"
)

var signals = make(chan os.Signal, 1)

func init() { signal.Notify(signals, syscall.SIGTERM, os.Interrupt) }

// Context ends at the first SIGTERM or interrupt since the program started. The second one kills the program. It is to be
// called once.
func Context() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		<-signals
		signal.Stop(signals)
		cancel()
	}()
	return ctx
}
