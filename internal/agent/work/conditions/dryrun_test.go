package conditions

import (
	"errors"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	workv1 "github.com/capstan-io/capstan/api/work/v1"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
)

// A dry run reports each manifest and sums them up, and leaves nothing when it is over.
func TestPreviews(t *testing.T) {
	t.Parallel()
	work := &workv1.ManifestWork{ObjectMeta: metav1.ObjectMeta{Generation: 3}}
	previews := make([]Preview, 5)
	for i := range previews {
		previews[i].Manifest = workv1.ManifestResourceMeta{Ordinal: int32(i)}
	}
	previews[0].WouldCreate()
	previews[1].WouldChange([]string{"a", "b"})
	previews[2].WouldChange(nil)
	previews[3].WouldFail(errors.New("broken"))
	previews[4].CannotBeTried("Namespace web")
	deleted := []workv1.AppliedManifestResourceMeta{{
		ResourceIdentifier: workv1.ResourceIdentifier{Resource: "configmaps", Namespace: "ns", Name: "old"},
	}}
	SetPreviews(work, previews, deleted, time.Unix(1000, 0))
	for i, want := range []string{
		"True WouldCreate: It would be created", "True WouldChange: a; b", "True WouldNotChange: It is as the manifest says",
		"False WouldFail: broken", "Unknown CannotBeTried: It cannot be tried before Namespace web is there, which is in this work, too",
	} {
		expect(t, work.Status.ResourceStatus.Manifests[i].Conditions, "DryRun", want)
	}
	sum := "Of 5 manifests, 1 would be created, 1 changed, 1 left as they are, and 1 cannot be tried; 1 objects would be deleted: configmaps ns/old"
	expect(t, work.Status.Conditions, "DryRun", "False DryRunFailed: 1 of 5 manifests would fail: broken. "+sum)
	SetPreviews(work, previews[:1], nil, time.Unix(1000, 0))
	expect(t, work.Status.Conditions, "DryRun",
		"True DryRunComplete: Of 1 manifests, 1 would be created, 0 changed, 0 left as they are, and 0 cannot be tried; 0 objects would be deleted")
	if !EndDryRun(work) || DryRunOf(work) != nil || len(work.Status.ResourceStatus.Manifests) > 0 || EndDryRun(work) {
		t.Errorf("after its end: %+v", work.Status)
	}
	work.Annotations = map[string]string{fleet.AnnotationDryRun: "Sure"}
	SetDryRunUnknown(work, time.Unix(1000, 0))
	expect(t, work.Status.Conditions, "DryRun",
		`Unknown UnknownDryRun: The annotation capstan.io/dry-run is "Sure"; it must be "server" or "none". Nothing is applied until it is`)
}

// A condition DryRun that others have set is no report of a dry run: there is nothing to end.
func TestEndDryRunOfOthers(t *testing.T) {
	t.Parallel()
	for reason, ends := range map[string]bool{
		"ConditionRulesAggregated": false, "AsExpected": false, "DryRunComplete": true, "DryRunFailed": true, "UnknownDryRun": true,
	} {
		work := &workv1.ManifestWork{}
		work.Status.Conditions = []metav1.Condition{{Type: "DryRun", Reason: reason}, {Type: "Applied", Reason: "DryRunComplete"}}
		if EndDryRun(work) != ends || (len(work.Status.Conditions) == 1) != ends {
			t.Errorf("%s: the conditions that are left are %+v", reason, work.Status.Conditions)
		}
	}
}

// The time of the condition changes with its status, and not with the generation.
func TestTimeOfDryRun(t *testing.T) {
	t.Parallel()
	succeeds, fails := make([]Preview, 1), make([]Preview, 1)
	succeeds[0].WouldCreate()
	fails[0].WouldFail(errors.New("broken"))
	preview := func(previews []Preview) func(*workv1.ManifestWork, time.Time) {
		return func(work *workv1.ManifestWork, now time.Time) { SetPreviews(work, previews, nil, now) }
	}
	refuse := func(work *workv1.ManifestWork, now time.Time) { RefuseDryRun(work, &ClaimedError{}, now) }
	work := &workv1.ManifestWork{}
	for i, step := range []struct {
		set   func(*workv1.ManifestWork, time.Time)
		since int64
	}{
		{preview(succeeds), 0}, {preview(succeeds), 0}, {preview(fails), 2}, {preview(fails), 2}, {refuse, 2}, {refuse, 2},
		{SetDryRunUnknown, 6}, {SetDryRunUnknown, 6}, {preview(succeeds), 8},
	} {
		work.Generation = int64(i) + 1
		step.set(work, time.Unix(int64(i), 0))
		if cond := DryRunOf(work); cond.LastTransitionTime.Unix() != step.since || cond.ObservedGeneration != work.Generation {
			t.Errorf("step %d: %+v, want the time of step %d", i, cond, step.since)
		}
	}
	work.Generation++
	SetPreviews(work, succeeds, nil, time.Unix(100, 0))
	if cond := work.Status.ResourceStatus.Manifests[0].Conditions[0]; cond.LastTransitionTime.Unix() != 8 {
		t.Errorf("of the manifest: %+v, want the time of step 8", cond)
	}
}
