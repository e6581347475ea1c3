package cli

import (
	"context"
	"crypto/x509/pkix"
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
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
	awaitEnd(t, works)

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
	framework.AwaitRights(t, agent, name, framework.NoRights)
}

// asAddOn is a client with the identity of an add-on on a cluster, and the right to ConfigMaps in the namespace of the cluster by a binding
// that no label tells of.
func asAddOn(t *testing.T, admin client.Client, cluster string) (addOn client.WithWatch, right *rbacv1.RoleBinding) {
	t.Helper()
	const name = "spy"
	role := &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Namespace: cluster, Name: name}, Rules: []rbacv1.PolicyRule{{
		APIGroups: []string{""}, Resources: []string{"configmaps"}, Verbs: []string{"get", "list", "watch"}}}}
	right = &rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Namespace: cluster, Name: name},
		RoleRef:  rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: name},
		Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.GroupKind, Name: fleet.AddOnGroup(cluster, name)}}}
	framework.Create(t, admin, role, right)
	subject := pkix.Name{CommonName: fleet.AddOnUser(cluster, name, "agent"), Organization: fleet.AddOnGroups(cluster, name)}
	addOn = env.ClientFor(t, framework.WithCertificate(t, framework.Hub, subject, nil))
	env.Eventually(t, func(ctx context.Context) error {
		return addOn.List(ctx, &corev1.ConfigMapList{}, client.InNamespace(cluster))
	})
	return addOn, right
}

// awaitEnd waits until a watch is over.
func awaitEnd(t *testing.T, events <-chan watch.Event) {
	t.Helper()
	deadline := time.After(time.Minute)
	for {
		select {
		case _, open := <-events:
			if !open {
				return
			}
		case <-deadline:
			t.Fatal("the watch goes on")
		}
	}
}

// "Watches of add-on identities outlive their rights: end them as those of agents."
func TestAddOnStopsWatching(t *testing.T) {
	t.Parallel()
	const name = "addon-watching"
	framework.AcceptAll(t, name)
	admin := framework.Hub.Client(t)
	addOn, right := asAddOn(t, admin, name)
	seen := framework.Follow(t, addOn, &corev1.ConfigMapList{}, name)
	if err := admin.Delete(t.Context(), right); err != nil {
		t.Fatal(err)
	}
	awaitEnd(t, seen)
}

// "Cuts off a compromised cluster in one command: denial, rights gone, watches ended, the identity refused from then on."
func TestCutOffCluster(t *testing.T) {
	t.Parallel()
	const name = "cut-off"
	framework.AcceptAll(t, name)
	admin, agent := framework.Hub.Client(t), framework.AsAgent(t, framework.Hub, name)
	held := framework.Work(name, name+"-held", framework.ConfigMap("default", name, "x"))
	held.Finalizers = []string{fleet.FinalizerManifestWorkCleanup}
	framework.Create(t, admin, held)
	framework.AwaitRights(t, agent, name, framework.AllRights)
	addOn, _ := asAddOn(t, admin, name)
	works, seen := framework.Follow(t, agent, &workv1.ManifestWorkList{}, name), framework.Follow(t, addOn, &corev1.ConfigMapList{}, name)
	start := time.Now()
	result := framework.Hub.Capstan(t, "", "deny", "--clusters", name, "--now")
	if result.Code != 0 {
		t.Fatalf("%+v", result)
	}
	t.Logf("after %s", time.Since(start).Round(time.Millisecond))
	awaitEnd(t, works)
	awaitEnd(t, seen)
	awaitRefused(t, agent, name)
	if err := agent.Get(t.Context(), client.ObjectKeyFromObject(held), held); !apierrors.IsUnauthorized(err) {
		t.Errorf("the agent reads its work: %v", err)
	}
	// Its role and binding are there: it is who it is that is refused, by an old certificate and by a new one.
	if err := addOn.List(t.Context(), &corev1.ConfigMapList{}, client.InNamespace(name)); !apierrors.IsUnauthorized(err) {
		t.Errorf("the add-on reads ConfigMaps: %v", err)
	}
	subject := pkix.Name{CommonName: fleet.AddOnUser(name, "spy", "agent"), Organization: fleet.AddOnGroups(name, "spy")}
	again := env.ClientFor(t, framework.WithCertificate(t, framework.Hub, subject, nil))
	env.Eventually(t, func(ctx context.Context) error { // it is valid from the next second on
		if err := again.List(ctx, &corev1.ConfigMapList{}, client.InNamespace(name)); !apierrors.IsForbidden(err) {
			return fmt.Errorf("the add-on reads ConfigMaps by a new certificate: %w", err)
		}
		return nil
	})
	framework.DeleteCluster(t, admin, name)
	framework.AwaitGone(t, admin, &clusterv1.ManagedCluster{ObjectMeta: metav1.ObjectMeta{Name: name}})
}
