package heartbeat

import (
	"slices"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clocktesting "k8s.io/utils/clock/testing"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	clusterv1 "github.com/capstan-io/capstan/api/cluster/v1"
)

// RG-20: heartbeats begin and end with the acceptance of the cluster, and each is told once.
func TestHeartbeats(t *testing.T) {
	t.Parallel()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clusterv1.AddToScheme, coordinationv1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	cluster := &clusterv1.ManagedCluster{ObjectMeta: metav1.ObjectMeta{Name: "c1"},
		Spec: clusterv1.ManagedClusterSpec{HubAcceptsClient: true, LeaseDurationSeconds: 60}}
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: "c1", Name: "managed-cluster-lease"}}
	hub := fake.NewClientBuilder().WithScheme(scheme).WithObjects(cluster, lease).Build()
	clk := clocktesting.NewFakeClock(time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC))
	var told []string
	c := New(hub, hub, Options{Doubt: func() {},
		Record: func(eventType, reason, _, _ string, _ ...any) { told = append(told, eventType+" "+reason) }, Clock: clk})
	reconcile := func() ctrl.Result {
		t.Helper()
		result, err := c.Reconcile(t.Context(), ctrl.Request{NamespacedName: client.ObjectKeyFromObject(cluster)})
		if err != nil {
			t.Fatal(err)
		}
		return result
	}
	for range 2 {
		if again := reconcile().RequeueAfter; again < time.Minute || again > 75*time.Second {
			t.Errorf("the next heartbeat is in %s", again)
		}
		if err := hub.Get(t.Context(), client.ObjectKeyFromObject(lease), lease); err != nil || !lease.Spec.RenewTime.Time.Equal(clk.Now()) {
			t.Errorf("renewed at %v, want %v; %v", lease.Spec.RenewTime, clk.Now(), err)
		}
		clk.Step(75 * time.Second)
	}
	cluster.Spec.HubAcceptsClient = false
	if err := hub.Update(t.Context(), cluster); err != nil {
		t.Fatal(err)
	}
	reconcile()
	reconcile()
	if want := []string{"Normal ManagedClusterLeaseUpdateStarted", "Warning ManagedClusterLeaseUpdateStoped"}; !slices.Equal(told, want) {
		t.Errorf("events %q, want %q", told, want)
	}
}
