package registration

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
	"github.com/capstan-io/capstan/test/integration/framework"
)

// noRights is for none.
func noRights(string) bool { return false }

// RG-17, R10: the certificate of a denied agent is still good, and opens nothing but the answer that it is denied.
func TestDeniedAgentLosesItsRights(t *testing.T) {
	t.Parallel()
	const name = "revoked-denied"
	framework.AcceptAll(t, name)
	agent := framework.AsAgent(t, framework.Hub, name)
	framework.AwaitRights(t, agent, name, framework.AllRights)
	framework.MergePatch(t, framework.Hub.Client(t), framework.ManagedCluster(t, name), `{"spec":{"hubAcceptsClient":false}}`)
	framework.AwaitRights(t, agent, name, func(right string) bool { return right == "read its ManagedCluster" })
	framework.MergePatch(t, framework.Hub.Client(t), framework.ManagedCluster(t, name), `{"spec":{"hubAcceptsClient":true}}`)
	framework.AwaitRights(t, agent, name, framework.AllRights)
}

// RG-18, R10: the agent of a deleted cluster has nothing left, and cannot keep the hub from taking it away.
func TestDeletedAgentLosesItsRights(t *testing.T) {
	t.Parallel()
	const name = "revoked-deleted"
	framework.AcceptAll(t, name)
	admin, agent := framework.Hub.Client(t), framework.AsAgent(t, framework.Hub, name)
	held := framework.Work(name, name+"-held", framework.ConfigMap("default", "revoked-deleted", "x"))
	held.Finalizers = []string{"example.com/held"}
	framework.Create(t, admin, held)
	framework.AwaitRights(t, agent, name, framework.AllRights)
	framework.DeleteCluster(t, admin, name)
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
		framework.ExpectRefusal(t, err, apierrors.IsForbidden, "metadata.finalizers")
		return nil
	})
	framework.MergePatch(t, admin, held, `{"metadata":{"finalizers":null}}`)
	framework.AwaitGone(t, admin, &clusterv1.ManagedCluster{ObjectMeta: metav1.ObjectMeta{Name: name}})
	framework.AwaitRights(t, agent, name, noRights)
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
	framework.Create(t, admin, secret)
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
	framework.AcceptAll(t, name)
	agent := framework.AsAgent(t, framework.Hub, name)
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
	framework.MergePatch(t, framework.Hub.Client(t), framework.ManagedCluster(t, name), `{"spec":{"hubAcceptsClient":false}}`)
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
	env.Join(t, framework.Hub, framework.Managed, name)
	admin, m := framework.Hub.Client(t), framework.Managed.Client(t)
	ns := framework.Namespace(t, m, name)
	w := framework.Work(name, name, framework.ConfigMap(ns, name, "x"))
	framework.Create(t, admin, w)
	framework.AwaitConfigMap(t, m, ns, name, "x")
	framework.MergePatch(t, admin, framework.ManagedCluster(t, name), `{"spec":{"hubAcceptsClient":false}}`)
	framework.AwaitHubAccepted(t, admin, name, metav1.ConditionFalse, fleet.ReasonHubClusterAdminDenied)
	framework.AwaitGone(t, admin, &rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Namespace: name, Name: fleet.WorkRoleBinding(name)}})
	if err := admin.Delete(t.Context(), w); err != nil {
		t.Fatal(err)
	}
	framework.AwaitGone(t, m, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name}})
	framework.AwaitGone(t, admin, w)
}

// RG-18: the namespace of a cluster that a user deletes goes with the works in it, and comes back.
func TestNamespaceOfClusterIsDeleted(t *testing.T) {
	t.Parallel()
	const name = "namespace-deleted"
	env.Join(t, framework.Hub, framework.Managed, name)
	admin, m := framework.Hub.Client(t), framework.Managed.Client(t)
	ns := framework.Namespace(t, m, name)
	w := framework.Work(name, name, framework.ConfigMap(ns, name, "x"))
	framework.Create(t, admin, w)
	framework.AwaitConfigMap(t, m, ns, name, "x")
	before := &corev1.Namespace{}
	if err := admin.Get(t.Context(), client.ObjectKey{Name: name}, before); err != nil {
		t.Fatal(err)
	}
	if err := admin.Delete(t.Context(), before.DeepCopy()); err != nil {
		t.Fatal(err)
	}
	framework.AwaitGone(t, m, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name}})
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
	framework.AwaitHubAccepted(t, admin, name, metav1.ConditionTrue, fleet.ReasonHubClusterAdminAccepted)
	w = framework.Work(name, name+"-after", framework.ConfigMap(ns, name+"-after", "x"))
	framework.Create(t, admin, w)
	framework.AwaitCondition(t, admin, w, fleet.ConditionAvailable, metav1.ConditionTrue)
}

// RG-17: a denied cluster that is accepted again goes on with its works.
func TestDeniedAgentComesBack(t *testing.T) {
	t.Parallel()
	const name = "denied-and-back"
	env.Join(t, framework.Hub, framework.Managed, name)
	admin := framework.Hub.Client(t)
	framework.MergePatch(t, admin, framework.ManagedCluster(t, name), `{"spec":{"hubAcceptsClient":false}}`)
	framework.AwaitHubAccepted(t, admin, name, metav1.ConditionFalse, fleet.ReasonHubClusterAdminDenied)
	framework.AwaitGone(t, admin, &rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Namespace: name, Name: fleet.WorkRoleBinding(name)}})
	framework.MergePatch(t, admin, framework.ManagedCluster(t, name), `{"spec":{"hubAcceptsClient":true}}`)
	start := time.Now()
	w := framework.Work(name, name+"-after", framework.ConfigMap("default", "denied-and-back", "x"))
	framework.Create(t, admin, w)
	framework.AwaitCondition(t, admin, w, fleet.ConditionAvailable, metav1.ConditionTrue)
	t.Logf("after %s", time.Since(start).Round(time.Millisecond))
}
