package apply

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	workv1 "github.com/capstan-io/capstan/api/work/v1"
	"github.com/capstan-io/capstan/internal/agent/work/ignore"
	"github.com/capstan-io/capstan/internal/machinery/manifest"
)

// WK-20 to WK-24: over a new generation, Applied of a manifest and what is derived from its object begin anew; all other
// conditions keep their time while their status stays the same, and all keep their place.
func TestTimesOverGenerations(t *testing.T) {
	t.Parallel()
	r := newReporter(t)
	before := r.pass(t, webWith(2))
	workBefore := slices.Clone(r.work.Status.Conditions)
	r.work.Generation = 2
	after := r.pass(t, webWith(2))
	anew := map[string]bool{"Progressing": true, "Degraded": true, "Serving": true}
	for what, both := range map[string][2][]metav1.Condition{
		"manifest": {before.Conditions, after.Conditions}, "work": {workBefore, r.work.Status.Conditions},
	} {
		if len(both[0]) < 5 || len(both[0]) != len(both[1]) {
			t.Fatalf("%s: conditions %+v and then %+v", what, both[0], both[1])
		}
		for i, was := range both[0] {
			is := both[1][i]
			want := was.LastTransitionTime.Time
			if anew[is.Type] || is.Type == "Applied" && what == "manifest" {
				want = r.clock.Now()
			}
			if is.Type != was.Type || is.ObservedGeneration != 2 || !is.LastTransitionTime.Time.Equal(want) {
				t.Errorf("%s: %+v after %+v, want the time %s", what, is, was, want)
			}
		}
	}
}

// WK-20 to WK-23: what the conditions say of each way in which a manifest may end.
func TestConditionsOfOutcomes(t *testing.T) {
	t.Parallel()
	mapping := &meta.RESTMapping{Resource: schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}}
	id := manifest.Identity{GroupVersionKind: schema.GroupVersionKind{Version: "v1", Kind: "ConfigMap"}, Namespace: "default", Name: "a"}
	broken := errors.New("broken")
	for name, test := range map[string]struct {
		outcome                      outcome
		applied, available           string
		workApplied, workIsAvailable string
	}{
		"applied": {
			outcome{resolved: true, presence: present},
			"True AppliedManifestComplete", "True ResourceAvailable", "True AppliedManifestWorkComplete", "True ResourcesAvailable",
		},
		"failed, absent": {
			outcome{resolved: true, presence: absent, err: broken},
			"False AppliedManifestFailed", "False ResourceNotAvailable", "False AppliedManifestWorkFailed", "False ResourcesNotAvailable",
		},
		"failed, present": {
			outcome{resolved: true, presence: present, err: broken},
			"False AppliedManifestFailed", "True ResourceAvailable", "False AppliedManifestWorkFailed", "True ResourcesAvailable",
		},
		"failed, cannot be looked at": {
			outcome{resolved: true, err: broken},
			"False AppliedManifestFailed", "Unknown FetchingResourceFailed", "False AppliedManifestWorkFailed", "Unknown ResourcesStatusUnknown",
		},
		"discovery failed": {
			outcome{err: broken},
			"False AppliedManifestFailed", "Unknown FetchingResourceFailed", "False AppliedManifestWorkFailed", "Unknown ResourcesStatusUnknown",
		},
		"fields to ignore": {
			outcome{resolved: true, presence: present, err: fmt.Errorf("a: %w", &ignore.Error{})},
			"False AppliedManifestSSAIgnoreFieldError", "True ResourceAvailable", "False AppliedManifestWorkFailed", "True ResourcesAvailable",
		},
		"unreadable": {
			outcome{err: broken, identity: manifest.Identity{}},
			"False AppliedManifestFailed", "Unknown IncompleteResourceMeta", "False AppliedManifestWorkFailed", "Unknown ResourcesStatusUnknown",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := test.outcome
			if name != "unreadable" {
				o.identity = id
			}
			if o.resolved {
				o.mapping = mapping
			}
			r := newReporter(t)
			r.work.Spec.ManifestConfigs = nil
			r.updateStatus(r.work, []outcome{o})
			status := r.work.Status.ResourceStatus.Manifests[0]
			for _, row := range []struct {
				conditions []metav1.Condition
				kind, want string
			}{
				{status.Conditions, "Applied", test.applied}, {status.Conditions, "Available", test.available},
				{status.Conditions, "StatusFeedbackSynced", "True NoStatusFeedbackSynced"},
				{r.work.Status.Conditions, "Applied", test.workApplied}, {r.work.Status.Conditions, "Available", test.workIsAvailable},
			} {
				cond := meta.FindStatusCondition(row.conditions, row.kind)
				if cond == nil || fmt.Sprintf("%s %s", cond.Status, cond.Reason) != row.want || cond.Message == "" || cond.ObservedGeneration != 1 {
					t.Errorf("%s is %+v, want %s", row.kind, cond, row.want)
				}
			}
		})
	}
}

// WK-24: rules that may be about a manifest whose resource is not known are not met.
func TestFeedbackOfUnknownResource(t *testing.T) {
	t.Parallel()
	r := newReporter(t)
	o := outcome{presence: absent, err: errors.New("no such kind")}
	o.identity = manifest.Identity{GroupVersionKind: schema.GroupVersionKind{Group: "apps", Version: "v1", Kind: "Unknown"},
		Namespace: "default", Name: "web"}
	r.updateStatus(r.work, []outcome{o})
	r.expect(t, r.work.Status.ResourceStatus.Manifests[0].Conditions, "StatusFeedbackSynced", "False", "StatusFeedbackSyncFailed")
	o.identity.Name = "other"
	r.updateStatus(r.work, []outcome{o})
	r.expect(t, r.work.Status.ResourceStatus.Manifests[0].Conditions, "StatusFeedbackSynced", "True", "NoStatusFeedbackSynced")
}

// WK-33: a pass whose executor was checked is over when the first verdict is, and one without an executor never.
func TestRecheck(t *testing.T) {
	t.Parallel()
	r := newReporter(t)
	now := r.clock.Now()
	with := func(after time.Duration) outcome { return outcome{frozen: true, recheck: now.Add(after)} }
	if again := r.untilRecheck([]outcome{{}, {}}); again != 0 {
		t.Errorf("without an executor: %s", again)
	}
	outcomes := []outcome{with(time.Minute), {frozen: true}, with(time.Second), {err: errors.New("refused"), recheck: now}}
	if again := r.untilRecheck(outcomes); again != time.Second {
		t.Errorf("%s", again)
	}
	amw := &workv1.AppliedManifestWork{}
	last := &pass{work: r.work.UID, generation: r.work.Generation, outcomes: outcomes[:3]}
	r.updateStatus(r.work, last.outcomes)
	r.clock.SetTime(now.Add(time.Second - 1))
	if !r.settled(last, r.work, amw) {
		t.Error("it is over too early")
	}
	r.clock.SetTime(now.Add(time.Second))
	if r.settled(last, r.work, amw) || r.untilRecheck(outcomes) <= 0 {
		t.Error("it is not over")
	}
}
