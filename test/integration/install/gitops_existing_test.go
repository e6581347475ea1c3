package install

import (
	"errors"
	"fmt"
	"net"
	"strings"
	"testing"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	appsv1beta1 "github.com/capstan-io/capstan/api/apps/v1beta1"
	clusterv1beta1 "github.com/capstan-io/capstan/api/cluster/v1beta1"
	clusterv1beta2 "github.com/capstan-io/capstan/api/cluster/v1beta2"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
	"github.com/capstan-io/capstan/internal/reach/api"
	"github.com/capstan-io/capstan/test/env"
	"github.com/capstan-io/capstan/test/integration/framework"
)

// AR-03 HC-08 CP-03: on a hub in an existing cluster, the chart of the tunnels lets their process have Argo CD know clusters, by the user
// server, and do no more with the Secrets of the hub.
func TestGitOpsClusterChart(t *testing.T) {
	t.Parallel()
	const name, namespace, account = "gitopschart", "open-cluster-management-addon", "deployer"
	existing, _ := framework.HubInExistingCluster(t)
	framework.StartPlacementControllers(t, existing)
	h := existing.Client(t)
	crd := &apiextensionsv1.CustomResourceDefinition{ObjectMeta: metav1.ObjectMeta{Name: "gitopsclusters.apps.open-cluster-management.io"}}
	if err := h.Delete(t.Context(), crd); err != nil {
		t.Fatal(err)
	}
	framework.AwaitGone(t, h, crd)
	chart := helm{cluster: existing, namespace: namespace}
	chart.install(t, "cluster-proxy", chartOf(t, "cluster-proxy"), "featureGates: {gitOpsCluster: true}\n")
	first := startTunnels(t, existing, namespace)
	p := &framework.Proxied{On: existing, API: api.Aggregated, Name: name}
	p.Agent = env.NewAgent(t, existing, framework.Managed, name,
		framework.TokenOf(t, existing, fleet.NamespaceOperators, fleet.ServiceAccountBootstrap), "--namespace",
		framework.Namespace(t, framework.Managed.Client(t), name))
	if err := p.Agent.Start(); err != nil {
		t.Fatal(err)
	}
	env.Accept(t, h, name)
	p.AwaitAvailable(t, metav1.ConditionTrue, fleet.ReasonTunnelConnected, "")

	token, _ := framework.AccountOnCluster(t, name)
	argo := framework.Namespace(t, h, "argocd")
	server := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: argo, Name: "argocd-server",
		Labels: map[string]string{"app.kubernetes.io/component": "server", "app.kubernetes.io/part-of": "argocd"}}}
	server.Spec.Ports = []corev1.ServicePort{{Port: 443}}
	binding := &clusterv1beta2.ManagedClusterSetBinding{ObjectMeta: metav1.ObjectMeta{Namespace: argo, Name: "global"}}
	binding.Spec.ClusterSet = "global"
	g := &appsv1beta1.GitOpsCluster{ObjectMeta: metav1.ObjectMeta{Namespace: argo, Name: "web"}}
	g.Spec.PlacementRef = &corev1.ObjectReference{Kind: "Placement", Name: "web"}
	g.Spec.ManagedServiceAccountRef = account
	framework.Create(t, h, server, binding, &clusterv1beta1.Placement{ObjectMeta: metav1.ObjectMeta{Namespace: argo, Name: "web"}}, g,
		&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: name, Name: account,
			Labels: map[string]string{fleet.LabelManagedServiceAccount: "true"}}, Data: map[string][]byte{"token": []byte(token)}})
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: argo, Name: name + "-" + account + "-cluster-secret"}}
	framework.AwaitObject(t, h, secret, func(*corev1.Secret) error { return nil })
	framework.AwaitGitOps(t, h, g, "successful", "ClustersRegistered")
	framework.ExpectArgoAccount(t, secret, "system:serviceaccount:default:"+name)
	testStolenTokenOfTunnels(t, existing, namespace, secret)
	testAccessElected(t, existing, namespace, secret, first)
	if err := h.Delete(t.Context(), g); err != nil {
		t.Fatal(err)
	}
	framework.AwaitGone(t, h, secret)
}

// tunnels is a process of the chart, outside of the cluster.
type tunnels struct {
	*env.Process
	// userServer is the URL of its user server.
	userServer string
}

// startTunnels runs the process that the Service leads to.
func startTunnels(t *testing.T, existing *env.Server, namespace string) *tunnels {
	t.Helper()
	h, address := existing.Client(t), env.FreeAddress(t)
	_, port, err := net.SplitHostPort(address)
	if err != nil {
		t.Fatal(err)
	}
	framework.MergePatch(t, h, &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "cluster-proxy"}},
		`{"spec":{"type":"ExternalName","externalName":"localhost","clusterIP":null,"clusterIPs":null}}`)
	group := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: "v1alpha1.reach.capstan.io"}}
	group.SetGroupVersionKind(schema.GroupVersionKind{Group: apiregistrationv1.GroupName, Version: "v1", Kind: "APIService"})
	framework.MergePatch(t, h, group, `{"spec":{"service":{"port":`+port+`}}}`)
	return startTunnelsAt(t, existing, namespace, address)
}

// startTunnelsAt runs a process as the service account of the chart.
func startTunnelsAt(t *testing.T, existing *env.Server, namespace, address string) *tunnels {
	t.Helper()
	userServer := env.FreeAddress(t)
	_, port, err := net.SplitHostPort(userServer)
	if err != nil {
		t.Fatal(err)
	}
	started := &tunnels{userServer: "https://127.0.0.1:" + port}
	access := framework.KubeconfigIn(t, existing, namespace, "cluster-proxy")
	started.Process = env.NewAggregatedAPI(t, "cluster-proxy", access, address,
		"--lease-namespace", namespace, "--user-server-port", port, "--user-server-hosts", "127.0.0.1",
		"--user-server-url", started.userServer, "--feature-gates", "GitOpsCluster=true")
	framework.StartChartProcess(t, started.Process)
	return started
}

// testAccessElected: of two processes, the holder of the Lease writes how clusters are reached, and the other one when that has gone.
func testAccessElected(t *testing.T, existing *env.Server, namespace string, secret *corev1.Secret, first *tunnels) {
	t.Helper()
	h := existing.Client(t)
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "capstan-hub-cluster-proxy-access"}}
	if err := h.Get(t.Context(), client.ObjectKeyFromObject(lease), lease); err != nil {
		t.Fatal(err)
	}
	second := startTunnelsAt(t, existing, namespace, env.FreeAddress(t))
	leadsTo := func(p *tunnels) func(*corev1.Secret) error {
		return func(s *corev1.Secret) error {
			if server := string(s.Data["server"]); !strings.HasPrefix(server, p.userServer+"/") {
				return fmt.Errorf("the Secret of Argo CD names %s, want one below %s", server, p.userServer)
			}
			return nil
		}
	}
	framework.AwaitObject(t, h, secret, leadsTo(first))
	if err := first.Stop(); err != nil {
		t.Fatal(err)
	}
	framework.AwaitObject(t, h, secret, leadsTo(second))
}

// testStolenTokenOfTunnels: who has the token of the process writes no other Secrets, and gives nobody rights.
func testStolenTokenOfTunnels(t *testing.T, existing *env.Server, namespace string, ours *corev1.Secret) {
	t.Helper()
	thief := impersonate(t, existing, fleet.ServiceAccountUser(namespace, "cluster-proxy"))
	argo := ours.Namespace
	own := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: argo, Name: "own-cluster-secret",
		Labels: map[string]string{fleet.LabelArgoSecretType: fleet.ArgoSecretTypeCluster}}}
	framework.Create(t, existing.Client(t), own)
	secret := func(change func(*corev1.Secret)) *corev1.Secret {
		made := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: argo, Name: "c-cluster-secret", Labels: ours.Labels,
			Annotations: ours.Annotations}}
		change(made)
		return made
	}
	named := func(name string) metav1.ObjectMeta { return metav1.ObjectMeta{Namespace: argo, Name: name} }
	inNew := metav1.ObjectMeta{Namespace: framework.Namespace(t, existing.Client(t), "new"), Name: "new-applicationset-controller-placement"}
	ofNew := &rbacv1.Role{ObjectMeta: inNew, Rules: []rbacv1.PolicyRule{{APIGroups: []string{clusterv1beta1.GroupVersion.Group},
		Resources: []string{"placementdecisions"}, Verbs: []string{"get", "list", "watch"}}}}
	framework.Create(t, existing.Client(t), ofNew)
	binding := func(change func(*rbacv1.RoleBinding)) *rbacv1.RoleBinding {
		made := &rbacv1.RoleBinding{ObjectMeta: inNew, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: inNew.Name},
			Subjects: []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: inNew.Namespace, Name: "argocd-applicationset-controller"}}}
		change(made)
		return made
	}
	inOther := metav1.ObjectMeta{Namespace: "default", Name: "default-applicationset-controller-placement"}
	const tunnels = "open-cluster-management:cluster-proxy"
	try := func(o client.Object) error { return thief.Create(t.Context(), o, client.DryRunAll) }
	if err := errors.Join(try(secret(func(*corev1.Secret) {})), try(binding(func(*rbacv1.RoleBinding) {}))); err != nil {
		t.Errorf("it does not write what it has to: %v", err)
	}
	label := framework.Merge(`{"metadata":{"labels":{"` + fleet.LabelArgoImported + `":"true"}}}`)
	for what, err := range map[string]error{
		"writes another Secret":        try(secret(func(s *corev1.Secret) { s.Name = "other" })),
		"writes one for no cluster":    try(secret(func(s *corev1.Secret) { s.Labels = nil })),
		"writes one for nobody":        try(secret(func(s *corev1.Secret) { s.Annotations = nil })),
		"writes one of another type":   try(secret(func(s *corev1.Secret) { s.Type = corev1.SecretTypeBasicAuth })),
		"takes the Secret of a user":   thief.Patch(t.Context(), own.DeepCopy(), label, client.DryRunAll),
		"deletes the Secret of a user": thief.Delete(t.Context(), own.DeepCopy(), client.DryRunAll),
		"makes another ConfigMap":      try(&corev1.ConfigMap{ObjectMeta: named("other")}),
		"makes another Role":           try(&rbacv1.Role{ObjectMeta: named("other")}),
		"makes one for Secrets": try(&rbacv1.Role{ObjectMeta: inOther, Rules: []rbacv1.PolicyRule{
			{APIGroups: []string{""}, Resources: []string{"secrets"}, Verbs: []string{"get"}}}}),
		"makes another binding": try(binding(func(b *rbacv1.RoleBinding) { b.Name = "other" })),
		"gives others its own rights": try(binding(func(b *rbacv1.RoleBinding) {
			b.RoleRef = rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: tunnels}
		})),
		"gives rights elsewhere": try(binding(func(b *rbacv1.RoleBinding) { b.Subjects[0].Namespace = argo })),
		"takes the rights of ApplicationSets": thief.Delete(t.Context(), &rbacv1.Role{
			ObjectMeta: named(argo + "-applicationset-controller-placement")}, client.DryRunAll),
		"makes a GitOpsCluster":      try(&appsv1beta1.GitOpsCluster{ObjectMeta: named("other")}),
		"changes a binding of a set": thief.Patch(t.Context(), &clusterv1beta2.ManagedClusterSetBinding{ObjectMeta: named("global")}, label),
	} {
		if !apierrors.IsForbidden(err) && !apierrors.IsInvalid(err) {
			t.Errorf("it %s: %v", what, err)
		}
	}
}
