package framework

import (
	"context"
	"fmt"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1 "github.com/capstan-io/capstan/api/cluster/v1"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
	"github.com/capstan-io/capstan/test/env"
)

// AcceptedCluster is a ManagedCluster that is accepted.
func AcceptedCluster(name string) *clusterv1.ManagedCluster {
	return &clusterv1.ManagedCluster{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: clusterv1.ManagedClusterSpec{HubAcceptsClient: true}}
}

// AwaitHubAccepted waits until the hub says of a cluster whether it is accepted, and why.
func AwaitHubAccepted(t *testing.T, c client.Client, name string, status metav1.ConditionStatus, reason string) *metav1.Condition {
	t.Helper()
	var cond *metav1.Condition
	env.Eventually(t, func(ctx context.Context) error {
		mc := &clusterv1.ManagedCluster{}
		if err := c.Get(ctx, client.ObjectKey{Name: name}, mc); err != nil {
			return err
		}
		if cond = meta.FindStatusCondition(mc.Status.Conditions, fleet.ConditionHubAccepted); cond == nil || cond.Status != status ||
			cond.Reason != reason {
			return fmt.Errorf("conditions %+v, want %s with %s", mc.Status.Conditions, status, reason)
		}
		return nil
	})
	return cond
}

// DeleteCluster deletes a cluster, and returns it as it was.
func DeleteCluster(t *testing.T, c client.Client, name string) *clusterv1.ManagedCluster {
	t.Helper()
	mc := &clusterv1.ManagedCluster{ObjectMeta: metav1.ObjectMeta{Name: name}}
	if err := c.Delete(t.Context(), mc); err != nil {
		t.Fatal(err)
	}
	return mc
}

// AcceptAll makes clusters that are accepted, without agents.
func AcceptAll(t *testing.T, clusters ...string) {
	t.Helper()
	admin := Hub.Client(t)
	for _, cluster := range clusters {
		Create(t, admin, AcceptedCluster(cluster))
	}
	for _, cluster := range clusters {
		AwaitHubAccepted(t, admin, cluster, metav1.ConditionTrue, fleet.ReasonHubClusterAdminAccepted)
	}
}

// OfCluster is the label of what belongs to a cluster.
func OfCluster(cluster string) map[string]string {
	return map[string]string{fleet.LabelClusterName: cluster}
}

// ManagedCluster reads a cluster of the shared hub.
func ManagedCluster(t *testing.T, name string) *clusterv1.ManagedCluster {
	t.Helper()
	mc := &clusterv1.ManagedCluster{}
	if err := Hub.Client(t).Get(t.Context(), client.ObjectKey{Name: name}, mc); err != nil {
		t.Fatal(err)
	}
	return mc
}

// AwaitHeartbeats waits until the agent of a cluster has renewed its lease so many times.
func AwaitHeartbeats(t *testing.T, hub client.Client, cluster string, count int) {
	t.Helper()
	seen := map[time.Time]bool{}
	env.Eventually(t, func(ctx context.Context) error {
		lease := &coordinationv1.Lease{}
		if err := hub.Get(ctx, client.ObjectKey{Namespace: cluster, Name: fleet.ClusterNamespaceLease}, lease); err != nil {
			return err
		}
		if seen[lease.Spec.RenewTime.Time] = true; len(seen) <= count {
			return fmt.Errorf("%d heartbeats of %d", len(seen)-1, count)
		}
		return nil
	})
}
