package bootstrap

import (
	"errors"
	"fmt"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/utils/clock"

	"github.com/capstan-io/capstan/internal/agent/registration/clientcert"
	"github.com/capstan-io/capstan/internal/agent/registration/hubreport"
)

// KL-31: an attempt to register that gets no answer is reported to the operator; a request that the hub has denied has reached it.
func TestFailureIsReported(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		err  error
		want int
	}{
		"no answer": {errors.New("dial tcp 192.0.2.1:6443: i/o timeout"), 1},
		"denied":    {fmt.Errorf("register: %w", &clientcert.DeniedError{Request: "c1"}), 0},
	} {
		client := fake.NewClientset()
		b := &Bootstrap{Report: hubreport.New(client.CoreV1().ConfigMaps("agent"), clock.RealClock{})}
		b.reportFailure(t.Context(), test.err)
		reports, err := client.CoreV1().ConfigMaps("agent").List(t.Context(), metav1.ListOptions{})
		if err != nil || len(reports.Items) != test.want {
			t.Errorf("%s: %d reports, want %d; %v", name, len(reports.Items), test.want, err)
		}
	}
}
