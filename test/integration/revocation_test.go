package integration

import (
	"context"
	"fmt"
	"testing"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	clusterv1 "github.com/capstan-io/capstan/api/cluster/v1"
	workv1 "github.com/capstan-io/capstan/api/work/v1"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
	"github.com/capstan-io/capstan/test/env"
)

// rights are what an accepted agent may do, each tried on the hub.
func rights(ctx context.Context, agent client.Client, cluster string) map[string]error {
	mc := &clusterv1.ManagedCluster{ObjectMeta: metav1.ObjectMeta{Name: cluster}}
	lease := &coordinationv1.Lease{}
	return map[string]error{
		"read its ManagedCluster":       agent.Get(ctx, client.ObjectKeyFromObject(mc), mc.DeepCopy()),
		"report on its ManagedCluster":  agent.Status().Patch(ctx, mc.DeepCopy(), merge(`{}`)),
		"read its lease":                agent.Get(ctx, client.ObjectKey{Namespace: cluster, Name: fleet.ClusterNamespaceLease}, lease),
		"read its works":                agent.List(ctx, &workv1.ManifestWorkList{}, client.InNamespace(cluster)),
		"read its certificate requests": agent.List(ctx, &certificatesv1.CertificateSigningRequestList{}),
		"request another certificate":   agent.Create(ctx, &certificatesv1.CertificateSigningRequest{}),
		"create an event in its namespace": agent.Create(ctx,
			&corev1.Event{ObjectMeta: metav1.ObjectMeta{Namespace: cluster, GenerateName: "e-"}}),
	}
}

// awaitRights waits until the agent has these rights and no others.
func awaitRights(t *testing.T, agent client.Client, cluster string, want func(right string) bool) {
	t.Helper()
	start := time.Now()
	env.Eventually(t, func(ctx context.Context) error {
		for right, err := range rights(ctx, agent, cluster) {
			if apierrors.IsForbidden(err) == want(right) {
				return fmt.Errorf("may it %s: %w", right, err)
			}
		}
		return nil
	})
	t.Logf("after %s", time.Since(start).Round(time.Millisecond))
}

func all(string) bool { return true }

func none(string) bool { return false }

// RG-17, R10: the certificate of a denied agent is still good, and opens nothing but the answer that it is denied.
func TestDeniedAgentLosesItsRights(t *testing.T) {
	t.Parallel()
	const name = "revoked-denied"
	acceptAll(t, name)
	agent := asAgent(t, hub, name)
	awaitRights(t, agent, name, all)
	mergePatch(t, hub.Client(t), managedCluster(t, name), `{"spec":{"hubAcceptsClient":false}}`)
	awaitRights(t, agent, name, func(right string) bool { return right == "read its ManagedCluster" })
	mergePatch(t, hub.Client(t), managedCluster(t, name), `{"spec":{"hubAcceptsClient":true}}`)
	awaitRights(t, agent, name, all)
}

// RG-18, R10: the agent of a deleted cluster has nothing left, and cannot keep the hub from taking it away.
func TestDeletedAgentLosesItsRights(t *testing.T) {
	t.Parallel()
	const name = "revoked-deleted"
	acceptAll(t, name)
	admin, agent := hub.Client(t), asAgent(t, hub, name)
	held := work(name, name+"-held", configMap("default", "revoked-deleted", "x"))
	held.Finalizers = []string{"example.com/held"}
	create(t, admin, held)
	awaitRights(t, agent, name, all)
	deleteCluster(t, admin, name)
	// While the works are there the agent may write to its ManagedCluster, whose finalizers guard the removal of its rights.
	env.Eventually(t, func(ctx context.Context) error {
		mc := &clusterv1.ManagedCluster{}
		if err := agent.Get(ctx, client.ObjectKey{Name: name}, mc); err != nil {
			return err
		}
		controllerutil.RemoveFinalizer(mc, fleet.FinalizerManagedCluster)
		err := agent.Update(ctx, mc)
		if apierrors.IsConflict(err) {
			return err
		}
		expectRefusal(t, err, apierrors.IsForbidden, "metadata.finalizers")
		return nil
	})
	mergePatch(t, admin, held, `{"metadata":{"finalizers":null}}`)
	awaitGone(t, admin, &clusterv1.ManagedCluster{ObjectMeta: metav1.ObjectMeta{Name: name}})
	awaitRights(t, agent, name, none)
}

// R10: a credential to join with that is taken back lets nobody join any more.
func TestRevokedBootstrapCredentials(t *testing.T) {
	t.Parallel()
	own := env.StartHub(t, "none")
	admin := own.Client(t)
	secret := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceSystem, Name: "bootstrap-token-revoke"},
		Type:       corev1.SecretTypeBootstrapToken,
		StringData: map[string]string{
			"token-id": "revoke", "token-secret": "0123456789abcdef", "usage-bootstrap-authentication": "true",
			"auth-extra-groups": fleet.GroupBootstrap,
		},
	}
	create(t, admin, secret)
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: fleet.NamespaceOperators, Name: fleet.ServiceAccountBootstrap}}
	rightsOfAccount := &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: fleet.ClusterRoleBindingBootstrapServiceAccount}}
	byToken := env.ClientFor(t, withToken(t, own, "revoke.0123456789abcdef"))
	byAccount := env.ClientFor(t, withToken(t, own, bootstrapAccountToken(t, own)))
	join := func(ctx context.Context, c client.Client) error {
		return c.Create(ctx, &clusterv1.ManagedCluster{ObjectMeta: metav1.ObjectMeta{GenerateName: "revoked-"}})
	}
	for _, step := range []struct {
		revoke  client.Object
		joiner  client.Client
		refused func(error) bool
	}{
		{secret, byToken, apierrors.IsUnauthorized},
		{rightsOfAccount, byAccount, apierrors.IsForbidden},
		{account, byAccount, apierrors.IsUnauthorized},
	} {
		if step.revoke != account {
			env.Eventually(t, func(ctx context.Context) error { return join(ctx, step.joiner) })
		}
		if err := admin.Delete(t.Context(), step.revoke); err != nil {
			t.Fatal(err)
		}
		start := time.Now()
		env.Eventually(t, func(ctx context.Context) error {
			if err := join(ctx, step.joiner); !step.refused(err) {
				return fmt.Errorf("without %T %s: %w", step.revoke, step.revoke.GetName(), err)
			}
			return nil
		})
		t.Logf("without %T %s after %s", step.revoke, step.revoke.GetName(), time.Since(start).Round(time.Millisecond))
	}
}

// RG-17, R10: what an agent watches when it is denied goes on for as long as its right to it, and no longer.
func TestDeniedAgentStopsWatching(t *testing.T) {
	t.Parallel()
	const name = "revoked-watching"
	acceptAll(t, name)
	agent := asAgent(t, hub, name)
	var ended []<-chan watch.Event
	for _, list := range []client.ObjectList{&workv1.ManifestWorkList{}, &coordinationv1.LeaseList{},
		&certificatesv1.CertificateSigningRequestList{}} {
		options := []client.ListOption{client.InNamespace(name)}
		if _, clusterScoped := list.(*certificatesv1.CertificateSigningRequestList); clusterScoped {
			options = nil
		}
		w, err := agent.Watch(t.Context(), list, options...)
		if err != nil {
			t.Fatal(err)
		}
		defer w.Stop()
		ended = append(ended, w.ResultChan())
	}
	itself, err := agent.Watch(t.Context(), &clusterv1.ManagedClusterList{}, client.MatchingFields{"metadata.name": name})
	if err != nil {
		t.Fatal(err)
	}
	defer itself.Stop()
	mergePatch(t, hub.Client(t), managedCluster(t, name), `{"spec":{"hubAcceptsClient":false}}`)
	deadline := time.After(time.Minute)
	for i, events := range ended {
		for open := true; open; {
			select {
			case _, open = <-events:
			case <-deadline:
				t.Fatalf("watch %d goes on", i)
			}
		}
	}
	// It has kept the right to learn that it is denied.
	for event := range env.Events(t, itself) {
		mc, ok := event.Object.(*clusterv1.ManagedCluster)
		if ok && meta.IsStatusConditionFalse(mc.Status.Conditions, fleet.ConditionHubAccepted) {
			return
		}
	}
	t.Error("the watch of its ManagedCluster ended before it learned that it is denied")
}

// RG-17, WK-14: the agent of a denied cluster, which may not list works, removes what a work has applied that is deleted then.
func TestDeniedAgentRemovesDeletedWorks(t *testing.T) {
	t.Parallel()
	const name = "denied-deletes"
	env.Join(t, hub, managed, name)
	admin, m := hub.Client(t), managed.Client(t)
	ns := namespace(t, m, name)
	w := work(name, name, configMap(ns, name, "x"))
	create(t, admin, w)
	awaitConfigMap(t, m, ns, name, "x")
	mergePatch(t, admin, managedCluster(t, name), `{"spec":{"hubAcceptsClient":false}}`)
	awaitHubAccepted(t, admin, name, metav1.ConditionFalse, fleet.ReasonHubClusterAdminDenied)
	awaitGone(t, admin, &rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Namespace: name, Name: fleet.WorkRoleBinding(name)}})
	if err := admin.Delete(t.Context(), w); err != nil {
		t.Fatal(err)
	}
	awaitGone(t, m, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name}})
	awaitGone(t, admin, w)
}

// RG-18: the namespace of a cluster that a user deletes goes with the works in it, and comes back.
func TestNamespaceOfClusterIsDeleted(t *testing.T) {
	t.Parallel()
	const name = "namespace-deleted"
	env.Join(t, hub, managed, name)
	admin, m := hub.Client(t), managed.Client(t)
	ns := namespace(t, m, name)
	w := work(name, name, configMap(ns, name, "x"))
	create(t, admin, w)
	awaitConfigMap(t, m, ns, name, "x")
	before := &corev1.Namespace{}
	if err := admin.Get(t.Context(), client.ObjectKey{Name: name}, before); err != nil {
		t.Fatal(err)
	}
	if err := admin.Delete(t.Context(), before.DeepCopy()); err != nil {
		t.Fatal(err)
	}
	awaitGone(t, m, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name}})
	env.Eventually(t, func(ctx context.Context) error {
		after := &corev1.Namespace{}
		if err := admin.Get(ctx, client.ObjectKey{Name: name}, after); err != nil {
			return err
		}
		if after.UID == before.UID {
			return fmt.Errorf("the namespace is still there: %+v", after.Status)
		}
		return nil
	})
	awaitHubAccepted(t, admin, name, metav1.ConditionTrue, fleet.ReasonHubClusterAdminAccepted)
	w = work(name, name+"-after", configMap(ns, name+"-after", "x"))
	create(t, admin, w)
	awaitCondition(t, admin, w, fleet.ConditionAvailable, metav1.ConditionTrue)
}

// RG-17: a denied cluster that is accepted again goes on with its works.
func TestDeniedAgentComesBack(t *testing.T) {
	t.Parallel()
	const name = "denied-and-back"
	env.Join(t, hub, managed, name)
	admin := hub.Client(t)
	mergePatch(t, admin, managedCluster(t, name), `{"spec":{"hubAcceptsClient":false}}`)
	awaitHubAccepted(t, admin, name, metav1.ConditionFalse, fleet.ReasonHubClusterAdminDenied)
	awaitGone(t, admin, &rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Namespace: name, Name: fleet.WorkRoleBinding(name)}})
	mergePatch(t, admin, managedCluster(t, name), `{"spec":{"hubAcceptsClient":true}}`)
	start := time.Now()
	w := work(name, name+"-after", configMap("default", "denied-and-back", "x"))
	create(t, admin, w)
	awaitCondition(t, admin, w, fleet.ConditionAvailable, metav1.ConditionTrue)
	t.Logf("after %s", time.Since(start).Round(time.Millisecond))
}
