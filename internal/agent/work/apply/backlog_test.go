package apply

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"syscall"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	ctrl "sigs.k8s.io/controller-runtime"
)

// A hub that does not answer is tried by one work, and all are requeued when it accepts the write of one.
func TestBacklog(t *testing.T) {
	t.Parallel()
	var requeued []string
	b := backlog{works: map[string]bool{}, requeue: func(work string, after time.Duration) {
		if after > 0 {
			work += " after " + after.String()
		}
		requeued = append(requeued, work)
	}}
	expect := func(what string, want ...string) {
		t.Helper()
		slices.Sort(requeued)
		if !slices.Equal(requeued, want) {
			t.Errorf("%s: requeued are %v, want %v", what, requeued, want)
		}
		requeued = nil
	}
	silent := func() error { return errors.Join(fmt.Errorf("report: %w", b.observe(syscall.ECONNREFUSED)), nil) }
	resultOf := func(work string, err error) ctrl.Result {
		t.Helper()
		result, err := b.resultOf(t.Context(), work, ctrl.Result{}, err)
		if err != nil {
			t.Errorf("%s is tried again as if it was to blame: %v", work, err)
		}
		return result
	}
	for range 2 {
		if got := resultOf("probe", silent()); got != (ctrl.Result{RequeueAfter: probeInterval}) {
			t.Errorf("the only one: %+v", got)
		}
	}
	for _, work := range []string{"a", "b"} {
		if got := resultOf(work, silent()); got != (ctrl.Result{RequeueAfter: fallback}) {
			t.Errorf("%s: %+v", work, got)
		}
	}
	expect("no write was accepted")

	// A proxy without a hub behind it, and a hub that is about to start, are no better. The next try is another's: a hub may
	// have nothing but such answers to one work.
	for _, code := range []int{http.StatusTooManyRequests, http.StatusInternalServerError, http.StatusBadGateway,
		http.StatusServiceUnavailable} {
		before := b.probe
		overloaded := b.observe(apierrors.NewGenericServerResponse(code, "put", schema.GroupResource{}, before, "", 0, true))
		if got := resultOf(before, overloaded); got != (ctrl.Result{RequeueAfter: fallback}) || b.probe == before {
			t.Errorf("%d: %+v, and the next try is that of %s after %s", code, got, b.probe, before)
		}
		expect(http.StatusText(code), b.probe+" after 10s")
	}
	b.probe = "probe"

	// A refusal is an answer, but none to build upon. That the storage does not take an object of this size is one.
	for _, refusal := range []error{
		apierrors.NewForbidden(schema.GroupResource{}, "a", errors.New("not yet")), apierrors.NewRequestEntityTooLargeError("too large"),
		apierrors.NewInternalError(errors.New("etcdserver: request is too large")),
	} {
		if _, err := b.resultOf(t.Context(), "a", ctrl.Result{}, b.observe(refusal)); !errors.Is(err, refusal) {
			t.Errorf("a work that was refused with %v is not tried again: %v", refusal, err)
		}
		expect(refusal.Error())
	}

	// What else went wrong keeps its own pace.
	if _, err := b.resultOf(t.Context(), "b", ctrl.Result{}, errors.Join(b.observe(syscall.ECONNREFUSED), errors.New("webhook"))); err == nil {
		t.Error("a manifest that failed is not tried again")
	}
	resultOf("b", silent())
	resultOf("probe", nil)
	expect("the probing work has nothing to report any more", "b")
	resultOf("b", silent())
	resultOf("c", silent())
	if err := b.observe(nil); err != nil {
		t.Error(err)
	}
	expect("a write was accepted", "b", "c")
	if err := b.observe(nil); err != nil {
		t.Error(err)
	}
	expect("a write was accepted again")

	// A hub that is back may refuse the reports of one probing work after the other, if their works have changed meanwhile.
	for _, work := range []string{"a", "b", "c"} {
		resultOf(work, silent())
	}
	conflict := b.observe(apierrors.NewConflict(schema.GroupResource{}, "a", errors.New("it has changed")))
	for probe := "a"; probe != ""; probe = b.probe {
		if _, err := b.resultOf(t.Context(), probe, ctrl.Result{}, conflict); err == nil {
			t.Errorf("%s, whose report conflicts, is not tried again", probe)
		}
	}
	expect("all conflict", "b", "c")
}
