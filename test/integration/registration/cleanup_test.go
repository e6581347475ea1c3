package registration

import (
	"context"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1 "github.com/capstan-io/capstan/api/cluster/v1"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
	"github.com/capstan-io/capstan/test/env"
	"github.com/capstan-io/capstan/test/integration/framework"
)

// awaitDeleting waits until the cluster's condition Deleting is False and its message has this in it.
func awaitDeleting(t *testing.T, c client.Client, name, reason, message string) {
	t.Helper()
	env.Eventually(t, func(ctx context.Context) error {
		mc := &clusterv1.ManagedCluster{}
		if err := c.Get(ctx, client.ObjectKey{Name: name}, mc); err != nil {
			return err
		}
		cond := meta.FindStatusCondition(mc.Status.Conditions, fleet.ConditionDeleting)
		if cond == nil || cond.Status != metav1.ConditionFalse || cond.Reason != reason || !strings.Contains(cond.Message, message) {
			return fmt.Errorf("want %s with %q, have %+v", reason, message, cond)
		}
		return nil
	})
}

// RG-18 RG-44: the agent of a deleted cluster cleans up, and nothing but the namespace remains.
func TestDeleteCluster(t *testing.T) {
	t.Parallel()
	c, m := framework.Hub.Client(t), framework.Managed.Client(t)
	const name = "leaves"
	env.Join(t, framework.Hub, framework.Managed, name)
	ns := framework.Namespace(t, m, name)
	w := framework.Work(name, name+"-w", framework.ConfigMap(ns, "cm", "v"))
	framework.Create(t, c, w)
	framework.AwaitCondition(t, c, w, fleet.ConditionApplied, metav1.ConditionTrue)
	framework.AwaitGone(t, c, framework.DeleteCluster(t, c, name))
	framework.AwaitGone(t, m, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "cm"}})
	if err := c.Get(t.Context(), client.ObjectKeyFromObject(w), w); !apierrors.IsNotFound(err) {
		t.Errorf("the work is still there: %v", err)
	}
	if err := c.Get(t.Context(), client.ObjectKey{Name: name}, &corev1.Namespace{}); err != nil {
		t.Errorf("the namespace: %v", err)
	}
}

// RG-44: a cluster whose agent is gone for good can be deleted without taking finalizers off by hand.
func TestDeleteLostCluster(t *testing.T) {
	t.Parallel()
	c, m := framework.Hub.Client(t), framework.Managed.Client(t)
	const name = "leaves-lost"
	agent := env.Join(t, framework.Hub, framework.Managed, name)
	w := framework.Work(name, name+"-w", framework.ConfigMap(framework.Namespace(t, m, name), "cm", "v"))
	framework.Create(t, c, w)
	framework.AwaitCondition(t, c, w, fleet.ConditionApplied, metav1.ConditionTrue)
	framework.MergePatch(t, c, framework.ManagedCluster(t, name), `{"spec":{"leaseDurationSeconds":1}}`)
	agent.Kill()
	mc := framework.DeleteCluster(t, c, name)
	awaitDeleting(t, c, name, fleet.ReasonResourceRemaining, "kubectl annotate managedcluster "+name)
	framework.MergePatch(t, c, mc, `{"metadata":{"annotations":{"capstan.io/deletion-timeout":"soon"}}}`)
	awaitDeleting(t, c, name, fleet.ReasonDeletingError, `"soon" is no duration`)
	framework.MergePatch(t, c, mc, `{"metadata":{"annotations":{"capstan.io/deletion-timeout":"1000h"}}}`)
	awaitDeleting(t, c, name, fleet.ReasonResourceRemaining, "goes on without it at")
	framework.MergePatch(t, c, mc, `{"metadata":{"annotations":{"capstan.io/deletion-timeout":"0s"}}}`)
	framework.AwaitGone(t, c, mc)
	framework.AwaitGone(t, c, w)
}

// RG-44: what has a higher priority goes when everything that has a lower one has gone.
func TestCleanupPriority(t *testing.T) {
	t.Parallel()
	c := framework.Hub.Client(t)
	const name = "leaves-in-order"
	framework.Create(t, c, &clusterv1.ManagedCluster{ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: clusterv1.ManagedClusterSpec{HubAcceptsClient: true}})
	awaitCluster(t, c, name, fleet.ConditionHubAccepted, metav1.ConditionTrue, fleet.ReasonHubClusterAdminAccepted, fleet.TaintUnreachable)
	held := framework.Work(name, name+"-held", framework.ConfigMap("default", "a", "v"))
	held.Finalizers = []string{"example.com/held"}
	later := framework.Work(name, "later", framework.ConfigMap("default", "b", "v"))
	later.Annotations = map[string]string{fleet.AnnotationCleanupPriority: "50"}
	framework.Create(t, c, held, later)
	env.Eventually(t, func(ctx context.Context) error {
		mc := &clusterv1.ManagedCluster{}
		if err := c.Get(ctx, client.ObjectKey{Name: name}, mc); err != nil || len(mc.Finalizers) != 2 {
			return fmt.Errorf("finalizers %v: %w", mc.Finalizers, err)
		}
		return nil
	})
	mc := framework.DeleteCluster(t, c, name)
	awaitDeleting(t, c, name, fleet.ReasonResourceRemaining, "2 manifestworks remain in the namespace "+name)
	if err := c.Get(t.Context(), client.ObjectKeyFromObject(later), later); err != nil || !later.DeletionTimestamp.IsZero() {
		t.Errorf("the later one is deleted with the first: %v", err)
	}
	if err := c.Get(t.Context(), client.ObjectKeyFromObject(held), held); err != nil || held.DeletionTimestamp.IsZero() {
		t.Errorf("the first is not deleted: %v", err)
	}
	framework.MergePatch(t, c, held, `{"metadata":{"finalizers":null}}`)
	framework.AwaitGone(t, c, later)
	framework.AwaitGone(t, c, mc)
	framework.AwaitEvent(t, c, metav1.NamespaceDefault, fleet.EventResourceCleanupCompleted)
}
