package accept_test

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	clusterv1 "github.com/capstan-io/capstan/api/cluster/v1"
	"github.com/capstan-io/capstan/internal/hub/registration/accept"
)

// RG-16: a name whose group or roles all clusters share gives no right, even where admission let it pass, and nothing that is
// shared goes with the cluster.
func TestReservedNameGetsNoRights(t *testing.T) {
	t.Parallel()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{corev1.AddToScheme, rbacv1.AddToScheme, clusterv1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	cluster := &clusterv1.ManagedCluster{
		ObjectMeta: metav1.ObjectMeta{Name: "work", Finalizers: []string{"cluster.open-cluster-management.io/api-resource-cleanup"}},
		Spec:       clusterv1.ManagedClusterSpec{HubAcceptsClient: true},
	}
	shared := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "open-cluster-management:managedcluster:work"}}
	c := fake.NewClientBuilder().WithScheme(scheme).WithObjects(cluster, shared).WithStatusSubresource(cluster).Build()
	controller := accept.New(c, c, events.NewFakeRecorder(10), accept.Options{Clock: clock.RealClock{}})
	request := ctrl.Request{NamespacedName: client.ObjectKeyFromObject(cluster)}
	check := func() {
		t.Helper()
		if _, err := controller.Reconcile(t.Context(), request); err != nil {
			t.Fatal(err)
		}
		namespaces, roles := &corev1.NamespaceList{}, &rbacv1.ClusterRoleList{}
		if err := c.List(t.Context(), namespaces); err != nil || len(namespaces.Items) > 0 {
			t.Errorf("namespaces: %v, %v", namespaces.Items, err)
		}
		if err := c.List(t.Context(), roles); err != nil || len(roles.Items) != 1 || len(roles.Items[0].Rules) > 0 {
			t.Errorf("roles: %+v, %v", roles.Items, err)
		}
	}
	check()
	if err := c.Get(t.Context(), request.NamespacedName, cluster); err != nil {
		t.Fatal(err)
	}
	cond := meta.FindStatusCondition(cluster.Status.Conditions, "HubAcceptedManagedCluster")
	if cond == nil || cond.Status != metav1.ConditionFalse || cond.Reason != "Error" || !strings.Contains(cond.Message, `"work" is reserved`) {
		t.Errorf("condition: %+v", cond)
	}
	if err := c.Delete(t.Context(), cluster); err != nil {
		t.Fatal(err)
	}
	check()
	if err := c.Get(t.Context(), request.NamespacedName, cluster); client.IgnoreNotFound(err) != nil || err == nil {
		t.Errorf("the cluster is still there: %v", err)
	}
}
