package apply

import (
	"errors"
	"slices"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	workv1 "github.com/capstan-io/capstan/api/work/v1"
	"github.com/capstan-io/capstan/internal/agent/work/conditions"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
)

// WK-20 to WK-24: over a new generation, Applied of a manifest and what is derived from its object get a new time; all other
// conditions keep their time while their status stays the same, and all keep their place.
func TestTimesOverGenerations(t *testing.T) {
	t.Parallel()
	r := newReporter(t)
	before := r.pass(t, webWith(2))
	workBefore := slices.Clone(r.work.Status.Conditions)
	r.work.Generation = 2
	after := r.pass(t, webWith(2))
	renewed := map[string]bool{"Progressing": true, "Degraded": true, "Serving": true}
	for what, both := range map[string][2][]metav1.Condition{
		"manifest": {before.Conditions, after.Conditions}, "work": {workBefore, r.work.Status.Conditions},
	} {
		if len(both[0]) < 5 || len(both[0]) != len(both[1]) {
			t.Fatalf("%s: conditions %+v and then %+v", what, both[0], both[1])
		}
		for i, was := range both[0] {
			is := both[1][i]
			want := was.LastTransitionTime.Time
			if renewed[is.Type] || is.Type == "Applied" && what == "manifest" {
				want = r.clock.Now()
			}
			if is.Type != was.Type || is.ObservedGeneration != 2 || !is.LastTransitionTime.Time.Equal(want) {
				t.Errorf("%s: %+v after %+v, want the time %s", what, is, was, want)
			}
		}
	}
}

// WK-16: a work is not said to be complete before it is recorded what it owns, and that it is complete: it is never applied again.
func TestCompleteIsReportedLast(t *testing.T) {
	t.Parallel()
	scheme := runtime.NewScheme()
	if err := workv1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	for _, recorded := range []bool{false, true} {
		r := newReporter(t)
		r.work.Spec.ManifestConfigs[0].ConditionRules[0].Condition = fleet.ConditionComplete
		r.hub = fake.NewClientBuilder().WithScheme(scheme).WithObjects(r.work).WithStatusSubresource(r.work).Build()
		amw := &workv1.AppliedManifestWork{ObjectMeta: metav1.ObjectMeta{Name: fleet.AppliedManifestWorkName(hubHash, r.work.Name)}}
		r.managed = clientWith(t, amw)
		r.pass(t, webWith(2))
		r.work.Status = workv1.ManifestWorkStatus{}
		var recordErr error
		if !recorded {
			recordErr = errors.New("it cannot be written")
		}
		if err := r.report(t.Context(), amw, r.work, r.last.results, recordErr); err != nil {
			t.Fatal(err)
		}
		if written := amw.Annotations[fleet.AnnotationCompletion] != ""; written != recorded {
			t.Errorf("recorded: %t, and it is written down that the work is complete: %t", recorded, written)
		}
		stored := &workv1.ManifestWork{}
		if err := r.hub.Get(t.Context(), client.ObjectKeyFromObject(r.work), stored); err != nil {
			t.Fatal(err)
		}
		if conditions.IsComplete(stored) != recorded {
			t.Errorf("recorded: %t, and the hub has %+v", recorded, stored.Status.Conditions)
		}
	}
}

// WK-13, WK-21: what the work names no more and could not be deleted is in the condition of the work until it is.
func TestUnprunedIsReported(t *testing.T) {
	t.Parallel()
	r := newReporter(t)
	r.hub = clientWith(t, r.work)
	if err := r.hub.Get(t.Context(), client.ObjectKeyFromObject(r.work), r.work); err != nil {
		t.Fatal(err)
	}
	amw := &workv1.AppliedManifestWork{ObjectMeta: metav1.ObjectMeta{Name: fleet.AppliedManifestWorkName(hubHash, r.work.Name)}}
	r.managed = clientWith(t, amw)
	denied := errors.Join(nil, errors.Join(errors.New("delete configmaps default/a: denied"), errors.New("delete secrets default/b: denied")))
	const complete = "Apply manifest work complete"
	for _, test := range []struct {
		err  error
		want string
	}{
		{denied, complete + "; could not delete configmaps default/a: denied; could not delete secrets default/b: denied"},
		{nil, complete},
	} {
		if err := r.report(t.Context(), amw, r.work, nil, test.err); err != nil {
			t.Fatal(err)
		}
		stored := &workv1.ManifestWork{}
		if err := r.hub.Get(t.Context(), client.ObjectKeyFromObject(r.work), stored); err != nil {
			t.Fatal(err)
		}
		applied := meta.FindStatusCondition(stored.Status.Conditions, fleet.ConditionApplied)
		if applied == nil || applied.Status != metav1.ConditionTrue || applied.Message != test.want {
			t.Errorf("%+v, want the message %q", applied, test.want)
		}
	}
}

// A work whose status is not that of its spec gets a pass, though the last one was over its generation.
func TestPassWithoutStatus(t *testing.T) {
	t.Parallel()
	r := newReporter(t)
	amw := &workv1.AppliedManifestWork{}
	last := &workResult{work: r.work.UID, generation: r.work.Generation, results: []manifestResult{{frozen: true}}}
	r.updateStatus(r.work, last.results)
	if !r.isUpToDate(last, r.work, amw) {
		t.Error("a work that is reported gets a pass")
	}
	r.work.Status = workv1.ManifestWorkStatus{}
	if r.isUpToDate(last, r.work, amw) {
		t.Error("a work without a status gets no pass")
	}
}

// WK-33: a pass whose executor was checked is over when the first verdict is, and one without an executor never.
func TestRecheck(t *testing.T) {
	t.Parallel()
	r := newReporter(t)
	now := r.clock.Now()
	with := func(after time.Duration) manifestResult {
		return manifestResult{frozen: true, requeueAt: now.Add(after)}
	}
	if again := r.untilRequeue([]manifestResult{{}, {}}); again != 0 {
		t.Errorf("without an executor: %s", again)
	}
	outcomes := []manifestResult{with(time.Minute), {frozen: true}, with(time.Second), {err: errors.New("refused"), requeueAt: now}}
	if again := r.untilRequeue(outcomes); again != time.Second {
		t.Errorf("%s", again)
	}
	amw := &workv1.AppliedManifestWork{}
	last := &workResult{work: r.work.UID, generation: r.work.Generation, results: outcomes[:3]}
	r.updateStatus(r.work, last.results)
	r.clock.SetTime(now.Add(time.Second - 1))
	if !r.isUpToDate(last, r.work, amw) {
		t.Error("it is over too early")
	}
	r.clock.SetTime(now.Add(time.Second))
	if r.isUpToDate(last, r.work, amw) || r.untilRequeue(outcomes) <= 0 {
		t.Error("it is not over")
	}
}
