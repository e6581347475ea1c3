package install

import (
	"bytes"
	"context"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"helm.sh/helm/v4/pkg/action"
	"helm.sh/helm/v4/pkg/chart/loader/archive"
	chartv2 "helm.sh/helm/v4/pkg/chart/v2"
	"helm.sh/helm/v4/pkg/chart/v2/loader"
	"helm.sh/helm/v4/pkg/kube"
	appsv1 "k8s.io/api/apps/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	operatorv1 "github.com/capstan-io/capstan/api/operator/v1"
	"github.com/capstan-io/capstan/deploy/charts"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
	"github.com/capstan-io/capstan/test/env"
	"github.com/capstan-io/capstan/test/integration/framework"
)

// helm is Helm with the access of an administrator to a cluster.
type helm struct {
	cluster   *env.Server
	namespace string
}

func (h helm) configuration(t *testing.T) *action.Configuration {
	t.Helper()
	access := genericclioptions.NewConfigFlags(true)
	access.KubeConfig, access.Namespace = &h.cluster.Kubeconfig, &h.namespace
	config := action.NewConfiguration(action.ConfigurationSetLogger(slog.DiscardHandler))
	if err := config.Init(access, h.namespace, "secret"); err != nil {
		t.Fatal(err)
	}
	return config
}

// install does it again if it was too early for a CRD: Helm does not wait until the API server lists its kind.
func (h helm) install(t *testing.T, release string, chart *chartv2.Chart, values string) {
	t.Helper()
	env.Eventually(t, func(ctx context.Context) error {
		install := action.NewInstall(h.configuration(t))
		install.ReleaseName, install.Namespace, install.CreateNamespace = release, h.namespace, true
		install.WaitStrategy = kube.HookOnlyStrategy
		_, err := install.RunWithContext(ctx, chart, valuesOf(t, values))
		if err != nil && !strings.Contains(err.Error(), "ensure CRDs are installed first") {
			t.Fatalf("install %s: %v", release, err)
		}
		return err
	})
}

// upgrade upgrades a release.
func (h helm) upgrade(t *testing.T, release string, chart *chartv2.Chart, values string) {
	t.Helper()
	upgrade := action.NewUpgrade(h.configuration(t))
	upgrade.Namespace, upgrade.WaitStrategy = h.namespace, kube.HookOnlyStrategy
	if _, err := upgrade.RunWithContext(t.Context(), release, chart, valuesOf(t, values)); err != nil {
		t.Fatalf("upgrade %s: %v", release, err)
	}
}

// uninstall removes a release.
func (h helm) uninstall(t *testing.T, release string) {
	t.Helper()
	uninstall := action.NewUninstall(h.configuration(t))
	uninstall.WaitStrategy = kube.HookOnlyStrategy
	if _, err := uninstall.Run(release); err != nil {
		t.Fatalf("uninstall %s: %v", release, err)
	}
}

func valuesOf(t *testing.T, values string) map[string]any {
	t.Helper()
	var decoded map[string]any
	if err := yaml.Unmarshal([]byte(values), &decoded); err != nil {
		t.Fatal(err)
	}
	return decoded
}

// chartOf is a chart of this repository.
func chartOf(t *testing.T, name string) *chartv2.Chart {
	t.Helper()
	var files []*archive.BufferedFile
	err := fs.WalkDir(charts.Files, name, func(file string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		data, err := charts.Files.ReadFile(file)
		files = append(files, &archive.BufferedFile{Name: strings.TrimPrefix(file, name+"/"), Data: data})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	chart, err := loader.LoadFiles(files)
	if err != nil {
		t.Fatal(err)
	}
	return chart
}

// HC-02 HC-03 HC-04: Helm installs, upgrades and uninstalls the operator of a hub on a real API server. An upgrade keeps the bootstrap
// token and updates the CRD; an uninstallation keeps the hub.
func TestClusterManagerChart(t *testing.T) {
	t.Parallel()
	cluster := env.StartSandbox(t)
	c := cluster.Client(t)
	h := helm{cluster: cluster, namespace: fleet.NamespaceOperators}
	const values = "createBootstrapToken: true\ncreateBootstrapSA: true\nimages: {imageCredentials: {createImageCredentials: true}}\n"
	h.install(t, "cluster-manager", olderChart(t, "cluster-manager"), values)
	expectColumns(t, c, "clustermanagers", false)

	token := &corev1.Secret{}
	tokenKey := client.ObjectKey{Namespace: metav1.NamespaceSystem, Name: fleet.SecretBootstrapToken}
	framework.Get(t, c, tokenKey, token)
	manager := &operatorv1.ClusterManager{}
	framework.Get(t, c, client.ObjectKey{Name: "cluster-manager"}, manager)
	bearer := string(token.Data["token-id"]) + "." + string(token.Data["token-secret"])
	if user := userOf(t, cluster, bearer); !slices.Contains(manager.Spec.RegistrationConfiguration.AutoApproveUsers, user.Username) ||
		!slices.Contains(user.Groups, fleet.GroupBootstrap) {
		t.Errorf("the token is of %+v, the ClusterManager trusts %v", user, manager.Spec.RegistrationConfiguration.AutoApproveUsers)
	}
	account := fleet.ServiceAccountUser(fleet.NamespaceOperators, fleet.ServiceAccountBootstrap)
	if !slices.Contains(manager.Spec.RegistrationConfiguration.AutoApproveUsers, account) {
		t.Errorf("the ClusterManager trusts %v, not %s", manager.Spec.RegistrationConfiguration.AutoApproveUsers, account)
	}

	h.upgrade(t, "cluster-manager", chartOf(t, "cluster-manager"), values+"replicaCount: 2\n")
	expectColumns(t, c, "clustermanagers", true)
	upgraded := &corev1.Secret{}
	framework.Get(t, c, tokenKey, upgraded)
	if string(upgraded.Data["token-secret"]) != string(token.Data["token-secret"]) {
		t.Error("the upgrade changed the bootstrap token")
	}
	deployment := &appsv1.Deployment{}
	deploymentKey := client.ObjectKey{Namespace: h.namespace, Name: "cluster-manager"}
	framework.Get(t, c, deploymentKey, deployment)
	if *deployment.Spec.Replicas != 2 {
		t.Errorf("after the upgrade, there are %d replicas, want 2", *deployment.Spec.Replicas)
	}

	h.uninstall(t, "cluster-manager")
	framework.AwaitGone(t, c, deployment)
	left := &operatorv1.ClusterManager{}
	framework.Get(t, c, client.ObjectKey{Name: "cluster-manager"}, left)
	if left.UID != manager.UID || left.DeletionTimestamp != nil {
		t.Error("the ClusterManager is not the same after the chart was uninstalled")
	}
	h.install(t, "cluster-manager", chartOf(t, "cluster-manager"), "")
	framework.Get(t, c, deploymentKey, deployment)
	framework.Get(t, c, client.ObjectKey{Name: "cluster-manager"}, left)
	if left.UID != manager.UID {
		t.Error("the next installation replaced the ClusterManager")
	}
}

// HC-05 HC-06: the same for the operator of agents, with everything there is to create. What others own stays theirs.
func TestKlusterletChart(t *testing.T) {
	t.Parallel()
	cluster := env.StartSandbox(t)
	c := cluster.Client(t)
	framework.Create(t, c,
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "open-cluster-management-owned", Labels: map[string]string{"owner": "another"}}},
		&schedulingv1.PriorityClass{ObjectMeta: metav1.ObjectMeta{Name: "owned"}, Value: 7})
	h := helm{cluster: cluster, namespace: fleet.NamespaceOperators}
	const values = `
replicaCount: 2
bootstrapHubKubeConfig: one
grpcConfig: two
priorityClassName: owned
images: {imageCredentials: {createImageCredentials: true}}
multiHubBootstrapHubKubeConfigs: [{name: hub1, kubeConfig: one}, {name: hub2, kubeConfig: two}]
klusterlet: {clusterName: c1, namespace: open-cluster-management-owned}
`
	h.install(t, "klusterlet", olderChart(t, "klusterlet"), values)
	installed := &operatorv1.Klusterlet{}
	framework.Get(t, c, client.ObjectKey{Name: "klusterlet"}, installed)
	secret := &corev1.Secret{}
	framework.Get(t, c, client.ObjectKey{Namespace: "open-cluster-management-owned", Name: fleet.SecretBootstrapHubKubeconfig}, secret)
	if string(secret.Data["kubeconfig"]) != "one" || string(secret.Data["config.yaml"]) != "two" {
		t.Errorf("the bootstrap Secret has %v", secret.Data)
	}
	h.upgrade(t, "klusterlet", chartOf(t, "klusterlet"), values+"enableSyncLabels: true\n")
	expectColumns(t, c, "klusterlets", true)

	// Another release of the chart, for a hosted agent, has no operator.
	h.install(t, "hosted", chartOf(t, "klusterlet"),
		"bootstrapHubKubeConfig: one\nexternalManagedKubeConfig: two\npriorityClassName: agents\nklusterlet: {mode: Hosted, clusterName: c2}")
	framework.Get(t, c, client.ObjectKey{Namespace: "klusterlet-c2", Name: "external-managed-kubeconfig"}, secret)
	framework.Get(t, c, client.ObjectKey{Name: "klusterlet-c2"}, &operatorv1.Klusterlet{})
	h.uninstall(t, "hosted")
	framework.Get(t, c, client.ObjectKeyFromObject(secret), secret)
	framework.Get(t, c, client.ObjectKey{Name: "agents"}, &schedulingv1.PriorityClass{})

	h.uninstall(t, "klusterlet")
	framework.AwaitGone(t, c, &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: h.namespace, Name: "klusterlet"}})
	left := &operatorv1.Klusterlet{}
	framework.Get(t, c, client.ObjectKey{Name: "klusterlet"}, left)
	if left.UID != installed.UID || left.DeletionTimestamp != nil {
		t.Error("the Klusterlet is not the same after the chart was uninstalled")
	}
	class := &schedulingv1.PriorityClass{}
	framework.Get(t, c, client.ObjectKey{Name: "owned"}, class)
	if class.Value != 7 {
		t.Errorf("the PriorityClass of another owner has the value %d", class.Value)
	}
	owned := &corev1.Namespace{}
	framework.Get(t, c, client.ObjectKey{Name: "open-cluster-management-owned"}, owned)
	if owned.Labels["owner"] != "another" || owned.DeletionTimestamp != nil {
		t.Errorf("the namespace of another owner is %+v", owned.ObjectMeta)
	}
}

// HC-02 HC-06: the charts of hub and agents, in one namespace with passwords of the registry, share the Secret of the release that was
// installed first: until the Secret is given to the other, as its notes say.
func TestChartsShareAPullSecret(t *testing.T) {
	t.Parallel()
	cluster := env.StartSandbox(t)
	c := cluster.Client(t)
	h := helm{cluster: cluster, namespace: fleet.NamespaceOperators}
	values := func(section, password string) string {
		return section + ": {create: false}\nimages: {imageCredentials: {createImageCredentials: true, userName: me, password: " + password + "}}"
	}
	ofHub := func(password string) string { return values("clusterManager", password) }
	ofAgents := func(password string) string { return values("klusterlet", password) }
	secret := &corev1.Secret{}
	expect := func(password string) {
		t.Helper()
		framework.Get(t, c, client.ObjectKey{Namespace: h.namespace, Name: fleet.SecretImagePullCredentials}, secret)
		if content := string(secret.Data[corev1.DockerConfigJsonKey]); !strings.Contains(content, `"password":"`+password+`"`) {
			t.Errorf("the Secret has %s, want the password %s", content, password)
		}
	}
	h.install(t, "cluster-manager", chartOf(t, "cluster-manager"), ofHub("one"))
	h.install(t, "klusterlet", chartOf(t, "klusterlet"), ofAgents("two"))
	expect("one")
	h.upgrade(t, "cluster-manager", chartOf(t, "cluster-manager"), ofHub("three"))
	h.upgrade(t, "klusterlet", chartOf(t, "klusterlet"), ofAgents("two"))
	expect("three")
	h.uninstall(t, "cluster-manager")
	expect("three")

	secret.Annotations["meta.helm.sh/release-name"] = "klusterlet"
	if err := c.Update(t.Context(), secret); err != nil {
		t.Fatal(err)
	}
	h.upgrade(t, "klusterlet", chartOf(t, "klusterlet"), ofAgents("four"))
	expect("four")
}

// HC-07 SC-24 SC-25: Helm installs and upgrades a standalone hub on a real API server, and the program runs with what is in the Secret and
// in the Deployment.
func TestHubChart(t *testing.T) {
	t.Parallel()
	cluster := env.StartSandbox(t)
	c := cluster.Client(t)
	h := helm{cluster: cluster, namespace: "hub-of-a-chart"}
	address := env.FreeAddress(t)
	_, port, _ := strings.Cut(address, ":")
	values := "apiserver: {generateCA: true, externalHostname: 127.0.0.1, externalPort: " + port + "}\nnodeport: {enabled: true}\n" +
		"extraArgs: [--bind-address=127.0.0.1]\ntls: {minVersion: VersionTLS13}\nautoApprovalBootstrapUsers: 'alice,bob'\n"
	h.install(t, "multicluster-controlplane", chartOf(t, "capstan-hub"), values)
	config := &corev1.Secret{}
	key := client.ObjectKey{Namespace: h.namespace, Name: "controlplane-config"}
	framework.Get(t, c, key, config)
	h.upgrade(t, "multicluster-controlplane", chartOf(t, "capstan-hub"), values+"podLabels: {upgraded: 'true'}")
	upgraded := &corev1.Secret{}
	framework.Get(t, c, key, upgraded)
	if !reflect.DeepEqual(config.Data, upgraded.Data) || len(config.Data["ca.key"]) == 0 {
		t.Error("the upgrade changed the CA of the hub")
	}
	deployment := &appsv1.Deployment{}
	framework.Get(t, c, client.ObjectKey{Namespace: h.namespace, Name: "multicluster-controlplane"}, deployment)
	if deployment.Spec.Template.Labels["upgraded"] != "true" {
		t.Fatal("the Deployment is not upgraded")
	}

	dir, data := t.TempDir(), t.TempDir()
	local := strings.NewReplacer("/controlplane_config", dir, "/.ocm", data)
	for name, content := range config.Data {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(local.Replace(string(content))), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	container := deployment.Spec.Template.Spec.Containers[0]
	var args, variables []string
	for _, arg := range container.Args {
		args = append(args, local.Replace(arg))
	}
	for _, variable := range container.Env {
		variables = append(variables, variable.Name+"="+variable.Value)
	}
	kubeconfig := filepath.Join(data, "cert", "kube-aggregator.kubeconfig")
	server := &env.Server{Process: env.NewProgram(t, variables, "capstan-hub", args...), Dir: dir, Kubeconfig: kubeconfig}
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	if err := server.AwaitReady(t.Context()); err != nil {
		t.Fatal(err)
	}
	if access, err := server.Config(); err != nil || access.Host != "https://"+address || !bytes.Equal(access.CAData, config.Data["ca.crt"]) {
		t.Errorf("the hub is at %s with the CA\n%s(%v), want %s with that of the chart", access.Host, access.CAData, err, address)
	}
}

// HC-02 HC-06: with the rights of the charts, the operators can grant what the hub and the agents need; that of the hub cannot grant more.
func TestRightsOfOperators(t *testing.T) {
	t.Parallel()
	cluster := env.StartSandbox(t)
	h := helm{cluster: cluster, namespace: fleet.NamespaceOperators}
	h.install(t, "cluster-manager", chartOf(t, "cluster-manager"), "clusterManager: {create: false}")
	h.install(t, "klusterlet", chartOf(t, "klusterlet"), "klusterlet: {create: false}")
	hubOperator := actAs(t, cluster, fleet.ServiceAccountUser(h.namespace, "cluster-manager"))
	for _, file := range []string{"rights.yaml", "clusterprofiles.yaml", "policies.yaml", "webhooks.yaml"} {
		for _, object := range framework.Deployed(t, file, func(content []byte) []byte { return content }) {
			if err := hubOperator.Create(t.Context(), object); err != nil && !apierrors.IsAlreadyExists(err) {
				t.Errorf("%s: %v", file, err)
			}
		}
	}
	agentOperator := actAs(t, cluster, fleet.ServiceAccountUser(h.namespace, "klusterlet"))
	everything := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "everything"},
		Rules: []rbacv1.PolicyRule{{APIGroups: []string{"*"}, Resources: []string{"*"}, Verbs: []string{"*"}}}}
	toAdmin := &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: "open-cluster-management:klusterlet-work:execution-admin"},
		RoleRef:  rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "admin"},
		Subjects: []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: "open-cluster-management-agent", Name: "klusterlet-work-sa"}}}
	for _, object := range []client.Object{everything, toAdmin} {
		if err := hubOperator.Create(t.Context(), object.DeepCopyObject().(client.Object)); !apierrors.IsForbidden(err) {
			t.Errorf("the operator of the hub grants %s: %v", object.GetName(), err)
		}
	}
	aggregate := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "open-cluster-management:klusterlet-work:aggregate"},
		AggregationRule: &rbacv1.AggregationRule{ClusterRoleSelectors: []metav1.LabelSelector{
			{MatchLabels: map[string]string{"open-cluster-management.io/aggregate-to-work": "true"}}}}}
	framework.Create(t, agentOperator, toAdmin, aggregate)
}

func actAs(t *testing.T, cluster *env.Server, user string) client.Client {
	t.Helper()
	config, err := cluster.Config()
	if err != nil {
		t.Fatal(err)
	}
	config.Impersonate = rest.ImpersonationConfig{UserName: user}
	return env.ClientFor(t, config)
}

// userOf returns as whom a token is accepted.
func userOf(t *testing.T, cluster *env.Server, token string) authenticationv1.UserInfo {
	t.Helper()
	admin, err := cluster.Config()
	if err != nil {
		t.Fatal(err)
	}
	config := rest.AnonymousClientConfig(admin)
	config.BearerToken = token
	review := &authenticationv1.SelfSubjectReview{}
	if err := env.ClientFor(t, config).Create(t.Context(), review); err != nil {
		t.Fatal(err)
	}
	return review.Status.UserInfo
}

// olderChart returns a chart in whose CRD the columns are missing, as if they were added later.
func olderChart(t *testing.T, name string) *chartv2.Chart {
	t.Helper()
	older := chartOf(t, name)
	for _, file := range older.Files {
		if !strings.HasPrefix(file.Name, "crds/") {
			continue
		}
		crd := &unstructured.Unstructured{}
		if err := yaml.Unmarshal(file.Data, crd); err != nil {
			t.Fatal(err)
		}
		versions, _, err := unstructured.NestedSlice(crd.Object, "spec", "versions")
		if err != nil {
			t.Fatal(err)
		}
		delete(versions[0].(map[string]any), "additionalPrinterColumns")
		if err := unstructured.SetNestedSlice(crd.Object, versions, "spec", "versions"); err != nil {
			t.Fatal(err)
		}
		if file.Data, err = yaml.Marshal(crd); err != nil {
			t.Fatal(err)
		}
	}
	return older
}

// expectColumns checks which of the two charts a CRD is from.
func expectColumns(t *testing.T, c client.Client, kinds string, want bool) {
	t.Helper()
	crd := &apiextensionsv1.CustomResourceDefinition{}
	framework.Get(t, c, client.ObjectKey{Name: kinds + ".operator.open-cluster-management.io"}, crd)
	if have := len(crd.Spec.Versions[0].AdditionalPrinterColumns); have > 1 != want {
		t.Errorf("CRD %s has %d columns", crd.Name, have)
	}
}
