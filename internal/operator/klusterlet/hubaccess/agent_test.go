package hubaccess

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/capstan-io/capstan/internal/machinery/fleet"
)

// KL-31: what the agent says degrades a connection that works for the operator, and is added to what is wrong with the credentials.
func TestWithAgent(t *testing.T) {
	t.Parallel()
	report := &corev1.ConfigMap{Data: map[string]string{"since": "2026-11-21T12:00:00Z", "message": "i/o timeout"}}
	condition := func(status metav1.ConditionStatus, reason string) *metav1.Condition {
		return &metav1.Condition{Type: fleet.ConditionHubConnectionDegraded, Status: status, Reason: reason, Message: "operator"}
	}
	const pair = fleet.ReasonBootstrapSecretFunctional + "," + fleet.ReasonHubKubeConfigSecretMissing
	for name, test := range map[string]struct {
		operator *metav1.Condition
		report   *corev1.ConfigMap
		reason   string // empty for no condition
		fails    bool
	}{
		"nothing is known":     {nil, nil, "", false},
		"only the agent tells": {nil, report, fleet.ReasonHubUnreachableFromAgent, true},
		"the operator gets there": {condition(metav1.ConditionFalse, fleet.ReasonHubConnectionFunctional), report,
			fleet.ReasonHubUnreachableFromAgent, true},
		"both get there": {condition(metav1.ConditionFalse, fleet.ReasonHubConnectionFunctional), nil,
			fleet.ReasonHubConnectionFunctional, false},
		"both fail": {condition(metav1.ConditionTrue, pair), report, pair, true},
	} {
		got := WithAgent(test.operator, test.report)
		reason := ""
		if got != nil {
			reason = got.Reason
		}
		if reason != test.reason || AgentFails(got) != test.fails {
			t.Errorf("%s: condition %v", name, got)
		}
		if test.fails && (got.Status != metav1.ConditionTrue ||
			!strings.HasSuffix(got.Message, "The agent does not reach the hub since 2026-11-21T12:00:00Z: i/o timeout")) {
			t.Errorf("%s: condition %v", name, got)
		}
		if AgentFails(test.operator) {
			t.Errorf("%s: the result of the check was changed", name)
		}
	}
}
