package options

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"
)

// Limited returns a context that ends when --timeout is over.
func (g *Global) Limited(ctx context.Context) (context.Context, context.CancelFunc) {
	return g.LimitedTo(ctx, time.Duration(g.timeout)*time.Second)
}

// LimitedTo returns a context that ends after another time than --timeout, with the same error.
func (g *Global) LimitedTo(ctx context.Context, limit time.Duration) (context.Context, context.CancelFunc) {
	return g.WithTimeout(ctx, limit, timeoutError{limit})
}

// TimeoutOr is --timeout if it is given, or else another time, for commands with a default of their own.
func (g *Global) TimeoutOr(command *cobra.Command, otherwise time.Duration) time.Duration {
	if command.Flags().Changed("timeout") {
		return time.Duration(g.timeout) * time.Second
	}
	return otherwise
}

// TimeoutFunc is context.WithTimeoutCause, or that of a test.
type TimeoutFunc func(ctx context.Context, limit time.Duration, cause error) (context.Context, context.CancelFunc)

// timeoutError is context.DeadlineExceeded in words for a person.
type timeoutError struct{ limit time.Duration }

func (e timeoutError) Error() string        { return fmt.Sprintf("not done after %s (--timeout)", e.limit) }
func (e timeoutError) Is(target error) bool { return target == context.DeadlineExceeded }
