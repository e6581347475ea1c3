package registration

import (
	"context"
	"fmt"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1 "github.com/capstan-io/capstan/api/cluster/v1"
	clusterv1beta1 "github.com/capstan-io/capstan/api/cluster/v1beta1"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
	"github.com/capstan-io/capstan/test/env"
	"github.com/capstan-io/capstan/test/integration/framework"
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

// PL-04 PL-06, and the first two scenarios of migration with a real cluster: its agent dies, it is unreachable, and the
// decision goes elsewhere; at once, or when the toleration is over and not before.
func TestDecisionsLeaveALostCluster(t *testing.T) {
	t.Parallel()
	s := framework.NewSite(t, "place-lost")
	c := s.C
	agents := map[string]*env.Agent{}
	for _, end := range []string{"a", "b"} {
		name := s.Name + "-" + end
		agents[end] = env.Join(t, framework.Hub, framework.Managed, name)
		mc := &clusterv1.ManagedCluster{ObjectMeta: metav1.ObjectMeta{Name: name}}
		framework.MergePatch(t, c, mc, fmt.Sprintf(`{"metadata":{"labels":{%q:%q}}}`, fleet.LabelClusterSet, s.Name))
	}
	one := framework.SteadyOne()
	const delay = 5 * time.Second
	s.Place(t, "one", one)
	one.Tolerations = []clusterv1beta1.Toleration{{Key: fleet.TaintUnreachable, Operator: clusterv1beta1.TolerationOpExists,
		TolerationSeconds: ptr.To(int64(delay.Seconds()))}}
	s.Place(t, "later", one)
	s.Await(t, "one", "a")
	s.Await(t, "later", "a")
	// The other keeps its minute, so that it is not lost because the machine is busy.
	framework.MergePatch(t, c, &clusterv1.ManagedCluster{ObjectMeta: metav1.ObjectMeta{Name: s.Name + "-a"}},
		`{"spec":{"leaseDurationSeconds":1}}`)
	agents["a"].Kill()
	s.Await(t, "one", "b")
	s.Await(t, "later", "b")
	s.ExpectDelay(t, "a", fleet.TaintUnreachable, delay)
}

// RG-21 RG-28: a cluster whose agent is gone becomes Unknown and unreachable after five lease durations, and comes back
// with its agent.
func TestLostCluster(t *testing.T) {
	t.Parallel()
	c := framework.Hub.Client(t)
	const name = "lost"
	agent := env.Join(t, framework.Hub, framework.Managed, name)
	awaitCluster(t, c, name, fleet.ConditionClusterAvailable, metav1.ConditionTrue, fleet.ReasonManagedClusterAvailable)
	mc := framework.ManagedCluster(t, name)
	before := mc.DeepCopy()
	mc.Spec.LeaseDurationSeconds = 1
	if err := c.Patch(t.Context(), mc, client.MergeFrom(before)); err != nil {
		t.Fatal(err)
	}
	// RG-20: the agent beats faster at once.
	framework.AwaitHeartbeats(t, c, name, 3)
	agent.Kill()
	awaitCluster(t, c, name, fleet.ConditionClusterAvailable, metav1.ConditionUnknown, fleet.ReasonManagedClusterLeaseUpdateStopped,
		fleet.TaintUnreachable)
	framework.AwaitEvent(t, c, name, fleet.EventAvailableUnknown)
	if err := agent.Start(); err != nil {
		t.Fatal(err)
	}
	awaitCluster(t, c, name, fleet.ConditionClusterAvailable, metav1.ConditionTrue, fleet.ReasonManagedClusterAvailable)
}

// RG-28: nobody places anything on a cluster that has never reported.
func TestNewClusterIsUnreachable(t *testing.T) {
	t.Parallel()
	c := framework.Hub.Client(t)
	const name = "never-heard-of"
	framework.Create(t, c, &clusterv1.ManagedCluster{ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: clusterv1.ManagedClusterSpec{HubAcceptsClient: true}})
	awaitCluster(t, c, name, fleet.ConditionHubAccepted, metav1.ConditionTrue, fleet.ReasonHubClusterAdminAccepted, fleet.TaintUnreachable)
}

// RG-22: the hub says that a cluster's clock is off, and goes on hearing the cluster.
func TestClockSkew(t *testing.T) {
	t.Parallel()
	c := framework.Hub.Client(t)
	const name = "skewed"
	framework.Create(t, c, &clusterv1.ManagedCluster{ObjectMeta: metav1.ObjectMeta{Name: name},
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
	if meta.FindStatusCondition(framework.ManagedCluster(t, name).Status.Conditions, fleet.ConditionClusterAvailable) != nil {
		t.Error("a heartbeat by a clock that is off counts as none")
	}
	beat(time.Now())
	awaitCluster(t, c, name, fleet.ConditionClockSynced, metav1.ConditionTrue, fleet.ReasonManagedClusterClockSynced, fleet.TaintUnreachable)
	mc := framework.ManagedCluster(t, name)
	before := mc.DeepCopy()
	mc.Annotations = map[string]string{fleet.AnnotationSkipClockSyncCheck: "true"}
	if err := c.Patch(t.Context(), mc, client.MergeFrom(before)); err != nil {
		t.Fatal(err)
	}
	beat(time.Now().Add(time.Hour))
	framework.AwaitEvent(t, c, metav1.NamespaceDefault, fleet.EventManagedClusterClockSyncedConditionUpdated)
	awaitCluster(t, c, name, fleet.ConditionClockSynced, metav1.ConditionTrue, fleet.ReasonManagedClusterClockSynced, fleet.TaintUnreachable)
}
