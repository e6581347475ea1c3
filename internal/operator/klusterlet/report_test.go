package klusterlet

import (
	"slices"
	"strings"
	"testing"

	"github.com/go-logr/logr/funcr"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/log"

	operatorv1 "github.com/capstan-io/capstan/api/operator/v1"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
	"github.com/capstan-io/capstan/internal/operator/frame"
	"github.com/capstan-io/capstan/internal/operator/klusterlet/hubaccess"
)

// KL-31: the operator reads what the agent says of its connection where the agent runs, in all modes.
func TestAgentReport(t *testing.T) {
	t.Parallel()
	for _, mode := range modes {
		l := layoutOf(klusterletWith(mode))
		read := func(objects ...client.Object) *corev1.ConfigMap {
			t.Helper()
			c := &Controller{Operator: &frame.Operator{Client: fake.NewClientBuilder().WithScheme(Scheme()).WithObjects(objects...).Build()}}
			report, err := c.agentReport(t.Context(), l)
			if err != nil {
				t.Errorf("%s: %v", mode, err)
			}
			return report
		}
		if report := read(); report != nil {
			t.Errorf("%s: the report is %v", mode, report)
		}
		stored := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: l.agents, Name: fleet.ConfigMapHubConnection}}
		if report := read(stored); report == nil {
			t.Errorf("%s: there is no report", mode)
		}
	}
}

// KL-31: that the agent does not reach the hub is logged when it starts and when it ends, and not in between.
func TestAgentFailureIsLogged(t *testing.T) {
	t.Parallel()
	var lines []string
	logger := funcr.New(func(_, line string) { lines = append(lines, line) }, funcr.Options{})
	ctx := log.IntoContext(t.Context(), logger)
	works := &metav1.Condition{Type: fleet.ConditionHubConnectionDegraded, Status: metav1.ConditionFalse,
		Reason: fleet.ReasonHubConnectionFunctional}
	fails := hubaccess.WithAgent(works, &corev1.ConfigMap{Data: map[string]string{fleet.KeyHubConnectionMessage: "i/o timeout"}})
	k := klusterletWith(operatorv1.InstallModeDefault)
	for _, condition := range []*metav1.Condition{nil, works, fails, fails, works, works} {
		newReport(k).connection(ctx, condition)
	}
	said := func(text string) int {
		return len(slices.DeleteFunc(slices.Clone(lines), func(line string) bool { return !strings.Contains(line, text) }))
	}
	if len(lines) != 2 || said("i/o timeout") != 1 || said("reaches its hub again") != 1 {
		t.Errorf("the log is %q", lines)
	}
}
