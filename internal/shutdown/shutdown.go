// Package shutdown tells a program that it is to end. It listens from the moment it is initialised, which is long before
// main: the initialisation of the Kubernetes libraries takes longer than some supervisors wait between a start and a
// change of mind, and a signal that comes in between kills the program, or, when it is the first process of a container,
// is lost. For that the package imports nothing but the standard library.
package shutdown

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
