package registration

import (
	"context"
	"fmt"
	"testing"

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

// "A denied or deleted cluster that does not cooperate keeps reading new works": one that is denied finishes with the work that it has, by
// its name, and sees no other; none is admitted. Once its cluster is deleted, it sees the works go, as agents of others do.
func TestDeniedAgentFinishesByName(t *testing.T) {
	t.Parallel()
	const name = "denied-by-name"
	framework.AcceptAll(t, name)
	admin, agent := framework.Hub.Client(t), framework.AsAgent(t, framework.Hub, name)
	held := framework.Work(name, name+"-held", framework.ConfigMap("default", name, "x"))
	held.Finalizers = []string{fleet.FinalizerManifestWorkCleanup}
	framework.Create(t, admin, held)
	framework.AwaitRights(t, agent, name, framework.AllRights)
	works := framework.Follow(t, agent, &workv1.ManifestWorkList{}, name)
	framework.MergePatch(t, admin, framework.ManagedCluster(t, name), `{"spec":{"hubAcceptsClient":false}}`)
	framework.AwaitHubAccepted(t, admin, name, metav1.ConditionFalse, fleet.ReasonHubClusterAdminDenied)
	framework.AwaitRights(t, agent, name, func(right string) bool { return right == "read its ManagedCluster" })
	framework.AwaitEnd(t, works)

	later := framework.Work(name, name+"-later", framework.ConfigMap("default", name+"-later", "secret"))
	env.Eventually(t, func(ctx context.Context) error { // the cache of the API server is a moment behind at most
		err := admin.Create(ctx, later.DeepCopy(), client.DryRunAll)
		if err == nil {
			return fmt.Errorf("a work of a denied cluster is admitted")
		}
		framework.ExpectRefusal(t, err, apierrors.IsForbidden, "is denied")
		return nil
	})
	if err := agent.Get(t.Context(), client.ObjectKeyFromObject(held), held); err != nil {
		t.Errorf("the agent cannot read the work that it has: %v", err)
	}
	if err := agent.Status().Patch(t.Context(), held.DeepCopy(), framework.Merge(`{}`)); err != nil {
		t.Errorf("the agent cannot report on the work that it has: %v", err)
	}
	if _, err := agent.Watch(t.Context(), &workv1.ManifestWorkList{}, client.InNamespace(name),
		client.MatchingFields{"metadata.name": held.Name}); !apierrors.IsForbidden(err) {
		t.Errorf("the agent watches the work that it has: %v", err)
	}

	framework.DeleteCluster(t, admin, name)
	env.Eventually(t, func(ctx context.Context) error {
		return agent.List(ctx, &workv1.ManifestWorkList{}, client.InNamespace(name))
	})
	env.Eventually(t, func(ctx context.Context) error {
		if err := agent.Get(ctx, client.ObjectKeyFromObject(held), held); err != nil || held.DeletionTimestamp.IsZero() {
			return fmt.Errorf("the work is not deleted yet: %w", err)
		}
		return nil
	})
	if err := agent.Patch(t.Context(), held, framework.Merge(`{"metadata":{"finalizers":null}}`)); err != nil {
		t.Errorf("the agent cannot let go of its work: %v", err)
	}
	framework.AwaitGone(t, admin, &clusterv1.ManagedCluster{ObjectMeta: metav1.ObjectMeta{Name: name}})
	framework.AwaitRights(t, agent, name, noRights)
}

// "Watches of add-on identities outlive their rights: end them as those of agents."
func TestAddOnStopsWatching(t *testing.T) {
	t.Parallel()
	const name = "addon-watching"
	framework.AcceptAll(t, name)
	admin := framework.Hub.Client(t)
	addOn, right := framework.AsAddOn(t, admin, name)
	seen := framework.Follow(t, addOn, &corev1.ConfigMapList{}, name)
	if err := admin.Delete(t.Context(), right); err != nil {
		t.Fatal(err)
	}
	framework.AwaitEnd(t, seen)
}
