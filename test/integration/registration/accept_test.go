package registration

import (
	"context"
	"fmt"
	"strings"
	"testing"

	certificatesv1 "k8s.io/api/certificates/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1 "github.com/capstan-io/capstan/api/cluster/v1"
	"github.com/capstan-io/capstan/internal/agent/hubclient"
	"github.com/capstan-io/capstan/internal/agent/registration/clientcert"
	"github.com/capstan-io/capstan/internal/agent/registration/identity"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
	"github.com/capstan-io/capstan/test/env"
	"github.com/capstan-io/capstan/test/integration/framework"
)

// RG-16 RG-20 RG-45: the rights of agents are put right when a user changes them, takes the label off them or deletes them,
// and what is there before the cluster becomes its own.
func TestRightsAreKept(t *testing.T) {
	t.Parallel()
	const name = "kept"
	c := env.StartHub(t, "registration").Client(t)
	framework.Create(t, c,
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}},
		&coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: name, Name: "managed-cluster-lease"}},
		framework.AcceptedCluster(name))
	framework.AwaitHubAccepted(t, c, name, metav1.ConditionTrue, "HubClusterAdminAccepted")
	const role = "open-cluster-management:managedcluster:"
	labelled := []client.Object{
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}},
		&coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: name, Name: "managed-cluster-lease"}},
		&rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: role + name}},
		&rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: role + name}},
		&rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Namespace: name, Name: role + name + ":registration"}},
		&rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Namespace: name, Name: role + name + ":work"}},
	}
	for _, o := range labelled {
		if err := c.Patch(t.Context(), o.DeepCopyObject().(client.Object),
			client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"labels":null}}`))); err != nil {
			t.Fatal(err)
		}
	}
	for _, o := range labelled {
		env.Eventually(t, func(ctx context.Context) error {
			if err := c.Get(ctx, client.ObjectKeyFromObject(o), o); err != nil || o.GetLabels()["open-cluster-management.io/cluster-name"] != name {
				return fmt.Errorf("%T %s has labels %v: %w", o, o.GetName(), o.GetLabels(), err)
			}
			return nil
		})
	}
	if lease := labelled[1].(*coordinationv1.Lease); lease.Spec.HolderIdentity == nil ||
		*lease.Spec.HolderIdentity != "managed-cluster-lease" {
		t.Errorf("the lease that was there is %+v", lease.Spec)
	}
	for _, common := range []string{role + "registration", role + "work"} {
		o := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: common}}
		if err := c.Delete(t.Context(), o); err != nil {
			t.Fatal(err)
		}
		env.Eventually(t, func(ctx context.Context) error { return c.Get(ctx, client.ObjectKeyFromObject(o), o) })
	}
}

// RG-17: a hub that crashed after it gave rights and before it said so takes them away all the same when the cluster is denied,
// and those that have lost their label with them.
func TestDeniedAfterCrash(t *testing.T) {
	t.Parallel()
	const name = "half-done"
	own := env.StartHub(t, "none")
	c := own.Client(t)
	cluster := framework.AcceptedCluster(name)
	cluster.Spec.HubAcceptsClient = false
	cluster.Finalizers = []string{"cluster.open-cluster-management.io/api-resource-cleanup"}
	binding := &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Namespace: name, Name: "open-cluster-management:managedcluster:half-done:work",
			Finalizers: []string{"cluster.open-cluster-management.io/manifest-work-cleanup"}},
		RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "open-cluster-management:managedcluster:work"},
	}
	framework.Create(t, c, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}, binding, cluster)
	if err := own.Stop(); err != nil {
		t.Fatal(err)
	}
	again, err := env.NewHub(own.Dir, "registration")
	if err != nil {
		t.Fatal(err)
	}
	env.StartServer(t, again)
	c = again.Client(t)
	framework.AwaitHubAccepted(t, c, name, metav1.ConditionFalse, "HubClusterAdminDenied")
	framework.AwaitGone(t, c, binding)
}

// RG-15: a renewal that came while the cluster was not accepted is approved when it is.
func TestRenewalAwaitsAcceptance(t *testing.T) {
	t.Parallel()
	const name = "renewal-waits"
	own := env.StartHub(t, "registration")
	admin := own.Client(t)
	id := identity.Identity{Cluster: name, Agent: "agent1"}
	const canRequest = "renewal-waits:request"
	framework.Create(t, admin,
		&clusterv1.ManagedCluster{ObjectMeta: metav1.ObjectMeta{Name: name}},
		&rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: canRequest}, Rules: []rbacv1.PolicyRule{
			{APIGroups: []string{certificatesv1.GroupName}, Resources: []string{"certificatesigningrequests"},
				Verbs: []string{"create", "get", "list", "watch"}},
		}},
		&rbacv1.ClusterRoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: canRequest}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole",
				Name: canRequest},
			Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: id.User()}},
		})
	config, err := own.Config()
	if err != nil {
		t.Fatal(err)
	}
	config.Impersonate = rest.ImpersonationConfig{UserName: id.User(), Groups: append(fleet.ClusterGroups(name), fleet.GroupAuthenticated)}
	renewer, err := hubclient.New(config)
	if err != nil {
		t.Fatal(err)
	}
	issued := make(chan error, 1)
	go func() {
		for {
			_, _, err := (&clientcert.Requester{Hub: renewer, Identity: id}).Request(t.Context())
			if !apierrors.IsForbidden(err) { // the authorizer may not know of the new role yet
				issued <- err
				return
			}
		}
	}()
	env.Eventually(t, func(context.Context) error {
		if !strings.Contains(own.Log(), "Renewal withheld") {
			return fmt.Errorf("the request was not judged")
		}
		return nil
	})
	if err := admin.Patch(t.Context(), framework.AcceptedCluster(name),
		client.RawPatch(types.MergePatchType, []byte(`{"spec":{"hubAcceptsClient":true}}`))); err != nil {
		t.Fatal(err)
	}
	env.Eventually(t, func(context.Context) error {
		select {
		case err := <-issued:
			if err != nil {
				t.Error(err)
			}
			return nil
		default:
			return fmt.Errorf("the request waits")
		}
	})
}
