package install

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	addonv1beta1 "github.com/capstan-io/capstan/api/addon/v1beta1"
	authenticationv1beta1 "github.com/capstan-io/capstan/api/authentication/v1beta1"
	clusterv1beta1 "github.com/capstan-io/capstan/api/cluster/v1beta1"
	permissionv1alpha1 "github.com/capstan-io/capstan/api/rbac/v1alpha1"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
	"github.com/capstan-io/capstan/test/env"
	"github.com/capstan-io/capstan/test/integration/framework"
)

// MS-06 MS-08 HC-09: Helm installs managed service accounts on a hub in an existing cluster, after the agent. The manager runs as the chart
// says, and may do no more. Tokens get to the hub, rights to the cluster, and all goes with the chart. Upgrades take the add-on off all
// clusters, enable it on one, and keep it there when it is enabled on all again.
func TestManagedServiceAccountChart(t *testing.T) {
	t.Parallel()
	const cluster, namespace = "msachart", "open-cluster-management-addon"
	existing, _ := framework.HubInExistingCluster(t)
	framework.StartPlacementControllers(t, existing)
	h, m := existing.Client(t), framework.Managed.Client(t)
	for _, kind := range []string{"managedserviceaccounts.authentication", "clusterpermissions.rbac"} {
		crd := &apiextensionsv1.CustomResourceDefinition{ObjectMeta: metav1.ObjectMeta{Name: kind + ".open-cluster-management.io"}}
		if err := h.Delete(t.Context(), crd); err != nil {
			t.Fatal(err)
		}
		framework.AwaitGone(t, h, crd)
	}
	token := framework.TokenOf(t, existing, fleet.NamespaceOperators, fleet.ServiceAccountBootstrap)
	if err := env.NewAgent(t, existing, framework.Managed, cluster, token).Start(); err != nil {
		t.Fatal(err)
	}
	env.Accept(t, h, cluster)
	env.AwaitAvailable(t, h, cluster)

	place := cluster + "-accounts"
	chart := helm{cluster: existing, namespace: namespace}
	upgrade := func(values string) {
		t.Helper()
		chart.upgrade(t, "managed-serviceaccount", chartOf(t, "managed-serviceaccount"), values)
	}
	chart.install(t, "managed-serviceaccount", chartOf(t, "managed-serviceaccount"), "")
	startManager(t, existing, namespace, "managed-serviceaccount-addon-manager", "open-cluster-management:managed-serviceaccount")
	addOn := &addonv1beta1.ManagedClusterAddOn{ObjectMeta: metav1.ObjectMeta{Namespace: cluster, Name: "managed-serviceaccount"}}
	framework.AwaitObject(t, h, addOn, func(*addonv1beta1.ManagedClusterAddOn) error { return nil })
	upgrade("agentInstallAll: false")
	framework.AwaitGone(t, h, addOn.DeepCopy())
	upgrade("{agentInstallAll: false, targetCluster: " + cluster + "}")
	framework.AwaitObject(t, h, addOn, func(*addonv1beta1.ManagedClusterAddOn) error { return nil })
	framework.MergePatch(t, h, addOn, `{"metadata":{"annotations":{"`+fleet.AnnotationInstallNamespace+`":"`+place+`"}}}`)
	binding := &rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Namespace: cluster, Name: "managed-serviceaccount-addon-agent"}}
	framework.AwaitObject(t, h, binding, func(b *rbacv1.RoleBinding) error {
		if b.RoleRef.Name != fleet.ClusterRoleManagedServiceAccount || b.Subjects[0].Name != fleet.ClusterGroup(cluster) {
			return fmt.Errorf("%+v of %+v", b.RoleRef, b.Subjects)
		}
		return nil
	})

	owner := framework.ManagedServiceAccount(cluster, "ci", time.Hour)
	permission := &permissionv1alpha1.ClusterPermission{ObjectMeta: metav1.ObjectMeta{Namespace: cluster, Name: cluster}}
	permission.Spec.ClusterRole = &permissionv1alpha1.ClusterRole{Rules: []rbacv1.PolicyRule{
		{APIGroups: []string{""}, Resources: []string{"namespaces"}, Verbs: []string{"list"}}}}
	permission.Spec.ClusterRoleBinding = &permissionv1alpha1.ClusterRoleBinding{Subject: &rbacv1.Subject{
		APIGroup: authenticationv1beta1.GroupVersion.Group, Kind: "ManagedServiceAccount", Name: "ci"}}
	framework.Create(t, h, owner, permission)
	// The agent may learn of the account before it learns of the namespace for it.
	secret := framework.AwaitObject(t, h, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: cluster, Name: "ci"}},
		func(s *corev1.Secret) error {
			if who, err := framework.WhoOn(t, s); err != nil || who != "system:serviceaccount:"+place+":ci" {
				return fmt.Errorf("the token is of %q, %w", who, err)
			}
			return nil
		})
	env.Eventually(t, func(ctx context.Context) error {
		return env.ClientFor(t, framework.AccountConfig(t, secret)).List(ctx, &corev1.NamespaceList{})
	})
	testStolenTokenOfManager(t, existing, cluster, namespace)

	if err := h.Delete(t.Context(), owner); err != nil {
		t.Fatal(err)
	}
	framework.AwaitGone(t, h, secret)
	framework.AwaitTokenRefused(t, secret)
	onOne := addOn.UID
	upgrade("")
	placement := &clusterv1beta1.Placement{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "managed-serviceaccount"}}
	framework.AwaitObject(t, h, placement, func(p *clusterv1beta1.Placement) error {
		satisfied := meta.FindStatusCondition(p.Status.Conditions, fleet.ConditionPlacementSatisfied)
		if satisfied == nil || satisfied.ObservedGeneration != p.Generation {
			return fmt.Errorf("generation %d, condition %+v", p.Generation, satisfied)
		}
		return nil
	})
	left := framework.ManagedServiceAccount(cluster, "left", time.Hour)
	framework.Create(t, h, left)
	there := framework.AwaitObject(t, m, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: place, Name: "left"}},
		func(*corev1.ServiceAccount) error { return nil })
	framework.Get(t, h, client.ObjectKeyFromObject(addOn), addOn)
	if addOn.UID != onOne || addOn.DeletionTimestamp != nil {
		t.Error("the add-on of one cluster is another one when it is enabled on all")
	}
	chart.uninstall(t, "managed-serviceaccount")
	framework.AwaitGone(t, h, addOn)
	framework.AwaitGone(t, h, binding)
	framework.AwaitGone(t, m, there)
}

// startManager runs the container of a Deployment, as its service account, which has the rights of ClusterRoles whose names begin with
// role.
func startManager(t *testing.T, existing *env.Server, namespace, name, role string) {
	t.Helper()
	deployment := &appsv1.Deployment{}
	framework.Get(t, existing.Client(t), client.ObjectKey{Namespace: namespace, Name: name}, deployment)
	pod := deployment.Spec.Template.Spec
	args := append(slices.Clone(pod.Containers[0].Args), "--kubeconfig", framework.KubeconfigIn(t, existing, namespace, pod.ServiceAccountName),
		"--metrics-bind-address", "0", "--health-probe-bind-address", "0")
	manager := env.NewProgram(t, nil, "capstan-hub", args...)
	if err := manager.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		// The rights of the manager are gone with the chart, before it is stopped.
		before, _, _ := strings.Cut(manager.Log(), `clusterrole.rbac.authorization.k8s.io "`+role)
		if strings.Contains(before, "admission policy") {
			t.Errorf("a policy of the chart says too much:\n%s", before)
		}
	})
}

// testStolenTokenOfManager: who has the token of the manager gets neither Secrets nor works of others, and gives nobody what agents have.
func testStolenTokenOfManager(t *testing.T, existing *env.Server, cluster, namespace string) {
	t.Helper()
	others := &addonv1beta1.ManagedClusterAddOn{ObjectMeta: metav1.ObjectMeta{Namespace: cluster, Name: "others"}}
	framework.Create(t, existing.Client(t), framework.Work(cluster, "others", framework.ConfigMap("default", "a", "b")), others)
	thief := impersonate(t, existing, fleet.ServiceAccountUser(namespace, "managed-serviceaccount"))
	binding := func(change func(*rbacv1.RoleBinding)) *rbacv1.RoleBinding {
		b := &rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "managed-serviceaccount-addon-agent"},
			RoleRef:  rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: fleet.ClusterRoleManagedServiceAccount},
			Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.GroupKind, Name: fleet.ClusterGroup(cluster)}}}
		change(b)
		return b
	}
	inCluster := func(change func(*rbacv1.RoleBinding)) *rbacv1.RoleBinding {
		return binding(func(b *rbacv1.RoleBinding) { b.Namespace = cluster; change(b) })
	}
	try := func(o client.Object) error { return thief.Create(t.Context(), o, client.DryRunAll) }
	for what, err := range map[string]error{
		"reads Secrets":                    thief.List(t.Context(), &corev1.SecretList{}),
		"gives an agent other Secrets":     try(binding(func(*rbacv1.RoleBinding) {})),
		"gives a user the Secrets":         try(inCluster(func(b *rbacv1.RoleBinding) { b.Subjects[0].Name = "system:authenticated" })),
		"gives another cluster the tokens": try(inCluster(func(b *rbacv1.RoleBinding) { b.Subjects[0].Name = fleet.ClusterGroup("other") })),
		"binds another role":               try(inCluster(func(b *rbacv1.RoleBinding) { b.RoleRef.Name = "view" })),
		"makes another binding":            try(inCluster(func(b *rbacv1.RoleBinding) { b.Name = "another" })),
		"takes rights from Kubernetes": thief.Delete(t.Context(), &rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{
			Namespace: "kube-system", Name: "system::leader-locking-kube-scheduler"}}, client.DryRunAll),
		"writes a work of its own": try(framework.Work(cluster, "own", framework.ConfigMap("default", "a", "b"))),
		"changes the work of another": thief.Patch(t.Context(), framework.Work(cluster, "others"), framework.Merge(`{"spec":{"workload":{"manifests":[]}}}`),
			client.DryRunAll),
		"deletes the work of another": thief.Delete(t.Context(), framework.Work(cluster, "others"), client.DryRunAll),
		"changes another add-on":      thief.Patch(t.Context(), others, framework.Merge(`{"metadata":{"annotations":{"a":"b"}}}`), client.DryRunAll),
	} {
		if !apierrors.IsForbidden(err) {
			t.Errorf("the manager %s: %v", what, err)
		}
	}
}
