package retry

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
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
