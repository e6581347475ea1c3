package registration

import (
	"context"
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1 "github.com/capstan-io/capstan/api/cluster/v1"
	clusterv1beta2 "github.com/capstan-io/capstan/api/cluster/v1beta2"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
	"github.com/capstan-io/capstan/test/env"
	"github.com/capstan-io/capstan/test/integration/framework"
)

// awaitManagedNamespaces waits until the hub lists these namespaces, as set/name, all of them available.
func awaitManagedNamespaces(t *testing.T, c client.Client, cluster string, want ...string) {
	t.Helper()
	env.Eventually(t, func(ctx context.Context) error {
		mc := &clusterv1.ManagedCluster{}
		if err := c.Get(ctx, client.ObjectKey{Name: cluster}, mc); err != nil {
			return err
		}
		var have []string
		for _, ns := range mc.Status.ManagedNamespaces {
			if meta.IsStatusConditionTrue(ns.Conditions, fleet.ConditionNamespaceAvailable) {
				have = append(have, ns.ClusterSet+"/"+ns.Name)
			}
		}
		if len(have) != len(mc.Status.ManagedNamespaces) || fmt.Sprint(have) != fmt.Sprint(want) {
			return fmt.Errorf("want %v, have %v of %+v", want, have, mc.Status.ManagedNamespaces)
		}
		return nil
	})
}

// RG-43
func TestManagedNamespaces(t *testing.T) {
	t.Parallel()
	c, m := framework.Hub.Client(t), framework.Managed.Client(t)
	const name = "managed-ns"
	label := func(ns, want string) {
		t.Helper()
		config, err := framework.Hub.Config()
		if err != nil {
			t.Fatal(err)
		}
		key := fleet.ManagedNamespaceLabel(fleet.HubHash(config.Host))
		env.Eventually(t, func(ctx context.Context) error {
			got := &corev1.Namespace{}
			if err := m.Get(ctx, client.ObjectKey{Name: ns}, got); err != nil || got.Labels[key] != want || !got.DeletionTimestamp.IsZero() {
				return fmt.Errorf("namespace %s: want %s=%s, have %v, %w", ns, key, want, got.Labels, err)
			}
			return nil
		})
	}
	framework.Namespace(t, m, "mns-old") // was there before
	selected := framework.ClusterSet("mns-selected", clusterv1beta2.LabelSelector, &metav1.LabelSelector{MatchLabels: map[string]string{"mns": "yes"}})
	selected.Spec.ManagedNamespaces = []clusterv1beta2.ManagedNamespaceConfig{{Name: "mns-old"}, {Name: "mns-new"}}
	exclusive := framework.ClusterSet("mns-exclusive", clusterv1beta2.ExclusiveClusterSetLabel, nil)
	exclusive.Spec.ManagedNamespaces = []clusterv1beta2.ManagedNamespaceConfig{{Name: "mns-new"}}
	framework.Create(t, c, selected, exclusive)
	env.Join(t, framework.Hub, framework.Managed, name)
	framework.MergePatch(t, c, framework.ManagedCluster(t, name),
		`{"metadata":{"labels":{"mns":"yes","cluster.open-cluster-management.io/clusterset":"mns-exclusive"}}}`)
	awaitManagedNamespaces(t, c, name, "mns-exclusive/mns-new", "mns-selected/mns-new", "mns-selected/mns-old")
	label("mns-old", "true")
	label("mns-new", "true")

	// What a user takes away on the cluster comes back.
	framework.MergePatch(t, m, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "mns-old"}}, `{"metadata":{"labels":null}}`)
	label("mns-old", "true")
	if err := m.Delete(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "mns-new"}}); err != nil {
		t.Fatal(err)
	}
	label("mns-new", "true")

	// A namespace that no set wants stays, and says so.
	framework.MergePatch(t, c, selected, `{"spec":{"managedNamespaces":[{"name":"mns-new"}]}}`)
	awaitManagedNamespaces(t, c, name, "mns-exclusive/mns-new", "mns-selected/mns-new")
	label("mns-old", "false")
	framework.MergePatch(t, c, framework.ManagedCluster(t, name), `{"metadata":{"labels":{"mns":"no"}}}`)
	awaitManagedNamespaces(t, c, name, "mns-exclusive/mns-new")
	label("mns-new", "true")
	if err := c.Delete(t.Context(), exclusive); err != nil {
		t.Fatal(err)
	}
	awaitManagedNamespaces(t, c, name)
	label("mns-new", "false")
	framework.AwaitEvent(t, c, metav1.NamespaceDefault, fleet.EventManagedNamespacesUpdated)
	// Events of the OCM API: what the agent did is told where it may write events.
	framework.AwaitEvent(t, c, name, fleet.EventNamespaceApplied)
	framework.AwaitEvent(t, c, name, fleet.EventNamespaceUnmanaged)
}
