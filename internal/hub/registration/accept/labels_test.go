package accept_test

import (
	"testing"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	clusterv1 "github.com/capstan-io/capstan/api/cluster/v1"
	workv1 "github.com/capstan-io/capstan/api/work/v1"
	"github.com/capstan-io/capstan/internal/hub/registration/accept"
)

// CM-27: the labels of --labels are on everything that the hub makes for a cluster, beside its own and those of others, also when
// they come later.
func TestLabels(t *testing.T) {
	t.Parallel()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{corev1.AddToScheme, rbacv1.AddToScheme, coordinationv1.AddToScheme,
		clusterv1.AddToScheme, workv1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	cluster := &clusterv1.ManagedCluster{ObjectMeta: metav1.ObjectMeta{Name: "c1"}, Spec: clusterv1.ManagedClusterSpec{HubAcceptsClient: true}}
	taken := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "c1", Labels: map[string]string{"of": "another", "team": "old"}}}
	api := fake.NewClientBuilder().WithScheme(scheme).WithObjects(cluster, taken).WithStatusSubresource(cluster).Build()
	reconcile := func(labels map[string]string) {
		t.Helper()
		controller := accept.New(api, api, events.NewFakeRecorder(100), accept.Options{Labels: labels, Clock: clock.RealClock{}})
		if _, err := controller.Reconcile(t.Context(), ctrl.Request{NamespacedName: client.ObjectKeyFromObject(cluster)}); err != nil {
			t.Fatal(err)
		}
	}
	named := func(namespace, name string) metav1.ObjectMeta {
		return metav1.ObjectMeta{Namespace: namespace, Name: name}
	}
	expect := func(want map[string]string) {
		t.Helper()
		const ofCluster = "open-cluster-management:managedcluster:"
		for _, o := range []client.Object{
			&corev1.Namespace{ObjectMeta: named("", "c1")}, &coordinationv1.Lease{ObjectMeta: named("c1", "managed-cluster-lease")},
			&rbacv1.ClusterRole{ObjectMeta: named("", ofCluster+"c1")}, &rbacv1.ClusterRoleBinding{ObjectMeta: named("", ofCluster+"c1")},
			&rbacv1.RoleBinding{ObjectMeta: named("c1", ofCluster+"c1:registration")},
			&rbacv1.RoleBinding{ObjectMeta: named("c1", ofCluster+"c1:work")},
			&rbacv1.ClusterRole{ObjectMeta: named("", ofCluster+"registration")}, &rbacv1.ClusterRole{ObjectMeta: named("", ofCluster+"work")},
		} {
			key := client.ObjectKeyFromObject(o)
			if err := api.Get(t.Context(), key, o); err != nil {
				t.Error(err)
				continue
			}
			for label, value := range want {
				if got := o.GetLabels()[label]; got != value {
					t.Errorf("%T %s has %s=%q, want %q", o, key, label, got, value)
				}
			}
			if common := key.Namespace == "" && key.Name != "c1" && key.Name != ofCluster+"c1"; !common &&
				o.GetLabels()["open-cluster-management.io/cluster-name"] != "c1" {
				t.Errorf("%T %s has lost the name of its cluster: %v", o, key, o.GetLabels())
			}
		}
	}
	reconcile(nil)
	reconcile(map[string]string{"team": "a", "stage": "prod"})
	expect(map[string]string{"team": "a", "stage": "prod"})
	reconcile(map[string]string{"team": "b"})
	expect(map[string]string{"team": "b"})
	if err := api.Get(t.Context(), client.ObjectKeyFromObject(taken), taken); err != nil || taken.Labels["of"] != "another" {
		t.Errorf("labels of others are gone: %v, %v", taken.Labels, err)
	}
}
