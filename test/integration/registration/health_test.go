package registration

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
	"github.com/capstan-io/capstan/test/integration/framework"
)

// RG-21 RG-28: a cluster whose agent is gone becomes Unknown and unreachable after five lease durations, and comes back
// with its agent.
func TestLostCluster(t *testing.T) {
	t.Parallel()
	c := framework.Hub.Client(t)
	const name = "lost"
	agent := env.Join(t, framework.Hub, framework.Managed, name)
	framework.AwaitCluster(t, c, name, fleet.ConditionClusterAvailable, metav1.ConditionTrue, fleet.ReasonManagedClusterAvailable)
	mc := framework.ManagedCluster(t, name)
	before := mc.DeepCopy()
	mc.Spec.LeaseDurationSeconds = 1
	if err := c.Patch(t.Context(), mc, client.MergeFrom(before)); err != nil {
		t.Fatal(err)
	}
	// RG-20: the agent beats faster at once.
	beats := map[time.Time]bool{}
	env.Eventually(t, func(ctx context.Context) error {
		lease := &coordinationv1.Lease{}
		if err := c.Get(ctx, client.ObjectKey{Namespace: name, Name: fleet.ClusterNamespaceLease}, lease); err != nil {
			return err
		}
		if beats[lease.Spec.RenewTime.Time] = true; len(beats) < 4 {
			return fmt.Errorf("%d heartbeats", len(beats))
		}
		return nil
	})
	agent.Kill()
	framework.AwaitCluster(t, c, name, fleet.ConditionClusterAvailable, metav1.ConditionUnknown, fleet.ReasonManagedClusterLeaseUpdateStopped,
		fleet.TaintUnreachable)
	framework.AwaitEvent(t, c, name, fleet.EventAvailableUnknown)
	if err := agent.Start(); err != nil {
		t.Fatal(err)
	}
	framework.AwaitCluster(t, c, name, fleet.ConditionClusterAvailable, metav1.ConditionTrue, fleet.ReasonManagedClusterAvailable)
}

// RG-28: nobody places anything on a cluster that has never reported.
func TestNewClusterIsUnreachable(t *testing.T) {
	t.Parallel()
	c := framework.Hub.Client(t)
	const name = "never-heard-of"
	framework.Create(t, c, &clusterv1.ManagedCluster{ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: clusterv1.ManagedClusterSpec{HubAcceptsClient: true}})
	framework.AwaitCluster(t, c, name, fleet.ConditionHubAccepted, metav1.ConditionTrue, fleet.ReasonHubClusterAdminAccepted,
		fleet.TaintUnreachable)
}

// RG-22: the hub says that a cluster's clock is off, and goes on hearing the cluster.
func TestClockSkew(t *testing.T) {
	t.Parallel()
	c := framework.Hub.Client(t)
	const name = "skewed"
	framework.Create(t, c, &clusterv1.ManagedCluster{ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: clusterv1.ManagedClusterSpec{HubAcceptsClient: true}})
	framework.AwaitCluster(t, c, name, fleet.ConditionClockSynced, metav1.ConditionTrue, fleet.ReasonManagedClusterClockSynced,
		fleet.TaintUnreachable)
	beat := func(clock time.Time) {
		t.Helper()
		lease := &coordinationv1.Lease{}
		if err := c.Get(t.Context(), client.ObjectKey{Namespace: name, Name: fleet.ClusterNamespaceLease}, lease); err != nil {
			t.Fatal(err)
		}
		micro := metav1.NewMicroTime(clock)
		lease.Spec.RenewTime = &micro
		if err := c.Update(t.Context(), lease); err != nil {
			t.Fatal(err)
		}
	}
	beat(time.Now().Add(-time.Hour))
	framework.AwaitCluster(t, c, name, fleet.ConditionClockSynced, metav1.ConditionFalse, fleet.ReasonManagedClusterClockOutOfSync,
		fleet.TaintUnreachable)
	if meta.FindStatusCondition(framework.ManagedCluster(t, name).Status.Conditions, fleet.ConditionClusterAvailable) != nil {
		t.Error("a heartbeat by a clock that is off counts as none")
	}
	beat(time.Now())
	framework.AwaitCluster(t, c, name, fleet.ConditionClockSynced, metav1.ConditionTrue, fleet.ReasonManagedClusterClockSynced,
		fleet.TaintUnreachable)
	mc := framework.ManagedCluster(t, name)
	before := mc.DeepCopy()
	mc.Annotations = map[string]string{fleet.AnnotationSkipClockSyncCheck: "true"}
	if err := c.Patch(t.Context(), mc, client.MergeFrom(before)); err != nil {
		t.Fatal(err)
	}
	beat(time.Now().Add(time.Hour))
	framework.AwaitEvent(t, c, metav1.NamespaceDefault, fleet.EventManagedClusterClockSyncedConditionUpdated)
	framework.AwaitCluster(t, c, name, fleet.ConditionClockSynced, metav1.ConditionTrue, fleet.ReasonManagedClusterClockSynced,
		fleet.TaintUnreachable)
}
