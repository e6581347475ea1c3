package accept

import (
	"maps"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"

	"github.com/capstan-io/capstan/internal/fleet"
)

// A binding of an add-on on a cluster, of which there may be many, is nothing to look at the cluster for.
func TestClusterOfObject(t *testing.T) {
	t.Parallel()
	binding := &rbacv1.RoleBinding{}
	binding.Labels = map[string]string{fleet.LabelClusterName: "c1"}
	if requests := clusterOfObject(t.Context(), binding); len(requests) != 1 || requests[0].Name != "c1" {
		t.Errorf("a binding of the cluster asks for %v", requests)
	}
	binding.Labels = maps.Clone(binding.Labels)
	binding.Labels[fleet.LabelAddOnName] = "hello"
	if requests := clusterOfObject(t.Context(), binding); len(requests) > 0 {
		t.Errorf("a binding of an add-on asks for %v", requests)
	}
}
