package replicaset

import (
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	workv1 "github.com/capstan-io/capstan/api/work/v1"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
	"github.com/capstan-io/capstan/internal/rollout"
)

// stateOf is where the cluster of a work stands with the template, which it has or not, and since when. It is Progressing from the
// moment the hub writes the work: an agent that is away keeps its place in the rollout, and has its deadline.
func stateOf(w *work, same bool, template *workv1.ManifestWorkSpec) (rollout.State, time.Time) {
	if w == nil || !w.DeletionTimestamp.IsZero() || !same {
		return rollout.ToApply, time.Time{}
	}
	given := w.writtenAt()
	if !isTrue(w.current(fleet.ConditionApplied)) {
		return rollout.Progressing, given
	}
	progressing := w.current(fleet.ConditionProgressing)
	if progressing == nil {
		return withoutProgress(w, template, given)
	}
	since := latest(given, progressing.LastTransitionTime.Time)
	switch {
	case progressing.Status == metav1.ConditionFalse:
		return rollout.Succeeded, since
	case isTrue(progressing) && isTrue(w.current(fleet.ConditionDegraded)):
		return rollout.Failed, since
	default:
		return rollout.Progressing, since
	}
}

// withoutProgress judges a work about whose progress nothing is said. If nothing will be, because no rule asks for it and
// no kind in it is known to have any, then being applied and available is all the success there is; rollouts would
// never get past such a work otherwise.
func withoutProgress(w *work, template *workv1.ManifestWorkSpec, given time.Time) (rollout.State, time.Time) {
	available := w.current(fleet.ConditionAvailable)
	if !isTrue(available) || hasRule(template, fleet.ConditionProgressing) ||
		meta.FindStatusCondition(w.Status.Conditions, fleet.ConditionProgressing) != nil {
		return rollout.Progressing, given
	}
	return rollout.Succeeded, latest(given, available.LastTransitionTime.Time)
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

// current is a condition if it is about the present generation of the work, and nil otherwise.
func (w *work) current(kind string) *metav1.Condition {
	condition := meta.FindStatusCondition(w.Status.Conditions, kind)
	if condition == nil || condition.ObservedGeneration != w.Generation {
		return nil
	}
	return condition
}

// writtenAt is when the hub wrote the present spec. Works of another hub do not say; they count as long done.
func (w *work) writtenAt() time.Time {
	at, err := time.Parse(time.RFC3339Nano, w.Annotations[fleet.AnnotationTemplateWrittenAt])
	if err != nil {
		return w.CreationTimestamp.Time
	}
	return at
}

func isTrue(condition *metav1.Condition) bool {
	return condition != nil && condition.Status == metav1.ConditionTrue
}

func isFalse(condition *metav1.Condition) bool {
	return condition != nil && condition.Status == metav1.ConditionFalse
}

func latest(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}
