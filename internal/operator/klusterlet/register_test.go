package klusterlet

import (
	"slices"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	operatorv1 "github.com/capstan-io/capstan/api/operator/v1"
)

// KL-04, KL-28: a Klusterlet is reconciled when Secrets change where its agents run or ran, or where the kubeconfig of a hosted one is.
func TestNamespacesOf(t *testing.T) {
	t.Parallel()
	for _, mode := range modes {
		k := &operatorv1.Klusterlet{ObjectMeta: metav1.ObjectMeta{Name: "indigo",
			Annotations: map[string]string{annotationAgentNamespace: "former"}}}
		k.Spec.DeployOption.Mode, k.Spec.Namespace = mode, "agent"
		for _, namespace := range []string{"agent", "former", "indigo"} {
			if got := namespacesOf(k); !slices.Contains(got, namespace) || slices.Contains(got, "other") {
				t.Errorf("%s: %v", mode, got)
			}
		}
	}
}
