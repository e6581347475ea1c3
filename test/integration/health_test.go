package integration

import (
	"context"
	"fmt"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	eventsv1 "k8s.io/api/events/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1 "github.com/capstan-io/capstan/api/cluster/v1"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
	"github.com/capstan-io/capstan/test/env"
)

// awaitCluster waits until a cluster's condition has the status and reason, and the cluster those of the hub's own taints.
func awaitCluster(t *testing.T, c client.Client, name, kind string, status metav1.ConditionStatus, reason string, taints ...string) {
	t.Helper()
	env.Eventually(t, func(ctx context.Context) error {
		mc := &clusterv1.ManagedCluster{}
		if err := c.Get(ctx, client.ObjectKey{Name: name}, mc); err != nil {
			return err
		}
		cond := meta.FindStatusCondition(mc.Status.Conditions, kind)
		if cond == nil || cond.Status != status || cond.Reason != reason {
			return fmt.Errorf("want %s=%s (%s), have %+v", kind, status, reason, cond)
		}
		var have []string
		for _, taint := range mc.Spec.Taints {
			if taint.Effect != clusterv1.TaintEffectNoSelect || taint.TimeAdded.IsZero() {
				return fmt.Errorf("taint %+v", taint)
			}
			have = append(have, taint.Key)
		}
		if fmt.Sprint(have) != fmt.Sprint(taints) {
			return fmt.Errorf("want the taints %v, have %v", taints, have)
		}
		return nil
	})
}

func awaitEvent(t *testing.T, c client.Client, namespace, reason string) {
	t.Helper()
	env.Eventually(t, func(ctx context.Context) error {
		events := &eventsv1.EventList{}
		if err := c.List(ctx, events, client.InNamespace(namespace)); err != nil {
			return err
		}
		for _, e := range events.Items {
			if e.Reason == reason {
				return nil
			}
		}
		return fmt.Errorf("no event %s among %d in namespace %s", reason, len(events.Items), namespace)
	})
}

// RG-21 RG-28: a cluster whose agent is gone becomes Unknown and unreachable after five lease durations, and comes back
// with its agent.
func TestLostCluster(t *testing.T) {
	t.Parallel()
	c := hub.Client(t)
	const name = "lost"
	agent := env.Join(t, hub, managed, name)
	awaitCluster(t, c, name, fleet.ConditionClusterAvailable, metav1.ConditionTrue, fleet.ReasonManagedClusterAvailable)
	mc := managedCluster(t, name)
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
	awaitCluster(t, c, name, fleet.ConditionClusterAvailable, metav1.ConditionUnknown, fleet.ReasonManagedClusterLeaseUpdateStopped,
		fleet.TaintUnreachable)
	awaitEvent(t, c, name, fleet.EventAvailableUnknown)
	if err := agent.Start(); err != nil {
		t.Fatal(err)
	}
	awaitCluster(t, c, name, fleet.ConditionClusterAvailable, metav1.ConditionTrue, fleet.ReasonManagedClusterAvailable)
}

// RG-28: nobody places anything on a cluster that has never reported.
func TestNewClusterIsUnreachable(t *testing.T) {
	t.Parallel()
	c := hub.Client(t)
	const name = "never-heard-of"
	create(t, c, &clusterv1.ManagedCluster{ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: clusterv1.ManagedClusterSpec{HubAcceptsClient: true}})
	awaitCluster(t, c, name, fleet.ConditionHubAccepted, metav1.ConditionTrue, fleet.ReasonHubClusterAdminAccepted, fleet.TaintUnreachable)
}

// RG-22: the hub says that a cluster's clock is off, and goes on hearing the cluster.
func TestClockSkew(t *testing.T) {
	t.Parallel()
	c := hub.Client(t)
	const name = "skewed"
	create(t, c, &clusterv1.ManagedCluster{ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: clusterv1.ManagedClusterSpec{HubAcceptsClient: true}})
	awaitCluster(t, c, name, fleet.ConditionClockSynced, metav1.ConditionTrue, fleet.ReasonManagedClusterClockSynced, fleet.TaintUnreachable)
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
	awaitCluster(t, c, name, fleet.ConditionClockSynced, metav1.ConditionFalse, fleet.ReasonManagedClusterClockOutOfSync,
		fleet.TaintUnreachable)
	if meta.FindStatusCondition(managedCluster(t, name).Status.Conditions, fleet.ConditionClusterAvailable) != nil {
		t.Error("a heartbeat by a clock that is off counts as none")
	}
	beat(time.Now())
	awaitCluster(t, c, name, fleet.ConditionClockSynced, metav1.ConditionTrue, fleet.ReasonManagedClusterClockSynced, fleet.TaintUnreachable)
	mc := managedCluster(t, name)
	before := mc.DeepCopy()
	mc.Annotations = map[string]string{fleet.AnnotationSkipClockSyncCheck: "true"}
	if err := c.Patch(t.Context(), mc, client.MergeFrom(before)); err != nil {
		t.Fatal(err)
	}
	beat(time.Now().Add(time.Hour))
	awaitEvent(t, c, metav1.NamespaceDefault, fleet.EventManagedClusterClockSyncedConditionUpdated)
	awaitCluster(t, c, name, fleet.ConditionClockSynced, metav1.ConditionTrue, fleet.ReasonManagedClusterClockSynced, fleet.TaintUnreachable)
}
