package frame

import (
	"errors"
	"fmt"
	"testing"
	"time"

	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/capstan-io/capstan/internal/machinery/repair"
)

func TestSummary(t *testing.T) {
	t.Parallel()
	for want, left := range map[string][]string{"": nil, "a, b": {"a", "b"}, "a, b, c, d, e and 2 more": {"a", "b", "c", "d", "e", "f", "g"}} {
		if got := Summary(left); got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
}

// CM-20, KL-32: what others keep deleting is made again when that is due, however many events there are until then, but what else is due
// is not put off. A failure besides is one.
func TestResultOfDispute(t *testing.T) {
	t.Parallel()
	now := time.Unix(1000, 0)
	failure := errors.New("refused")
	disputed := &repair.BackoffError{Until: now.Add(12 * time.Second)}
	for name, test := range map[string]struct {
		due   time.Duration
		err   error
		want  time.Duration
		fails bool
	}{
		"nothing is due":      {},
		"something is due":    {due: time.Minute, want: time.Minute},
		"it fails":            {err: failure, fails: true},
		"a dispute":           {due: time.Minute, err: disputed, want: 12 * time.Second},
		"more is due before":  {due: time.Second, err: disputed, want: time.Second},
		"a dispute within":    {err: fmt.Errorf("write: %w", fmt.Errorf("apply: %w", disputed)), want: 12 * time.Second},
		"a dispute and more":  {err: errors.Join(fmt.Errorf("apply: %w", disputed), failure), fails: true},
		"deep within":         {err: fmt.Errorf("a: %w, b: %w", errors.Join(disputed, failure), disputed), fails: true},
		"two disputes":        {err: errors.Join(&repair.BackoffError{Until: now.Add(time.Minute)}, disputed), want: 12 * time.Second},
		"a dispute that ends": {err: &repair.BackoffError{Until: now}, want: time.Millisecond},
	} {
		result, err := resultOf(t.Context(), test.due, test.err, now)
		if (err != nil) != test.fails || result != (ctrl.Result{RequeueAfter: test.want}) {
			t.Errorf("%s: %v, %v", name, result, err)
		}
	}
}
