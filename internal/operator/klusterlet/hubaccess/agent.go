package hubaccess

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/capstan-io/capstan/internal/machinery/fleet"
)

// agentFails is the start of what the condition has of the agent.
const agentFails = "The agent does not reach the hub since "

// WithAgent adds to the condition what the agent says of its own connection; nil if the agent says nothing. The condition is nil while
// nothing else is known. A reason that says what is wrong with the credentials stays.
func WithAgent(condition *metav1.Condition, report *corev1.ConfigMap) *metav1.Condition {
	if report == nil {
		return condition
	}
	message := fmt.Sprintf("%s%s: %s", agentFails, report.Data[fleet.KeyHubConnectionSince], report.Data[fleet.KeyHubConnectionMessage])
	if condition != nil && condition.Status == metav1.ConditionTrue {
		added := condition.DeepCopy()
		added.Message += "\n" + message
		return added
	}
	return &metav1.Condition{Type: fleet.ConditionHubConnectionDegraded, Status: metav1.ConditionTrue,
		Reason: fleet.ReasonHubUnreachableFromAgent, Message: message}
}

// AgentFails reports whether the condition, which may be nil, says that the agent does not reach the hub.
func AgentFails(condition *metav1.Condition) bool {
	return condition != nil && strings.Contains(condition.Message, agentFails)
}
