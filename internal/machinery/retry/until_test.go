package retry

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

// Attempts that end at once come ever less often.
func TestUntil(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		start, attempts := time.Now(), 0
		err := Until(t.Context(), func(context.Context) (bool, error) {
			attempts++
			return time.Since(start) > time.Hour, nil
		})
		if least, most := int(time.Hour/(longestPause+longestPause/5)), int(time.Hour/longestPause+time.Hour/resetPause*10); err != nil ||
			attempts < least || attempts > most {
			t.Errorf("%d attempts in an hour, want %d to %d: %v", attempts, least, most, err)
		}
	})
}

func TestUntilItFails(t *testing.T) {
	t.Parallel()
	failed := errors.New("refused")
	if err := Until(t.Context(), func(context.Context) (bool, error) { return false, failed }); !errors.Is(err, failed) {
		t.Errorf("got %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	err := Until(ctx, func(context.Context) (bool, error) {
		cancel()
		return false, nil
	})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("after the end of the context: %v", err)
	}
}
