package framework

import (
	"context"
	"fmt"
	"testing"

	eventsv1 "k8s.io/api/events/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1 "github.com/capstan-io/capstan/api/cluster/v1"
	"github.com/capstan-io/capstan/test/env"
)

// AwaitCluster waits until a cluster's condition has the status and reason, and the cluster those of the hub's own taints.
func AwaitCluster(t *testing.T, c client.Client, name, kind string, status metav1.ConditionStatus, reason string, taints ...string) {
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

// AwaitEvent waits until there is an event with the reason.
func AwaitEvent(t *testing.T, c client.Client, namespace, reason string) {
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
