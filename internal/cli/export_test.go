package cli

import (
	"context"
	"io"
	"time"

	"k8s.io/utils/clock"

	"github.com/capstan-io/capstan/internal/cli/options"
)

// MainAt is Main by a clock of the test's own. The time of --timeout is over when the channel is closed, and not before.
func MainAt(ctx context.Context, clk clock.WithTickerAndDelayedExecution, over <-chan struct{}, args []string, in io.Reader,
	out, errOut io.Writer) int {
	a := options.New(in, out, errOut)
	a.Clock = clk
	if over != nil {
		a.WithTimeout = withTimeout(over)
	}
	return run(ctx, a, args)
}

// withTimeout makes contexts whose deadline has come when the channel is closed.
func withTimeout(over <-chan struct{}) options.TimeoutFunc {
	return func(parent context.Context, _ time.Duration, cause error) (context.Context, context.CancelFunc) {
		ctx, cancel := context.WithCancelCause(parent)
		limited := &limitedContext{Context: ctx, done: make(chan struct{})}
		go func() {
			defer close(limited.done)
			select {
			case <-over:
				limited.expired = true
				cancel(cause)
			case <-ctx.Done():
			}
		}()
		return limited, func() { cancel(context.Canceled) }
	}
}

// limitedContext ends as one with a deadline does.
type limitedContext struct {
	context.Context

	done    chan struct{}
	expired bool
}

// Done is closed at the deadline, or when the context is canceled.
func (c *limitedContext) Done() <-chan struct{} { return c.done }

// Err tells the deadline from a cancellation.
func (c *limitedContext) Err() error {
	select {
	case <-c.done:
	default:
		return nil
	}
	if c.expired {
		return context.DeadlineExceeded
	}
	return c.Context.Err()
}
