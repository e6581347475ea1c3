package retry

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/capstan-io/capstan/internal/machinery/repair"
)

var conflict = apierrors.NewConflict(schema.GroupResource{Resource: "things"}, "a", errors.New("it has changed"))

// SD-03: a conflict is no error and no log line, until there are many in a row; what else has failed stays one.
func TestConflicts(t *testing.T) {
	t.Parallel()
	var failure error
	r := Conflicts(reconcile.Func(func(context.Context, reconcile.Request) (reconcile.Result, error) {
		return reconcile.Result{RequeueAfter: time.Hour}, failure
	}))
	expect := func(what string, fails bool, least, most time.Duration) {
		t.Helper()
		result, err := r.Reconcile(t.Context(), reconcile.Request{})
		if (err != nil) != fails || !fails && (result.RequeueAfter < least || result.RequeueAfter > most) {
			t.Errorf("%s: %+v, %v", what, result, err)
		}
	}
	for range 2 {
		failure = fmt.Errorf("patch it: %w", conflict)
		for range manyConflicts {
			expect("a conflict", false, firstAfterConflict, time.Second)
		}
		expect("one too many", true, 0, 0)
		failure = nil
		expect("none", false, time.Hour, time.Hour)
	}
	failure = errors.New("no luck")
	expect("something else", true, 0, 0)
}

// CM-20, KL-32: what others keep undoing is written again when that is due, however many events there are until then, but what else is due
// is not put off. A failure besides is one.
func TestDisputes(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		// after is when the dispute ends.
		after time.Duration
		due   time.Duration
		other error
		want  time.Duration
		fails bool
	}{
		"a dispute":                 {after: 12 * time.Second, want: 12 * time.Second},
		"more is due later":         {after: 12 * time.Second, due: time.Minute, want: 12 * time.Second},
		"more is due before":        {after: 12 * time.Second, due: time.Second, want: time.Second},
		"one that ends":             {want: time.Millisecond},
		"a dispute and a failure":   {after: 12 * time.Second, other: errors.New("refused"), fails: true},
		"a dispute and a conflict":  {after: 12 * time.Second, other: conflict, fails: true},
		"one that has ended before": {after: -time.Second, want: time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				disputed := &repair.BackoffError{Until: time.Now().Add(test.after)}
				r := Conflicts(reconcile.Func(func(context.Context, reconcile.Request) (reconcile.Result, error) {
					return reconcile.Result{RequeueAfter: test.due}, errors.Join(fmt.Errorf("apply: %w", disputed), test.other)
				}))
				for range 2 * manyConflicts {
					result, err := r.Reconcile(t.Context(), reconcile.Request{})
					if (err != nil) != test.fails || result != (reconcile.Result{RequeueAfter: test.want}) {
						t.Errorf("%+v, %v", result, err)
					}
				}
			})
		})
	}
}

func TestIsConflict(t *testing.T) {
	t.Parallel()
	other := errors.New("no luck")
	for name, test := range map[string]struct {
		err  error
		want bool
	}{
		"none":                     {nil, false},
		"a conflict":               {conflict, true},
		"one that is wrapped":      {fmt.Errorf("patch it: %w", conflict), true},
		"two":                      {fmt.Errorf("write: %w", errors.Join(conflict, fmt.Errorf("patch it: %w", conflict))), true},
		"another":                  {other, false},
		"joined with another":      {errors.Join(conflict, other), false},
		"another, which is nested": {fmt.Errorf("write: %w", errors.Join(conflict, errors.Join(other))), false},
	} {
		if got := IsConflict(test.err); got != test.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}
