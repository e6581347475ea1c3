package integration

import (
	"context"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1 "github.com/capstan-io/capstan/api/cluster/v1"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
	"github.com/capstan-io/capstan/test/env"
)

func mergePatch(t *testing.T, c client.Client, o client.Object, patch string) {
	t.Helper()
	if err := c.Patch(t.Context(), o, client.RawPatch(types.MergePatchType, []byte(patch))); err != nil {
		t.Fatal(err)
	}
}

func deleteCluster(t *testing.T, c client.Client, name string) *clusterv1.ManagedCluster {
	t.Helper()
	mc := &clusterv1.ManagedCluster{ObjectMeta: metav1.ObjectMeta{Name: name}}
	if err := c.Delete(t.Context(), mc); err != nil {
		t.Fatal(err)
	}
	return mc
}

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
	c, m := hub.Client(t), managed.Client(t)
	const name = "leaves"
	env.Join(t, hub, managed, name)
	ns := namespace(t, m, name)
	w := work(name, name+"-w", configMap(ns, "cm", "v"))
	create(t, c, w)
	awaitCondition(t, c, w, fleet.ConditionApplied, metav1.ConditionTrue)
	awaitGone(t, c, deleteCluster(t, c, name))
	awaitGone(t, m, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "cm"}})
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
	c, m := hub.Client(t), managed.Client(t)
	const name = "leaves-lost"
	agent := env.Join(t, hub, managed, name)
	w := work(name, name+"-w", configMap(namespace(t, m, name), "cm", "v"))
	create(t, c, w)
	awaitCondition(t, c, w, fleet.ConditionApplied, metav1.ConditionTrue)
	mergePatch(t, c, managedCluster(t, name), `{"spec":{"leaseDurationSeconds":1}}`)
	agent.Kill()
	mc := deleteCluster(t, c, name)
	awaitDeleting(t, c, name, fleet.ReasonResourceRemaining, "kubectl annotate managedcluster "+name)
	mergePatch(t, c, mc, `{"metadata":{"annotations":{"capstan.io/deletion-timeout":"soon"}}}`)
	awaitDeleting(t, c, name, fleet.ReasonDeletingError, `"soon" is no duration`)
	mergePatch(t, c, mc, `{"metadata":{"annotations":{"capstan.io/deletion-timeout":"1000h"}}}`)
	awaitDeleting(t, c, name, fleet.ReasonResourceRemaining, "goes on without it at")
	mergePatch(t, c, mc, `{"metadata":{"annotations":{"capstan.io/deletion-timeout":"0s"}}}`)
	awaitGone(t, c, mc)
	awaitGone(t, c, w)
}

// RG-44: what has a higher priority goes when everything that has a lower one has gone.
func TestCleanupPriority(t *testing.T) {
	t.Parallel()
	c := hub.Client(t)
	const name = "leaves-in-order"
	create(t, c, &clusterv1.ManagedCluster{ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: clusterv1.ManagedClusterSpec{HubAcceptsClient: true}})
	awaitCluster(t, c, name, fleet.ConditionHubAccepted, metav1.ConditionTrue, fleet.ReasonHubClusterAdminAccepted, fleet.TaintUnreachable)
	held := work(name, name+"-held", configMap("default", "a", "v"))
	held.Finalizers = []string{"example.com/held"}
	later := work(name, "later", configMap("default", "b", "v"))
	later.Annotations = map[string]string{fleet.AnnotationCleanupPriority: "50"}
	create(t, c, held, later)
	env.Eventually(t, func(ctx context.Context) error {
		mc := &clusterv1.ManagedCluster{}
		if err := c.Get(ctx, client.ObjectKey{Name: name}, mc); err != nil || len(mc.Finalizers) != 2 {
			return fmt.Errorf("finalizers %v: %w", mc.Finalizers, err)
		}
		return nil
	})
	mc := deleteCluster(t, c, name)
	awaitDeleting(t, c, name, fleet.ReasonResourceRemaining, "2 manifestworks remain in the namespace "+name)
	if err := c.Get(t.Context(), client.ObjectKeyFromObject(later), later); err != nil || !later.DeletionTimestamp.IsZero() {
		t.Errorf("the later one is deleted with the first: %v", err)
	}
	if err := c.Get(t.Context(), client.ObjectKeyFromObject(held), held); err != nil || held.DeletionTimestamp.IsZero() {
		t.Errorf("the first is not deleted: %v", err)
	}
	mergePatch(t, c, held, `{"metadata":{"finalizers":null}}`)
	awaitGone(t, c, later)
	awaitGone(t, c, mc)
	awaitEvent(t, c, metav1.NamespaceDefault, fleet.EventResourceCleanupCompleted)
}
