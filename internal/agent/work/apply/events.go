package apply

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"

	workv1 "github.com/capstan-io/capstan/api/work/v1"
	"github.com/capstan-io/capstan/internal/agent/work/conditions"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
)

// Recorder records an event about a work. It must not block.
type Recorder func(work *workv1.ManifestWork, eventType, reason, action, note string)

// maxNote is how many bytes of text an event has room for: the API server takes 1 KiB.
const maxNote = 1000

// transitions are the manifests that have started to fail, those that have recovered, and those whose objects others have started to
// dispute.
type transitions struct{ failed, recovered, disputed []string }

// transitionsOf compares the results with the status of the work before. A failure or a dispute that goes on is no transition, even
// if its message changes; a failure under a new generation is.
func transitionsOf(work *workv1.ManifestWork, results []manifestResult) transitions {
	var t transitions
	for i := range results {
		o := &results[i]
		before := statusOf(work, o)
		failing := before != nil && meta.IsStatusConditionFalse(before.Conditions, fleet.ConditionApplied)
		switch {
		case o.err != nil && (!failing || !isCurrent(before, work.Generation)):
			t.failed = append(t.failed, o.err.Error())
		case o.err == nil && failing:
			t.recovered = append(t.recovered, o.identity.String())
		}
		if o.dispute != nil && (before == nil || meta.FindStatusCondition(before.Conditions, fleet.ConditionDisputed) == nil) {
			t.disputed = append(t.disputed, fmt.Sprintf("%s: %s", o.identity, o.dispute))
		}
	}
	return t
}

func isCurrent(status *workv1.ManifestCondition, generation int64) bool {
	return meta.FindStatusCondition(status.Conditions, fleet.ConditionApplied).ObservedGeneration == generation
}

// statusOf is what the status of the work says of the manifest.
func statusOf(work *workv1.ManifestWork, o *manifestResult) *workv1.ManifestCondition {
	for i := range work.Status.ResourceStatus.Manifests {
		r := work.Status.ResourceStatus.Manifests[i].ResourceMeta
		same := r.Group == o.identity.Group && r.Kind == o.identity.Kind && r.Namespace == o.identity.Namespace && r.Name == o.identity.Name
		if same && (o.identity.Name != "" || int(r.Ordinal) == o.ordinal) {
			return &work.Status.ResourceStatus.Manifests[i]
		}
	}
	return nil
}

// recordEvents records the transitions, each in one event whatever the number of manifests.
func (c *Controller) recordEvents(work *workv1.ManifestWork, t transitions, all int) {
	if len(t.failed) > 0 {
		c.Record(work, corev1.EventTypeWarning, fleet.EventManifestApplyFailed, "Apply",
			conditions.Clip(fmt.Sprintf("%d of %d manifests failed to apply: %s", len(t.failed), all, conditions.Summary(t.failed)), maxNote))
	}
	if len(t.recovered) > 0 {
		c.Record(work, corev1.EventTypeNormal, fleet.EventManifestApplyRecovered, "Apply",
			conditions.Clip(fmt.Sprintf("%d of %d manifests are applied after failures: %s", len(t.recovered), all, conditions.Summary(t.recovered)),
				maxNote))
	}
	if len(t.disputed) > 0 {
		c.Record(work, corev1.EventTypeWarning, fleet.EventManifestDisputed, "Apply",
			conditions.Clip(fmt.Sprintf("%d of %d objects are in dispute: %s", len(t.disputed), all, conditions.Summary(t.disputed)), maxNote))
	}
}
