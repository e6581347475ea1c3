package conditions

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	workv1 "github.com/capstan-io/capstan/api/work/v1"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
	"github.com/capstan-io/capstan/internal/machinery/manifest/objecthealth"
)

var (
	jobKind = schema.GroupKind{Group: "batch", Kind: "Job"}
	podKind = schema.GroupKind{Kind: "Pod"}
)

// wellKnown evaluates a rule of type WellKnownConditions: whether a Job or a Pod has completed or failed. It knows no other kinds.
func wellKnown(object *unstructured.Unstructured, rule workv1.ConditionRule) (cond metav1.Condition, ok bool) {
	kind := object.GroupVersionKind().GroupKind()
	if !hasWellKnown(kind, rule) {
		return cond, false
	}
	var finished bool
	switch kind {
	case jobKind:
		finished = hasTrueCondition(object, "Complete", "Failed")
	case podKind:
		phase, _, _ := unstructured.NestedString(object.Object, "status", "phase")
		finished = phase == "Succeeded" || phase == "Failed"
	}
	message := rule.Message
	if message == "" {
		message = defaultMessage(fleet.ConditionComplete, finished)
	}
	return metav1.Condition{
		Type: fleet.ConditionComplete, Status: statusOf(finished), Reason: fleet.ReasonConditionRuleEvaluated, Message: clip(message),
	}, true
}

// hasWellKnown reports whether a rule of type WellKnownConditions sets a condition of an object of the kind.
func hasWellKnown(kind schema.GroupKind, rule workv1.ConditionRule) bool {
	return (rule.Condition == "" || rule.Condition == fleet.ConditionComplete) && (kind == jobKind || kind == podKind)
}

func hasTrueCondition(object *unstructured.Unstructured, kinds ...string) bool {
	conditions, _, _ := unstructured.NestedSlice(object.Object, "status", "conditions")
	for _, c := range conditions {
		fields, _ := c.(map[string]any)
		for _, kind := range kinds {
			if fields["type"] == kind && fields["status"] == string(metav1.ConditionTrue) {
				return true
			}
		}
	}
	return false
}

// ofHealth returns the conditions that an object of a known kind has without any rule.
func ofHealth(h objecthealth.Health) []metav1.Condition {
	progressing, degraded, reason := metav1.ConditionFalse, metav1.ConditionFalse, fleet.ReasonHealthCurrent
	switch h.Phase {
	case objecthealth.InProgress:
		progressing, reason = metav1.ConditionTrue, fleet.ReasonHealthInProgress
	case objecthealth.Failed:
		progressing, degraded, reason = metav1.ConditionTrue, metav1.ConditionTrue, fleet.ReasonHealthFailed
	}
	message := clip(h.Message)
	return []metav1.Condition{
		{Type: fleet.ConditionProgressing, Status: progressing, Reason: reason, Message: message},
		{Type: fleet.ConditionDegraded, Status: degraded, Reason: reason, Message: message},
	}
}
