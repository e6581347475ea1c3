package cleanup

import (
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/events"
	clocktesting "k8s.io/utils/clock/testing"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	clusterv1 "github.com/capstan-io/capstan/api/cluster/v1"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
)

// RG-44: without the feature gate ResourceCleanup no cluster gets the finalizer, and those that have it lose it, so that their
// deletion does not wait forever. What is in their namespaces stays.
func TestOff(t *testing.T) {
	t.Parallel()
	scheme := runtime.NewScheme()
	if err := clusterv1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	now := metav1.Now()
	for name, test := range map[string]struct {
		finalizers []string
		deleted    bool
	}{
		"plain":   {nil, false},
		"had it":  {[]string{fleet.FinalizerResourceCleanup, fleet.FinalizerManagedCluster}, false},
		"deleted": {[]string{fleet.FinalizerResourceCleanup, fleet.FinalizerManagedCluster}, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cluster := &clusterv1.ManagedCluster{ObjectMeta: metav1.ObjectMeta{Name: "c1", Finalizers: test.finalizers}}
			if test.deleted {
				cluster.DeletionTimestamp = &now
			}
			api := fake.NewClientBuilder().WithScheme(scheme).WithObjects(cluster).WithStatusSubresource(cluster).Build()
			// It has nothing with which to look at what is in the namespace.
			c := New(api, api, nil, events.NewFakeRecorder(1), nil, Options{Disabled: true, Clock: clocktesting.NewFakeClock(now.Time)})
			if _, err := c.Reconcile(t.Context(), ctrl.Request{NamespacedName: client.ObjectKeyFromObject(cluster)}); err != nil {
				t.Fatal(err)
			}
			if err := api.Get(t.Context(), client.ObjectKeyFromObject(cluster), cluster); err != nil {
				t.Fatal(err)
			}
			if len(cluster.Finalizers) > 1 || len(cluster.Finalizers) == 1 && cluster.Finalizers[0] != fleet.FinalizerManagedCluster {
				t.Errorf("finalizers %v", cluster.Finalizers)
			}
			if meta.FindStatusCondition(cluster.Status.Conditions, fleet.ConditionDeleting) != nil {
				t.Errorf("conditions %v", cluster.Status.Conditions)
			}
		})
	}
}
