package apply

import (
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	workv1 "github.com/capstan-io/capstan/api/work/v1"
	"github.com/capstan-io/capstan/internal/agent/work/appliedmanifestwork"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
)

func isTrue(kind string) metav1.Condition {
	return metav1.Condition{Type: kind, Status: metav1.ConditionTrue, Reason: "Tested", ObservedGeneration: 1,
		LastTransitionTime: metav1.NewTime(time.Unix(500, 0))}
}

// WK-16: an agent that has just started, and gets works without a status, knows which are complete, and which of their manifests, also when
// the work was edited. It tells the hub of a complete work, with the times of before. Another work of the name is not complete, and neither
// is one of the same UID that comes while what the earlier one applied is being deleted.
func TestCompleteAfterRestart(t *testing.T) {
	t.Parallel()
	web, other := workv1.ManifestResourceMeta{Kind: "Pod", Name: "web"}, workv1.ManifestResourceMeta{Ordinal: 1, Kind: "Pod", Name: "other"}
	manifestOf := func(meta workv1.ManifestResourceMeta, conditions ...metav1.Condition) workv1.ManifestCondition {
		return workv1.ManifestCondition{ResourceMeta: meta, Conditions: conditions}
	}
	applied, complete := isTrue(fleet.ConditionApplied), isTrue(fleet.ConditionComplete)
	statusWith := func(manifests []workv1.ManifestCondition, conditions ...metav1.Condition) workv1.ManifestWorkStatus {
		return workv1.ManifestWorkStatus{Conditions: conditions, ResourceStatus: workv1.ManifestResourceStatus{Manifests: manifests}}
	}
	partly := []workv1.ManifestCondition{manifestOf(web, applied, complete), manifestOf(other, applied)}
	all := []workv1.ManifestCondition{manifestOf(web, applied, complete), manifestOf(other, applied, complete)}
	whole := statusWith(all, applied, complete)
	for name, test := range map[string]struct {
		before workv1.ManifestWorkStatus
		uid    types.UID
		goes   bool
		want   workv1.ManifestWorkStatus
		isNews bool
	}{
		"the work":                  {before: whole, uid: "work", want: whole, isNews: true},
		"a manifest":                {before: statusWith(partly, applied), uid: "work", want: statusWith(partly[:1])},
		"nothing":                   {before: statusWith(partly[1:], applied), uid: "work"},
		"another work of the name":  {before: whole, uid: "another"},
		"another work of the UID":   {before: whole, uid: "work", goes: true},
		"another with the manifest": {before: statusWith(partly, applied), uid: "work", goes: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			amw := &workv1.AppliedManifestWork{ObjectMeta: metav1.ObjectMeta{Name: fleet.AppliedManifestWorkName(hubHash, "work"),
				Finalizers: []string{fleet.FinalizerAppliedManifestWorkCleanup}}}
			managed := clientWith(t, amw)
			r := newReporter(t)
			r.managed = managed
			r.work.UID, r.work.Status = "work", test.before
			if err := r.recordCompletion(t.Context(), amw, r.work); err != nil {
				t.Fatal(err)
			}
			if test.goes {
				if err := managed.Delete(t.Context(), amw); err != nil {
					t.Fatal(err)
				}
			}
			restarted := newReporter(t)
			restarted.managed = managed
			restarted.work.UID, restarted.work.Generation = test.uid, 2
			isNews, err := restarted.recall(t.Context(), restarted.work)
			if err != nil || isNews != test.isNews || !equality.Semantic.DeepEqual(restarted.work.Status, test.want) {
				t.Errorf("news %t, %v: %+v, want %+v", isNews, err, restarted.work.Status, test.want)
			}
			if !test.isNews {
				return
			}
			restarted.work.Status = workv1.ManifestWorkStatus{}
			restarted.hub = clientWith(t, restarted.work)
			if _, err := restarted.Reconcile(t.Context(), ctrl.Request{NamespacedName: client.ObjectKeyFromObject(restarted.work)}); err != nil {
				t.Fatal(err)
			}
			told := &workv1.ManifestWork{}
			if err := restarted.hub.Get(t.Context(), client.ObjectKeyFromObject(restarted.work), told); err != nil ||
				!equality.Semantic.DeepEqual(told.Status, test.want) || len(told.Finalizers) > 0 {
				t.Errorf("the hub has %+v, %v", told, err)
			}
		})
	}
}

// WK-16: that a work is complete, as its status says, is written down where it is missing, unless what it applied is being deleted.
func TestCompletionIsMissing(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		applied, goes bool
		before        types.UID // the work whose completion is written down
		want          bool
	}{
		"nothing is written down":         {applied: true, want: true},
		"it is written down":              {applied: true, before: "work", want: true},
		"of a work before":                {applied: true, before: "before", want: true},
		"what it applied is deleted":      {applied: true, goes: true},
		"there is no AppliedManifestWork": {},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			amw := &workv1.AppliedManifestWork{ObjectMeta: metav1.ObjectMeta{Name: fleet.AppliedManifestWorkName(hubHash, "work"),
				Finalizers: []string{fleet.FinalizerAppliedManifestWorkCleanup}}}
			r := newReporter(t)
			r.managed = clientWith(t)
			if test.applied {
				r.managed = clientWith(t, amw)
			}
			r.work.Status = workv1.ManifestWorkStatus{Conditions: []metav1.Condition{isTrue(fleet.ConditionComplete)}}
			if r.work.UID = test.before; test.before != "" {
				if err := r.recordCompletion(t.Context(), amw, r.work); err != nil {
					t.Fatal(err)
				}
			}
			if test.goes {
				if err := r.managed.Delete(t.Context(), amw); err != nil {
					t.Fatal(err)
				}
			}
			r.work.UID = "work"
			r.hub = clientWith(t, r.work)
			if _, err := r.Reconcile(t.Context(), ctrl.Request{NamespacedName: client.ObjectKeyFromObject(r.work)}); err != nil {
				t.Fatal(err)
			}
			stored := &workv1.AppliedManifestWork{}
			if err := r.managed.Get(t.Context(), client.ObjectKeyFromObject(amw), stored); (err == nil) != test.applied {
				t.Fatal(err)
			}
			if written := appliedmanifestwork.CompletionOf(stored, "work") != nil; written != test.want {
				t.Errorf("it is written down that the work is complete: %t, %v", written, stored.Annotations)
			}
		})
	}
}

// What is complete is written down once, and forgotten with the manifest.
func TestRecordCompletion(t *testing.T) {
	t.Parallel()
	amw := &workv1.AppliedManifestWork{ObjectMeta: metav1.ObjectMeta{Name: fleet.AppliedManifestWorkName(hubHash, "work")}}
	r := newReporter(t)
	r.managed = clientWith(t, amw)
	record := func() (version string) {
		t.Helper()
		if err := r.recordCompletion(t.Context(), amw, r.work); err != nil {
			t.Fatal(err)
		}
		stored := &workv1.AppliedManifestWork{}
		if err := r.managed.Get(t.Context(), client.ObjectKeyFromObject(amw), stored); err != nil {
			t.Fatal(err)
		}
		return stored.ResourceVersion
	}
	r.work.Status.ResourceStatus.Manifests = []workv1.ManifestCondition{{Conditions: []metav1.Condition{isTrue(fleet.ConditionComplete)}}}
	if first, again := record(), record(); first != again {
		t.Errorf("the same is written twice: %s, %s", first, again)
	}
	r.work.Status.ResourceStatus.Manifests = nil
	if record(); amw.Annotations[fleet.AnnotationCompletion] != "" {
		t.Error("a manifest that the work has no more stays complete")
	}
}
