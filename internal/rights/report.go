package rights

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// The condition that says what the operator may not do. There is none while nothing is missing.
const (
	ConditionPermitted = "OperatorPermitted"
	// ReasonRulesMissing is its reason, and that of the event: False.
	ReasonRulesMissing = "RulesMissing"
)

// Report writes the condition with the rules that are missing, and records an event when others are missing than before.
func Report(recorder events.EventRecorder, about client.Object, conditions *[]metav1.Condition, rules []string) {
	message := Describe(rules)
	if message == "" {
		meta.RemoveStatusCondition(conditions, ConditionPermitted)
		return
	}
	before := meta.FindStatusCondition(*conditions, ConditionPermitted)
	if before == nil || before.Message != message {
		recorder.Eventf(about, nil, corev1.EventTypeWarning, ReasonRulesMissing, "Install", "%s", note(rules))
	}
	meta.SetStatusCondition(conditions, metav1.Condition{Type: ConditionPermitted, Status: metav1.ConditionFalse,
		Reason: ReasonRulesMissing, Message: message, ObservedGeneration: about.GetGeneration()})
}

// longestNote is the number of bytes that the API server accepts as the note of an event.
const longestNote = 1024

// note is what an event says of the rules: all of them, or the first ones and where the others are.
func note(rules []string) string {
	rules = distinct(rules)
	text := Describe(rules)
	for shown := len(rules) - 1; len(text) > longestNote && shown > 0; shown-- {
		text = fmt.Sprintf("%s; and %d more, in the condition %s", Describe(rules[:shown]), len(rules)-shown, ConditionPermitted)
	}
	return text
}
