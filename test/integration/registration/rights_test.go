package registration

import (
	"context"
	"testing"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1 "github.com/capstan-io/capstan/api/cluster/v1"
	workv1 "github.com/capstan-io/capstan/api/work/v1"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
	"github.com/capstan-io/capstan/test/env"
	"github.com/capstan-io/capstan/test/integration/framework"
)

// RG-16: an agent sees and writes what is its own cluster's, and nothing else.
func TestAgentSeesOnlyItsOwn(t *testing.T) {
	t.Parallel()
	env.Join(t, framework.Hub, framework.Managed, "owner")
	stranger := env.Join(t, framework.Hub, framework.Managed, "stranger")
	framework.Create(t, framework.Hub.Client(t), framework.Work("owner", "private", framework.ConfigMap("default", "owner-private", "x")))
	c := env.ClientFor(t, stranger.HubConfig(t))
	ctx := t.Context()

	if err := c.List(ctx, &workv1.ManifestWorkList{}, client.InNamespace("stranger")); err != nil {
		t.Errorf("list its own works: %v", err)
	}
	own := &clusterv1.ManagedCluster{}
	if err := c.Get(ctx, client.ObjectKey{Name: "stranger"}, own); err != nil {
		t.Errorf("get its own ManagedCluster: %v", err)
	}
	private := framework.Work("owner", "private")
	other := &clusterv1.ManagedCluster{ObjectMeta: metav1.ObjectMeta{Name: "owner"}}
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: "owner", Name: fleet.ClusterNamespaceLease}}
	patch := client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"labels":{"by":"stranger"}}}`))
	for what, err := range map[string]error{
		"get another cluster's work":             c.Get(ctx, client.ObjectKeyFromObject(private), private),
		"list another cluster's works":           c.List(ctx, &workv1.ManifestWorkList{}, client.InNamespace("owner")),
		"list all works":                         c.List(ctx, &workv1.ManifestWorkList{}),
		"patch another cluster's work":           c.Patch(ctx, private, patch),
		"patch the status of another's work":     c.Status().Patch(ctx, private, patch),
		"delete another cluster's work":          c.Delete(ctx, private),
		"create a work for itself":               c.Create(ctx, framework.Work("stranger", "self-made", framework.ConfigMap("default", "self-made", "x"))),
		"get another ManagedCluster":             c.Get(ctx, client.ObjectKeyFromObject(other), other),
		"list all ManagedClusters":               c.List(ctx, &clusterv1.ManagedClusterList{}),
		"patch the status of another":            c.Status().Patch(ctx, other, patch),
		"create a ManagedCluster":                c.Create(ctx, &clusterv1.ManagedCluster{ObjectMeta: metav1.ObjectMeta{Name: "third"}}),
		"delete its own ManagedCluster":          c.Delete(ctx, own),
		"get another cluster's lease":            c.Get(ctx, client.ObjectKeyFromObject(lease), lease),
		"list the secrets of its own namespace":  c.List(ctx, &corev1.SecretList{}, client.InNamespace("stranger")),
		"list the secrets of all of the hub":     c.List(ctx, &corev1.SecretList{}),
		"list the namespaces":                    c.List(ctx, &corev1.NamespaceList{}),
		"read the bootstrap tokens":              c.List(ctx, &corev1.SecretList{}, client.InNamespace("kube-system")),
		"delete a work of its own, as a creator": c.Delete(ctx, framework.Work("stranger", "any")),
	} {
		if !apierrors.IsForbidden(err) {
			t.Errorf("an agent may %s: %v", what, err)
		}
	}
}

// WH-05: an agent cannot accept itself.
func TestAgentCannotAcceptItself(t *testing.T) {
	t.Parallel()
	agent := env.NewAgent(t, framework.Hub, framework.Managed, "self-accept", "")
	if err := agent.Start(); err != nil {
		t.Fatal(err)
	}
	env.Accept(t, framework.Hub.Client(t), "self-accept")
	env.AwaitAvailable(t, framework.Hub.Client(t), "self-accept")
	// Denied, it would have to accept itself again. Nothing but its own certificate is left to it.
	mc := framework.ManagedCluster(t, "self-accept")
	c := env.ClientFor(t, agent.HubConfig(t))
	deny := client.MergeFrom(mc.DeepCopy())
	mc.Spec.HubAcceptsClient = false
	if err := framework.Hub.Client(t).Patch(t.Context(), mc, deny); err != nil {
		t.Fatal(err)
	}
	env.Eventually(t, func(context.Context) error {
		accepted := framework.ManagedCluster(t, "self-accept")
		accepted.Spec.HubAcceptsClient = true
		err := c.Update(t.Context(), accepted)
		if apierrors.IsConflict(err) {
			return err // the hub is at work on it
		}
		if !apierrors.IsForbidden(err) {
			t.Errorf("an agent accepts itself: %v", err)
		}
		return nil
	})
}

// WH-05: an agent may update its own ManagedCluster, but neither let itself in nor out.
func TestAgentCannotLeaveByItself(t *testing.T) {
	t.Parallel()
	const name = "stays"
	agent := env.Join(t, framework.Hub, framework.Managed, name)
	c := env.ClientFor(t, agent.HubConfig(t))
	patch := client.RawPatch("application/merge-patch+json", []byte(`{"spec":{"hubAcceptsClient":false}}`))
	if err := c.Patch(t.Context(), framework.ManagedCluster(t, name), patch); !apierrors.IsForbidden(err) {
		t.Errorf("got %v, want 403", err)
	}
}
