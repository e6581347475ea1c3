package accept

import (
	"maps"
	"testing"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	clusterv1 "github.com/capstan-io/capstan/api/cluster/v1"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
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

// RG-45: a common role is seen to by a cluster that is here to stay. Those that leave, or get no rights, do not see to it.
func TestClusterOfCommonRole(t *testing.T) {
	t.Parallel()
	scheme := runtime.NewScheme()
	if err := clusterv1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	leaving := &clusterv1.ManagedCluster{ObjectMeta: metav1.ObjectMeta{Name: "a", DeletionTimestamp: &metav1.Time{Time: time.Now()},
		Finalizers: []string{"example.com/stay"}}}
	reserved := &clusterv1.ManagedCluster{ObjectMeta: metav1.ObjectMeta{Name: "registration"}}
	stays := &clusterv1.ManagedCluster{ObjectMeta: metav1.ObjectMeta{Name: "z"}}
	role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: fleet.ClusterRoleWork}}
	for want, clusters := range map[string][]client.Object{"z": {leaving, reserved, stays}, "": {leaving, reserved}} {
		c := &Controller{client: fake.NewClientBuilder().WithScheme(scheme).WithObjects(clusters...).Build()}
		var got string
		for _, request := range c.clusterOfRole(t.Context(), role) {
			got += request.Name
		}
		if got != want {
			t.Errorf("%q sees to the role, want %q", got, want)
		}
	}
}
