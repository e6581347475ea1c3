package conditions

import (
	"errors"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"

	workv1 "github.com/capstan-io/capstan/api/work/v1"
)

// WK-31: a rule for a condition takes the place of the one that comes without rules.
func TestRulesWin(t *testing.T) {
	t.Parallel()
	q := Query{Health: true, ConditionRules: []workv1.ConditionRule{{Condition: "Progressing", Type: workv1.CelConditionExpressionsType,
		CelExpressions: []string{"true"}}}}
	deployment := object(t, `{apiVersion: apps/v1, kind: Deployment, metadata: {name: web, generation: 1}, spec: {replicas: 2},
		status: {observedGeneration: 1, replicas: 2, updatedReplicas: 2, availableReplicas: 2}}`)
	set := NewEvaluator().Read(deployment, q, 1024).Conditions
	progressing, degraded := meta.FindStatusCondition(set, "Progressing"), meta.FindStatusCondition(set, "Degraded")
	if len(set) != 2 || progressing.Reason != "ConditionRuleEvaluated" || degraded.Reason != "HealthCurrent" {
		t.Errorf("%+v", set)
	}
	if set := notRead(q).Conditions; len(set) != 1 || set[0].Type != "Degraded" {
		t.Errorf("until it is read: %+v", set)
	}
}

// What is said of an object that cannot be read, or is not there.
func TestNothingToRead(t *testing.T) {
	t.Parallel()
	rules := Query{Health: true, FeedbackRules: []workv1.FeedbackRule{{Type: workv1.WellKnownStatusType}}}
	withheld := "the object cannot be read: the executor of the work lacks the verb get, or that could not be found out"
	for name, test := range map[string]struct {
		reading         *Reading
		failure, health string
	}{
		"not read yet":         {notRead(rules), "", "its state has not been read yet"},
		"not found":            {NotFound(rules), "the object does not exist on the managed cluster", "the object does not exist"},
		"not found, not asked": {NotFound(Query{Health: true}), "", "the object does not exist"},
		"unreadable": {Unreadable(rules, errors.New("no route")), "the object cannot be read: no route",
			"the object cannot be read: no route"},
		"withheld": {Withheld(rules), withheld, withheld},
	} {
		progressing := meta.FindStatusCondition(test.reading.Conditions, "Progressing")
		if test.reading.Failure != test.failure || progressing == nil || progressing.Status != "True" || progressing.Message != test.health {
			t.Errorf("%s: failure %q, conditions %+v", name, test.reading.Failure, test.reading.Conditions)
		}
	}
}
