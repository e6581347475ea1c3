package replicaset

import (
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	workv1 "github.com/capstan-io/capstan/api/work/v1"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
	"github.com/capstan-io/capstan/internal/rollout"
)

// clockTolerance is how far ahead of the hub's the clock of a cluster may be for the times that it reports to count: what is counted from
// them takes longer by that.
const clockTolerance = time.Hour

// stateOf returns the rollout state of the cluster of a work with the template, and since when it has been in it. It is Progressing from
// the moment the hub writes the work: a cluster without a connected agent keeps its place in the rollout, and its deadline runs. A cluster
// that has lost what it had counts as Progressing since then, and has the whole deadline again. A frozen work never gets there, so that its
// cluster is skipped.
func stateOf(w *work, template *workv1.ManifestWorkSpec, now time.Time) (rollout.State, time.Time) {
	if w.isFrozen() {
		return rollout.Skip, time.Time{}
	}
	if applied := w.current(fleet.ConditionApplied); !isTrue(applied) {
		return rollout.Progressing, w.since(applied, now)
	}
	progressing := w.current(fleet.ConditionProgressing)
	if progressing == nil {
		return withoutProgress(w, template, now)
	}
	since := w.since(progressing, now)
	switch {
	case progressing.Status == metav1.ConditionFalse:
		return rollout.Succeeded, since
	case isTrue(progressing) && isTrue(w.current(fleet.ConditionDegraded)):
		return rollout.Failed, since
	default:
		return rollout.Progressing, since
	}
}

// isFrozen reports whether the work was complete before the hub wrote its present spec: agents leave complete works alone. Agents of Open
// Cluster Management still report of each spec that the work is complete, but not that it is applied.
func (w *work) isFrozen() bool {
	return meta.IsStatusConditionTrue(w.Status.Conditions, fleet.ConditionComplete) && w.current(fleet.ConditionApplied) == nil
}

// withoutProgress returns the state for a work without a condition Progressing. If there will be none, because no rule sets it and
// no kind in it is known to have any, then a work that is applied and available has succeeded; otherwise rollouts would never get past
// it.
func withoutProgress(w *work, template *workv1.ManifestWorkSpec, now time.Time) (rollout.State, time.Time) {
	if hasRule(template, fleet.ConditionProgressing) || meta.FindStatusCondition(w.Status.Conditions, fleet.ConditionProgressing) != nil {
		return rollout.Progressing, w.writtenAt()
	}
	available := w.current(fleet.ConditionAvailable)
	since := w.since(available, now)
	if !isTrue(available) {
		return rollout.Progressing, since
	}
	return rollout.Succeeded, since
}

func hasRule(template *workv1.ManifestWorkSpec, condition string) bool {
	for _, config := range template.ManifestConfigs {
		for _, rule := range config.ConditionRules {
			if rule.Condition == condition {
				return true
			}
		}
	}
	return false
}

// current returns a condition if it is about the present spec of the work, and nil otherwise. The deletion of a work is a generation, too.
func (w *work) current(kind string) *metav1.Condition {
	condition := meta.FindStatusCondition(w.Status.Conditions, kind)
	switch {
	case condition == nil:
		return nil
	case condition.ObservedGeneration == w.Generation, w.isGoing() && condition.ObservedGeneration == w.Generation-1:
		return condition
	default:
		return nil
	}
}

// writtenAt returns when the hub wrote the present spec. Works of another hub lack that time, and count as written long ago.
func (w *work) writtenAt() time.Time {
	at, err := time.Parse(time.RFC3339Nano, w.Annotations[fleet.AnnotationTemplateWrittenAt])
	if err != nil {
		return w.CreationTimestamp.Time
	}
	return at
}

// since returns when a condition got its status. That is a time of the cluster's clock: what is earlier than the hub wrote the work, or
// has not come yet, cannot be, and the cluster is in its state since it got the work.
func (w *work) since(condition *metav1.Condition, now time.Time) time.Time {
	given := w.writtenAt()
	if condition == nil {
		return given
	}
	at := condition.LastTransitionTime.Time
	if at.Before(given) || at.After(now.Add(clockTolerance)) {
		return given
	}
	return at
}

func isTrue(condition *metav1.Condition) bool {
	return condition != nil && condition.Status == metav1.ConditionTrue
}

func isFalse(condition *metav1.Condition) bool {
	return condition != nil && condition.Status == metav1.ConditionFalse
}
