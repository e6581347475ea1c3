package reach

import (
	"bytes"
	"errors"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	addonv1beta1 "github.com/capstan-io/capstan/api/addon/v1beta1"
	appsv1beta1 "github.com/capstan-io/capstan/api/apps/v1beta1"
	clusterv1beta1 "github.com/capstan-io/capstan/api/cluster/v1beta1"
	clusterv1beta2 "github.com/capstan-io/capstan/api/cluster/v1beta2"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
	"github.com/capstan-io/capstan/test/env"
	"github.com/capstan-io/capstan/test/integration/framework"
)

// AR-02 AR-03 AR-04: with the Secret that the hub makes for a cluster that is selected, Argo CD is the service account on the cluster,
// through the tunnel, also with the next token. The Secret goes when the cluster is not selected, and comes back.
func TestGitOpsCluster(t *testing.T) {
	t.Parallel()
	const name, account = "gitops", "deployer"
	on := env.StartHub(t, "", "--feature-gates", "GitOpsCluster=true")
	h := on.Client(t)
	framework.NewProxied(t, on, name)
	place, argo := name+"-accounts", framework.Namespace(t, h, "argocd")
	binding := &clusterv1beta2.ManagedClusterSetBinding{ObjectMeta: metav1.ObjectMeta{Namespace: argo, Name: "global"}}
	binding.Spec.ClusterSet = "global"
	placement := &clusterv1beta1.Placement{ObjectMeta: metav1.ObjectMeta{Namespace: argo, Name: "web"}}
	g := &appsv1beta1.GitOpsCluster{ObjectMeta: metav1.ObjectMeta{Namespace: argo, Name: "web"}}
	g.Spec.PlacementRef = &corev1.ObjectReference{Kind: "Placement", Name: placement.Name}
	g.Spec.ManagedServiceAccountRef = account
	framework.Create(t, h, binding, placement, g)
	framework.AwaitGitOps(t, h, g, "failed", "CredentialNotFound")
	framework.Create(t, h, framework.ManagedServiceAccount(name, account, time.Hour), &addonv1beta1.ManagedClusterAddOn{
		ObjectMeta: metav1.ObjectMeta{Namespace: name, Name: "managed-serviceaccount",
			Annotations: map[string]string{fleet.AnnotationInstallNamespace: place}}})
	framework.AwaitGitOps(t, h, g, "successful", "ClustersRegistered")
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: argo, Name: name + "-" + account + "-cluster-secret"}}
	framework.AwaitObject(t, h, secret, func(*corev1.Secret) error { return nil })
	want := framework.AsAdmin(t, on).Host + "/apis/cluster.open-cluster-management.io/v1/managedclusters/" + name + "/proxy"
	if string(secret.Data["server"]) != want || string(secret.Data["name"]) != name {
		t.Errorf("the Secret is for %s at %s, want %s", secret.Data["name"], secret.Data["server"], want)
	}
	framework.ExpectArgoAccount(t, secret, "system:serviceaccount:"+place+":"+account)
	framework.AwaitObject(t, h, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: argo, Name: "acm-placement"}},
		func(*corev1.ConfigMap) error { return nil })
	framework.AwaitObject(t, h, &rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Namespace: argo,
		Name: argo + "-applicationset-controller-placement"}}, func(*rbacv1.RoleBinding) error { return nil })

	if err := h.Delete(t.Context(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: name, Name: account}}); err != nil {
		t.Fatal(err)
	}
	before := secret.Data["config"]
	framework.AwaitObject(t, h, secret, func(after *corev1.Secret) error {
		if bytes.Equal(after.Data["config"], before) {
			return errors.New("the Secret has the token of before")
		}
		return nil
	})
	framework.ExpectArgoAccount(t, secret, "system:serviceaccount:"+place+":"+account)

	framework.MergePatch(t, h, placement, `{"spec":{"numberOfClusters":0}}`)
	framework.AwaitGone(t, h, secret)
	framework.MergePatch(t, h, placement, `{"spec":{"numberOfClusters":null}}`)
	framework.AwaitObject(t, h, secret, func(*corev1.Secret) error { return nil })
	if err := h.Delete(t.Context(), g); err != nil {
		t.Fatal(err)
	}
	framework.AwaitGone(t, h, secret)
}
