package apply

import (
	"errors"
	"fmt"
	"slices"
	"syscall"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	ctrl "sigs.k8s.io/controller-runtime"
)

// A hub that does not answer is tried by one work, and all are woken when it takes what one has to say.
func TestBacklog(t *testing.T) {
	t.Parallel()
	var woken []string
	b := backlog{works: map[string]bool{}, wake: func(work string) { woken = append(woken, work) }}
	expect := func(what string, want ...string) {
		t.Helper()
		slices.Sort(woken)
		if !slices.Equal(woken, want) {
			t.Errorf("%s: woken are %v, want %v", what, woken, want)
		}
		woken = nil
	}
	silent := func() error { return errors.Join(fmt.Errorf("report: %w", b.heard(syscall.ECONNREFUSED)), nil) }
	judge := func(work string, err error) ctrl.Result {
		t.Helper()
		result, err := b.judge(t.Context(), work, ctrl.Result{}, err)
		if err != nil {
			t.Errorf("%s is tried again as if it was to blame: %v", work, err)
		}
		return result
	}
	for range 2 {
		for work, after := range map[string]ctrl.Result{"scout": {RequeueAfter: scoutPause}} {
			if got := judge(work, silent()); got != after {
				t.Errorf("%s: %+v, want %+v", work, got, after)
			}
		}
		for _, work := range []string{"a", "b"} {
			if got := judge(work, silent()); got != (ctrl.Result{RequeueAfter: unheard}) {
				t.Errorf("%s: %+v", work, got)
			}
		}
	}
	expect("nobody was heard")

	// A refusal is an answer, but none to build upon.
	refused := b.heard(apierrors.NewForbidden(schema.GroupResource{}, "a", errors.New("not yet")))
	if _, err := b.judge(t.Context(), "a", ctrl.Result{}, refused); err == nil {
		t.Error("a work that was refused is not tried again")
	}
	expect("refused")

	// What else went wrong keeps its own pace.
	if _, err := b.judge(t.Context(), "b", ctrl.Result{}, errors.Join(b.heard(syscall.ECONNREFUSED), errors.New("webhook"))); err == nil {
		t.Error("a manifest that failed is not tried again")
	}
	judge("b", silent())
	judge("scout", nil)
	expect("the scout has nothing to say any more", "b")
	judge("b", silent())
	judge("c", silent())
	if err := b.heard(nil); err != nil {
		t.Error(err)
	}
	expect("heard", "b", "c")
	if err := b.heard(nil); err != nil {
		t.Error(err)
	}
	expect("heard again")

	// A hub that is back may refuse what one scout after the other has to say, if somebody changed their works meanwhile.
	for _, work := range []string{"a", "b", "c"} {
		judge(work, silent())
	}
	conflict := b.heard(apierrors.NewConflict(schema.GroupResource{}, "a", errors.New("it has changed")))
	for scout := "a"; scout != ""; scout = b.scout {
		if _, err := b.judge(t.Context(), scout, ctrl.Result{}, conflict); err == nil {
			t.Errorf("%s, whose report conflicts, is not tried again", scout)
		}
	}
	expect("all conflict", "b", "c")
}
