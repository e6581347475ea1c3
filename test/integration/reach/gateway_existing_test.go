package reach

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capstan-io/capstan/test/env"
	"github.com/capstan-io/capstan/test/integration/framework"
)

// CG-01, CG-02, CG-03, HC-10: in an existing cluster, the gateway is an aggregated API, with the rights that its chart gives it: clusters
// are listed, watched and reached by its path, as a user whom the API server has authenticated.
func TestClusterGatewayExisting(t *testing.T) {
	t.Parallel()
	existing := env.StartSandbox(t)
	c := existing.Client(t)
	address := env.FreeAddress(t)
	framework.Create(t, c, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: framework.GatewayServer}})
	framework.Create(t, c, framework.ChartOutside(t, "cluster-gateway-addon-manager", address)...)
	gateway := framework.StartGateway(t, existing, address, "--feature-gates", "ClientIdentityPenetration=true")
	config := framework.AsAdmin(t, existing)
	gateways := dynamic.NewForConfigOrDie(config).Resource(clusterGateways)
	var events watch.Interface
	env.Eventually(t, func(context.Context) (err error) {
		events, err = gateways.Watch(t.Context(), metav1.ListOptions{})
		return err
	})
	defer events.Stop()

	const name = "gw-existing"
	gatewaySecret(t, c, name)
	framework.AwaitWatched(t, events, watch.Added, name)
	env.Eventually(t, func(ctx context.Context) error {
		got, err := gateways.Get(ctx, name, metav1.GetOptions{}, "health")
		if err != nil {
			return err
		}
		if healthy, _, _ := unstructured.NestedBool(got.Object, "status", "healthy"); !healthy {
			return fmt.Errorf("status %v", got.Object["status"])
		}
		return nil
	})
	testImpersonated(t, c, config, name)
	gateway.Kill()
	gateway.AwaitExit(t)
	if _, err := gateways.List(t.Context(), metav1.ListOptions{}); err == nil {
		t.Error("ClusterGateways are listed without the process")
	}
	if err := gateway.Start(); err != nil {
		t.Fatal(err)
	}
	env.Eventually(t, func(ctx context.Context) error {
		_, err := gateways.Get(ctx, name, metav1.GetOptions{})
		return err
	})
}

// testImpersonated reaches the cluster as a user of the hub, who has rights neither there nor on the cluster at first.
func testImpersonated(t *testing.T, c client.Client, config *rest.Config, name string) {
	t.Helper()
	grantOnCluster(t, name, "cluster-admin")
	user := rest.CopyConfig(config)
	user.Impersonate = rest.ImpersonationConfig{UserName: "gw-existing-user"}
	cluster := framework.ThroughGateway(t, user, name)
	if _, err := cluster.CoreV1().Namespaces().List(t.Context(), metav1.ListOptions{}); !apierrors.IsForbidden(err) ||
		!strings.Contains(err.Error(), `clustergateways.cluster.core.oam.dev "gw-existing" is forbidden: User "gw-existing-user"`) {
		t.Errorf("without rights on the hub: %v", err)
	}
	framework.Create(t, c, &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: name}, Rules: []rbacv1.PolicyRule{{
		APIGroups: []string{"cluster.core.oam.dev"}, Resources: []string{"clustergateways/proxy"}, ResourceNames: []string{name},
		Verbs: []string{"*"}}}}, &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: name},
		RoleRef:  rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: name},
		Subjects: []rbacv1.Subject{{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: "gw-existing-user"}}})
	var refusal error
	env.Eventually(t, func(ctx context.Context) error {
		_, refusal = cluster.CoreV1().Namespaces().List(ctx, metav1.ListOptions{})
		if !apierrors.IsForbidden(refusal) || !strings.Contains(refusal.Error(), `User "gw-existing-user" cannot list resource "namespaces"`) {
			return fmt.Errorf("not refused by the cluster: %w", errors.Join(refusal, errors.New("no refusal")))
		}
		return nil
	})
	managedClient := framework.Managed.Client(t)
	framework.Namespace(t, managedClient, name)
	framework.Create(t, managedClient, &rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Namespace: name, Name: "user"},
		RoleRef:  rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "admin"},
		Subjects: []rbacv1.Subject{{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: "gw-existing-user"}}})
	maps := cluster.CoreV1().ConfigMaps(name)
	var events watch.Interface
	env.Eventually(t, func(context.Context) (err error) {
		events, err = maps.Watch(t.Context(), metav1.ListOptions{})
		return err
	})
	defer events.Stop()
	if _, err := maps.Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "a"}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	framework.AwaitWatched(t, events, watch.Added, "a")
}
