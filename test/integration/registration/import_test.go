package registration

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1 "github.com/capstan-io/capstan/api/cluster/v1"
	operatorv1 "github.com/capstan-io/capstan/api/operator/v1"
	"github.com/capstan-io/capstan/test/env"
	"github.com/capstan-io/capstan/test/integration/framework"
)

const (
	// importedImage is what agents are installed from.
	importedImage = "example.com/capstan-agent:v1"
	// byAccess has a ManagedCluster imported by its Secret access.
	byAccess = `{"metadata":{"annotations":{"capstan.io/import-kubeconfig-secret":"access"}}}`
)

// RG-47 RG-48: an accepted ManagedCluster gets an agent by the kubeconfig in a Secret that its annotation names. Each obstacle is in the
// condition, and goes when it is mended. With what is installed, the agent joins.
func TestImport(t *testing.T) {
	t.Parallel()
	hub := env.StartHub(t, "registration", "--feature-gates", "ClusterImporter=true", "--cluster-import-agent-image", importedImage,
		"--cluster-import-renderers", "render-auto,render-from-config-secret")
	sandbox := env.StartSandbox(t)
	h, s := hub.Client(t), sandbox.Client(t)
	access, err := os.ReadFile(sandbox.Kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	for _, cluster := range []string{"rome", "milan"} {
		framework.Create(t, h, framework.AcceptedCluster(cluster))
		framework.AwaitHubAccepted(t, h, cluster, metav1.ConditionTrue, "HubClusterAdminAccepted")
	}

	kubeconfig := secretWith("rome", "access", "value", []byte("users: [{"))
	framework.Create(t, h, kubeconfig)
	framework.MergePatch(t, h, framework.AcceptedCluster("rome"), byAccess)
	awaitImport(t, h, "rome", "KubeConfigGetFailed", "its value is no kubeconfig")
	setData(t, h, kubeconfig, "value", access)
	awaitImport(t, h, "rome", "ConfigRendererFailed", "get Secret rome/cluster-import-config")
	framework.Create(t, h, secretWith("rome", "cluster-import-config", "values.yaml", []byte("klusterlet: {mode: Singleton}")))
	awaitImport(t, h, "rome", "ImportSucceed", "")
	framework.AwaitEvent(t, h, metav1.NamespaceDefault, "ManagedClusterImported")
	bootstrap := checkInstalled(t, hub, s, "klusterlet", "rome")
	operator := &appsv1.Deployment{}
	framework.Get(t, s, client.ObjectKey{Namespace: "open-cluster-management", Name: "klusterlet"}, operator)
	if image := operator.Spec.Template.Spec.Containers[0].Image; image != importedImage {
		t.Errorf("the operator is of image %s", image)
	}
	agent := env.NewAgent(t, hub, sandbox, "rome", "") // as its pod would run
	env.ReplaceFile(t, agent.Bootstrap, bootstrap)
	if err := agent.Start(); err != nil {
		t.Fatal(err)
	}
	env.Accept(t, h, "rome")
	env.AwaitAvailable(t, h, "rome")
	awaitImport(t, h, "rome", "ImportSucceed", "")

	// Another one of the same cluster has to be named otherwise there.
	framework.Create(t, h, secretWith("milan", "cluster-import-config", "values.yaml", []byte("klusterlet: {mode: Default}")))
	given := secretWith("milan", "access", "kubeconfig", kubeconfigAt(t, access, "https://"+env.FreeAddress(t)))
	framework.Create(t, h, given)
	framework.MergePatch(t, h, framework.AcceptedCluster("milan"), byAccess)
	awaitImport(t, h, "milan", "ImportFailed", "connection refused")
	setData(t, h, given, "kubeconfig", access)
	awaitImport(t, h, "milan", "ImportFailed", "the cluster has joined a hub as rome already")
	config := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "milan", Name: "cluster-import-config"}}
	setData(t, h, config, "values.yaml", []byte("klusterlet: {name: second, namespace: open-cluster-management-second}"))
	awaitImport(t, h, "milan", "ImportSucceed", "")
	checkInstalled(t, hub, s, "second", "milan")
	checkInstalled(t, hub, s, "klusterlet", "rome")
	if strings.Contains(hub.Log(), "PRIVATE KEY") || strings.Contains(hub.Log(), "client-key-data") {
		t.Error("a kubeconfig is in the log of the hub")
	}
}

// RG-47 HC-02: the rights in deploy/hub are enough for an import, with that to read the Secret which docs/joining.md has users grant.
// Clusters of Cluster API are followed after an upgrade that no longer serves their version.
func TestImportByHubInExistingCluster(t *testing.T) {
	t.Parallel()
	existing := env.StartSandbox(t)
	c := existing.Client(t)
	framework.ServeOnly(t, existing, []string{"managedclusters", "managedclustersets", "managedclustersetbindings",
		"managedclusteraddons"})
	for _, file := range []string{"rights.yaml", "clusterimporter.yaml", "policies.yaml"} {
		framework.Create(t, c, framework.Deployed(t, file, func(content []byte) []byte { return content })...)
	}
	serveClusterAPI(t, c)
	access, err := os.ReadFile(existing.Kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	info := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespacePublic, Name: "cluster-info"},
		Data: map[string]string{"kubeconfig": string(kubeconfigAt(t, access, "https://hub.example.com"))}}
	if err := client.IgnoreAlreadyExists(c.Create(t.Context(), info)); err != nil {
		t.Fatal(err)
	}
	controllers := env.NewControllers(t, framework.KubeconfigOf(t, existing, "registration-controller-sa"), "--leader-election-namespace",
		"open-cluster-management-hub", "--controllers", "registration", "--feature-gates", "ClusterImporter=true",
		"--cluster-import-renderers", "render-auto", "--health-probe-bind-address", "0")
	if err := controllers.Start(); err != nil {
		t.Fatal(err)
	}
	framework.Create(t, c, framework.AcceptedCluster("rome"))
	framework.AwaitHubAccepted(t, c, "rome", metav1.ConditionTrue, "HubClusterAdminAccepted")
	role := &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Namespace: "rome", Name: "import"}, Rules: []rbacv1.PolicyRule{{
		APIGroups: []string{""}, Resources: []string{"secrets"}, ResourceNames: []string{"rome-kubeconfig"}, Verbs: []string{"get"}}}}
	account := rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Namespace: "open-cluster-management-hub", Name: "registration-controller-sa"}
	binding := &rbacv1.RoleBinding{ObjectMeta: role.ObjectMeta, Subjects: []rbacv1.Subject{account},
		RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: role.Name}}
	framework.Create(t, c, role, binding, secretWith("rome", "rome-kubeconfig", "value", access))
	provisioned := capiCluster("rome")
	framework.Create(t, c, provisioned)
	setPhase(t, c, provisioned, "Provisioned")
	awaitImport(t, c, "rome", "ImportSucceed", "")
	if strings.Contains(controllers.Log(), "forbidden") {
		t.Errorf("a right is missing in deploy/hub/clusterimporter.yaml, or a policy says too much:\n%s", controllers.Log())
	}

	upgraded, err := json.Marshal(map[string]any{"spec": map[string]any{"versions": capiVersions("v1beta1", "v1beta2")}})
	if err != nil {
		t.Fatal(err)
	}
	framework.MergePatch(t, c, capiDefinition(), string(upgraded))
	awaitServed(t, c, "v1beta2")
	framework.Create(t, c, framework.AcceptedCluster("milan"))
	framework.AwaitHubAccepted(t, c, "milan", metav1.ConditionTrue, "HubClusterAdminAccepted")
	later := capiCluster("milan")
	later.SetAPIVersion("cluster.x-k8s.io/v1beta2")
	framework.Create(t, c, later)
	setPhase(t, c, later, "Provisioned")
	awaitImport(t, c, "milan", "KubeConfigGetFailed", "get Secret milan/milan-kubeconfig")
}

// awaitImport waits for what the condition of a ManagedCluster says. Secrets are not watched: it may take until the next attempt.
func awaitImport(t *testing.T, h client.Client, name, reason, message string) {
	t.Helper()
	const longestPause = time.Minute
	env.EventuallyAfter(t, longestPause, func(ctx context.Context) error {
		cluster := &clusterv1.ManagedCluster{}
		if err := h.Get(ctx, client.ObjectKey{Name: name}, cluster); err != nil {
			return err
		}
		condition := meta.FindStatusCondition(cluster.Status.Conditions, "ManagedClusterImportSucceeded")
		if condition == nil || condition.Reason != reason || !strings.Contains(condition.Message, message) ||
			(condition.Status == metav1.ConditionTrue) != (reason == "ImportSucceed") {
			return fmt.Errorf("the condition is %+v, want %s: %s", condition, reason, message)
		}
		return nil
	})
}

// checkInstalled checks that the cluster has a Klusterlet for a ManagedCluster, and a credential with which its agent may ask to join, and
// returns that.
func checkInstalled(t *testing.T, hub *env.Server, s client.Client, name, cluster string) (kubeconfig []byte) {
	t.Helper()
	klusterlet := &operatorv1.Klusterlet{}
	framework.Get(t, s, client.ObjectKey{Name: name}, klusterlet)
	if klusterlet.Spec.ClusterName != cluster || klusterlet.Spec.RegistrationImagePullSpec != importedImage {
		t.Errorf("Klusterlet %s is %+v", name, klusterlet.Spec)
	}
	bootstrap := &corev1.Secret{}
	framework.Get(t, s, client.ObjectKey{Namespace: klusterlet.Spec.Namespace, Name: "bootstrap-hub-kubeconfig"}, bootstrap)
	config, err := clientcmd.RESTConfigFromKubeConfig(bootstrap.Data["kubeconfig"])
	if err != nil {
		t.Fatal(err)
	}
	if who := framework.WhoIs(t, config); who.Username != "system:serviceaccount:open-cluster-management:agent-registration-bootstrap" {
		t.Errorf("the agent of %s joins as %s", cluster, who.Username)
	}
	own, err := hub.Config()
	if err != nil {
		t.Fatal(err)
	}
	if config.Host != own.Host {
		t.Errorf("the agent of %s joins %s, not %s", cluster, config.Host, own.Host)
	}
	return bootstrap.Data["kubeconfig"]
}

// serveClusterAPI has the API server serve Clusters of Cluster API, as far as the hub needs rights for them.
func serveClusterAPI(t *testing.T, c client.Client) {
	t.Helper()
	crd := capiDefinition()
	crd.Object["spec"] = map[string]any{
		"group": "cluster.x-k8s.io", "scope": "Namespaced", "versions": capiVersions("v1beta1"),
		"names": map[string]any{"kind": "Cluster", "listKind": "ClusterList", "plural": "clusters", "singular": "cluster"},
	}
	framework.Create(t, c, crd)
	awaitServed(t, c, "v1beta1")
}

func capiDefinition() *unstructured.Unstructured {
	crd := &unstructured.Unstructured{Object: map[string]any{}}
	crd.SetGroupVersionKind(apiextensionsv1.SchemeGroupVersion.WithKind("CustomResourceDefinition"))
	crd.SetName("clusters.cluster.x-k8s.io")
	return crd
}

// capiVersions are versions of Clusters, of which the last one alone is served.
func capiVersions(names ...string) (versions []any) {
	open := map[string]any{"openAPIV3Schema": map[string]any{"type": "object", "x-kubernetes-preserve-unknown-fields": true}}
	for i, name := range names {
		last := i == len(names)-1
		versions = append(versions, map[string]any{"name": name, "served": last, "storage": last, "schema": open,
			"subresources": map[string]any{"status": map[string]any{}}})
	}
	return versions
}

func awaitServed(t *testing.T, c client.Client, version string) {
	t.Helper()
	env.Eventually(t, func(ctx context.Context) error {
		list := &unstructured.UnstructuredList{}
		list.SetGroupVersionKind(schema.GroupVersionKind{Group: "cluster.x-k8s.io", Version: version, Kind: "ClusterList"})
		return c.List(ctx, list)
	})
}

// capiCluster is a Cluster of Cluster API, named as its namespace.
func capiCluster(name string) *unstructured.Unstructured {
	cluster := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{}}}
	cluster.SetGroupVersionKind(schema.GroupVersionKind{Group: "cluster.x-k8s.io", Version: "v1beta1", Kind: "Cluster"})
	cluster.SetNamespace(name)
	cluster.SetName(name)
	return cluster
}

func setPhase(t *testing.T, c client.Client, cluster *unstructured.Unstructured, phase string) {
	t.Helper()
	if err := c.Status().Patch(t.Context(), cluster, framework.Merge(`{"status":{"phase":"`+phase+`"}}`)); err != nil {
		t.Fatal(err)
	}
}

func secretWith(namespace, name, key string, value []byte) *corev1.Secret {
	return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Data: map[string][]byte{key: value}}
}

func setData(t *testing.T, c client.Client, secret *corev1.Secret, key string, value []byte) {
	t.Helper()
	data, err := json.Marshal(map[string]any{"data": map[string][]byte{key: value}})
	if err != nil {
		t.Fatal(err)
	}
	framework.MergePatch(t, c, secret, string(data))
}

// kubeconfigAt is a kubeconfig that leads to another server.
func kubeconfigAt(t *testing.T, content []byte, server string) []byte {
	t.Helper()
	config, err := clientcmd.Load(content)
	if err != nil {
		t.Fatal(err)
	}
	for _, cluster := range config.Clusters {
		cluster.Server = server
	}
	changed, err := clientcmd.Write(*config)
	if err != nil {
		t.Fatal(err)
	}
	return changed
}
