package progress

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"

	addonv1beta1 "github.com/capstan-io/capstan/api/addon/v1beta1"
	workv1 "github.com/capstan-io/capstan/api/work/v1"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
)

// Record sets the status that follows from the works of an add-on: the condition Progressing, and what is applied. The time of the
// condition is when the add-on became done or stopped being done, whatever its status says: the soak time of a rollout and the deadline
// of a cluster count from there, and works that alternate between failed and not ready do not put the deadline off.
func Record(addOn *addonv1beta1.ManagedClusterAddOn, works []workv1.ManifestWork, now time.Time) {
	wasDone, since := IsDone(addOn), metav1.NewTime(now)
	if before := meta.FindStatusCondition(addOn.Status.Conditions, fleet.ConditionProgressing); before != nil {
		since = before.LastTransitionTime
	}
	condition, applied := Evaluate(addOn, works)
	Set(addOn, condition, now)
	if applied {
		for i := range addOn.Status.ConfigReferences {
			addOn.Status.ConfigReferences[i].LastAppliedConfig = addOn.Status.ConfigReferences[i].DesiredConfig.DeepCopy()
		}
	}
	if IsDone(addOn) != wasDone {
		since = metav1.NewTime(now)
	}
	meta.FindStatusCondition(addOn.Status.Conditions, condition.Type).LastTransitionTime = since
}

// Set sets a condition in the status of an add-on.
func Set(addOn *addonv1beta1.ManagedClusterAddOn, condition metav1.Condition, now time.Time) {
	condition.ObservedGeneration = addOn.Generation
	condition.LastTransitionTime = metav1.NewTime(now)
	meta.SetStatusCondition(&addOn.Status.Conditions, condition)
}

// IsDone reports whether the add-on had applied its configurations and was healthy when last recorded.
func IsDone(addOn *addonv1beta1.ManagedClusterAddOn) bool {
	condition := meta.FindStatusCondition(addOn.Status.Conditions, fleet.ConditionProgressing)
	if condition == nil {
		return false
	}
	return condition.Reason == fleet.ReasonCompleted || condition.Reason == fleet.ReasonConfigurationUnsupported && IsApplied(addOn)
}

// IsApplied reports whether all desired configurations of an add-on have been applied.
func IsApplied(addOn *addonv1beta1.ManagedClusterAddOn) bool {
	return !slices.ContainsFunc(addOn.Status.ConfigReferences, func(r addonv1beta1.ConfigReference) bool {
		return r.DesiredConfig == nil || r.LastAppliedConfig == nil || *r.DesiredConfig != *r.LastAppliedConfig
	})
}

// RecordEvents writes an event when the add-on reaches a state that an administrator should see.
func RecordEvents(recorder events.EventRecorder, addOn, before *addonv1beta1.ManagedClusterAddOn) {
	now := meta.FindStatusCondition(addOn.Status.Conditions, fleet.ConditionProgressing)
	then := meta.FindStatusCondition(before.Status.Conditions, fleet.ConditionProgressing)
	if now == nil || then != nil && then.Reason == now.Reason {
		return
	}
	if now.Reason == fleet.ReasonConfigurationUnsupported || now.Reason == fleet.ReasonFailed {
		recorder.Eventf(addOn, nil, corev1.EventTypeWarning, now.Reason, "UpdateCondition", "%s", now.Message)
	}
}
