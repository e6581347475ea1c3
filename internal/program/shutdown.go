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
	ctx, cancel := context.WithCancelCause(context.Background())
	go func() {
		first := <-signals
		signal.Stop(signals)
		cancel(signalError{first})
	}()
	return ctx
}

// signalError is why a signal has ended a context, as signal.NotifyContext has it.
type signalError struct{ os.Signal }

func (e signalError) Error() string { return e.String() + " signal received" }

// Is makes it one of the errors of contexts that are cancelled.
func (signalError) Is(target error) bool { return target == context.Canceled }

// UntilHangup is ctx until the terminal of the program is closed. Hangups that are ignored, as by nohup, stay so. A terminal that is closed
// may send several: they are no second signals.
func UntilHangup(ctx context.Context) context.Context {
	if signal.Ignored(syscall.SIGHUP) {
		return ctx
	}
	ctx, _ = signal.NotifyContext(ctx, syscall.SIGHUP)
	return ctx
}
