package cli_test

import (
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	addonv1alpha1 "github.com/capstan-io/capstan/api/addon/v1alpha1"
	addonv1beta1 "github.com/capstan-io/capstan/api/addon/v1beta1"
	workv1 "github.com/capstan-io/capstan/api/work/v1"
	"github.com/capstan-io/capstan/internal/cli/fakehub"
)

const (
	addOnAPI      = "/apis/addon.open-cluster-management.io/v1alpha1"
	cataloguePath = addOnAPI + "/clustermanagementaddons"
	templatesPath = addOnAPI + "/addontemplates"
	addOnsPath    = addOnAPI + "/namespaces/cluster1/managedclusteraddons"
)

func (h hub) putAddOn(t *testing.T, cluster, name string, conditions ...metav1.Condition) {
	t.Helper()
	h.Put(t, strings.Replace(addOnsPath, "cluster1", cluster, 1)+"/"+name, &addonv1alpha1.ManagedClusterAddOn{
		ObjectMeta: metav1.ObjectMeta{Namespace: cluster, Name: name, ManagedFields: []metav1.ManagedFieldsEntry{{Manager: "another"}}},
		Status:     addonv1alpha1.ManagedClusterAddOnStatus{Conditions: conditions},
	})
}

func (h hub) putCatalogue(t *testing.T, name string, change func(*addonv1alpha1.ClusterManagementAddOn)) {
	t.Helper()
	addOn := &addonv1alpha1.ClusterManagementAddOn{ObjectMeta: metav1.ObjectMeta{Name: name}}
	if change != nil {
		change(addOn)
	}
	h.Put(t, cataloguePath+"/"+name, addOn)
}

// CA-27
func TestGetAddOn(t *testing.T) {
	t.Parallel()
	h := newHubWithClusters(t)
	if got := h.run(t, "", "get", "addon"); got.code != 0 || !strings.Contains(got.out, "ManagedClusterAddOns: none") ||
		!strings.Contains(got.errOut, "capstan addon create") {
		t.Errorf("without any: %+v", got)
	}
	h.putCatalogue(t, "idle", nil)
	h.putCatalogue(t, "hello", nil)
	h.putAddOn(t, "cluster1", "hello", metav1.Condition{Type: "Available", Status: "True"},
		metav1.Condition{Type: "ManifestApplied", Status: "False", Message: "it is refused"})
	h.putAddOn(t, "cluster2", "hello")
	h.putAddOn(t, "cluster2", "orphan")
	for _, w := range []struct {
		cluster, name string
		labels        map[string]string
	}{
		{"cluster1", "addon-hello-deploy-0", map[string]string{"open-cluster-management.io/addon-name": "hello"}},
		{"idle", "addon-hello-deploy-hosting-cluster2-0", map[string]string{"open-cluster-management.io/addon-name": "hello",
			"open-cluster-management.io/addon-namespace": "cluster2"}},
		// Those that a user labels like them are none.
		{"cluster1", "addon-hello-deploy-1", map[string]string{"open-cluster-management.io/addon-name": "hello",
			"work.open-cluster-management.io/manifestworkreplicaset": "tenant.addon-hello"}},
		{"cluster2", "addon-hello-deploy-0", map[string]string{"open-cluster-management.io/addon-name": "hello",
			"open-cluster-management.io/addon-namespace": "cluster1"}},
	} {
		h.Put(t, strings.Replace(worksPath, "cluster1", w.cluster, 1)+"/"+w.name, &workv1.ManifestWork{
			ObjectMeta: metav1.ObjectMeta{Namespace: w.cluster, Name: w.name, Labels: w.labels},
			Status: workv1.ManifestWorkStatus{ResourceStatus: workv1.ManifestResourceStatus{Manifests: []workv1.ManifestCondition{{
				ResourceMeta: workv1.ManifestResourceMeta{Kind: "Deployment", Namespace: "hello", Name: "agent"},
				Conditions:   []metav1.Condition{{Type: "Applied", Status: "True"}},
			}}}},
		})
	}
	h.run(t, "", "get", "addon").succeeds(t, `ManagedClusterAddOns: 3
├── hello
│   ├── cluster1
│   │   ├── Available: True
│   │   ├── ManifestApplied: False (it is refused)
│   │   ├── RegistrationApplied: Unknown
│   │   └── ManifestWorks
│   │       └── addon-hello-deploy-0
│   │           └── Deployment hello/agent: applied
│   └── cluster2
│       ├── Available: Unknown
│       ├── ManifestApplied: Unknown
│       ├── RegistrationApplied: Unknown
│       └── ManifestWorks
│           └── addon-hello-deploy-hosting-cluster2-0 (on idle)
│               └── Deployment hello/agent: applied
├── idle: on no cluster
└── orphan
`)
	h.run(t, "", "get", "addon", "-o", "table").succeeds(t,
		"NAME     INSTALLEDCLUSTERS\nhello    cluster1,cluster2\nidle     -\norphan   cluster2\n")
	h.run(t, "", "get", "addon", "-o", "name", "-c", "cluster2").succeeds(t,
		"managedclusteraddon.addon.open-cluster-management.io/hello\nmanagedclusteraddon.addon.open-cluster-management.io/orphan\n")
	var list addonv1alpha1.ManagedClusterAddOnList
	if err := json.Unmarshal([]byte(h.run(t, "", "get", "addon", "orphan", "-o", "json").out), &list); err != nil {
		t.Fatal(err)
	}
	if len(list.Items) != 1 || list.Items[0].Name != "orphan" || list.Items[0].Kind != "ManagedClusterAddOn" ||
		len(list.Items[0].ManagedFields) > 0 {
		t.Errorf("as JSON: %+v", list)
	}
	h.run(t, "", "get", "addon", "gone").fails(t, `add-on "gone" is not there`, "capstan get addon")
	h.run(t, "", "get", "addon", "--clusters", "misspelt").fails(t, `"misspelt" not found`)
}

// CA-36
func TestAddOnCreate(t *testing.T) {
	t.Parallel()
	h := newHub(t)
	create := []string{"addon", "create", "hello", "-f", "-", "--hub-registration", "--cluster-role-bind", "hello", "--labels", "team=a"}
	h.run(t, configMap, append(create, "--dry-run")...).succeeds(t, "kind: AddOnTemplate", "name: hello-0.0.1", "kind: ClusterManagementAddOn")
	h.run(t, configMap, append(create, "--placement-ref", "team-a/web")...).fails(t, `"web" not found`)
	if made := h.Requests("POST"); len(made) > 0 {
		t.Fatalf("it wrote %+v", made)
	}
	first := h.run(t, configMap, create...)
	first.succeeds(t, "AddonTemplate hello-0.0.1 is created\n", "ClusterManagementAddon hello is created\n")
	if !strings.Contains(first.errOut, "the hub has no ClusterRole hello") {
		t.Errorf("the missing role is not pointed out: %s", first.errOut)
	}
	h.Put(t, "/apis/rbac.authorization.k8s.io/v1/clusterroles/hello", &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "hello"}})
	var template addonv1alpha1.AddOnTemplate
	h.Get(t, templatesPath+"/hello-0.0.1", &template)
	registration, err := json.Marshal(template.Spec.Registration)
	if err != nil {
		t.Fatal(err)
	}
	const want = `[{"type":"KubeClient","kubeClient":{"hubPermissions":[{"type":"CurrentCluster","currentCluster":{"clusterRoleName":"hello"}}]}}]`
	if template.Spec.AddonName != "hello" || string(registration) != want ||
		!strings.Contains(string(template.Spec.AgentSpec.Workload.Manifests[0].Raw), "settings") {
		t.Errorf("template %+v, registration %s", template.Spec, registration)
	}
	var addOn addonv1alpha1.ClusterManagementAddOn
	h.Get(t, cataloguePath+"/hello", &addOn)
	if addOn.Annotations["addon.open-cluster-management.io/lifecycle"] != "addon-manager" || addOn.Labels["team"] != "a" ||
		addOn.Spec.InstallStrategy.Type != "Manual" || addOn.Spec.SupportedConfigs[0].Resource != "addontemplates" ||
		addOn.Spec.SupportedConfigs[0].DefaultConfig.Name != "hello-0.0.1" ||
		len(addOn.Spec.SupportedConfigs) != 2 || addOn.Spec.SupportedConfigs[1].Resource != "addondeploymentconfigs" ||
		addOn.Spec.SupportedConfigs[1].DefaultConfig != nil {
		t.Errorf("add-on %+v", addOn)
	}
	again := h.run(t, configMap, create...)
	again.succeeds(t, "AddonTemplate hello-0.0.1 is already created\n", "ClusterManagementAddon hello is already created\n")
	if again.errOut != "" {
		t.Errorf("with the role: %s", again.errOut)
	}

	changed := strings.Replace(configMap, "value", "other", 1)
	h.run(t, changed, create...).fails(t, "AddonTemplate hello-0.0.1 already exists", "--version", "--overwrite")
	next := slices.Concat(create, []string{"--version", "0.0.2"})
	h.run(t, changed, next...).fails(t, "ClusterManagementAddon hello already exists", "--overwrite")
	if h.Has(templatesPath + "/hello-0.0.2") {
		t.Error("half of it was done")
	}
	h.putPlacement(t, "team-a", "web")
	h.putPlacement(t, "team-a", "db")
	addOn.Spec.InstallStrategy = addonv1beta1.InstallStrategy{Type: "Placements",
		Placements: []addonv1beta1.PlacementStrategy{{PlacementRef: addonv1beta1.PlacementRef{Namespace: "team-a", Name: "web"}}}}
	addOn.Spec.InstallStrategy.Placements[0].RolloutStrategy.Type = "Progressive"
	addOn.Spec.SupportedConfigs[1].DefaultConfig = &addonv1beta1.ConfigReferent{Namespace: "team-a", Name: "default"}
	addOn.Spec.SupportedConfigs = append(addOn.Spec.SupportedConfigs,
		addonv1alpha1.ConfigMeta{ConfigGroupResource: addonv1beta1.ConfigGroupResource{Resource: "others"}})
	h.Put(t, cataloguePath+"/hello", &addOn)
	h.run(t, changed, append(next, "--overwrite", "--placement-ref", "team-a/db,team-a/web")...).succeeds(t,
		"AddonTemplate hello-0.0.2 is created\n", "ClusterManagementAddon hello is updated\n")
	addOn = addonv1alpha1.ClusterManagementAddOn{}
	h.Get(t, cataloguePath+"/hello", &addOn)
	placements := addOn.Spec.InstallStrategy.Placements
	if addOn.Spec.SupportedConfigs[0].DefaultConfig.Name != "hello-0.0.2" || len(addOn.Spec.SupportedConfigs) != 3 ||
		addOn.Spec.SupportedConfigs[1].DefaultConfig == nil || len(placements) != 2 ||
		placements[0].Name != "db" || placements[1].RolloutStrategy.Type != "Progressive" {
		t.Errorf("after --overwrite: %+v", addOn.Spec)
	}
	h.run(t, configMap, append(next, "--overwrite")...).succeeds(t, "AddonTemplate hello-0.0.2 is updated\n",
		"ClusterManagementAddon hello is already created\n")

	for flags, says := range map[string]string{
		"--cluster-role-bind r":      "add --hub-registration",
		"--version 1_0":              `--version: "1_0" cannot end the name of a template`,
		"--labels a=b_":              "--labels: a=b_",
		"--placement-ref web":        `--placement-ref: "web"`,
		"--filename gone.yaml":       "-f: stat gone.yaml",
		"--kustomize . -f gone.yaml": "[filename kustomize] were all set",
	} {
		h.run(t, "", append([]string{"addon", "create", "new"}, strings.Fields(flags)...)...).fails(t, says)
	}
}

const deploymentConfig = `
apiVersion: addon.open-cluster-management.io/v1alpha1
kind: AddOnDeploymentConfig
metadata: {name: hello, namespace: team-a}
spec: {agentInstallNamespace: hello}
`

// CA-37 CA-06
func TestAddOnEnable(t *testing.T) {
	t.Parallel()
	h := newHubWithClusters(t)
	h.Answer("GET "+addOnAPI, fakehub.JSON(`{"resources":[{"name":"addondeploymentconfigs/status","kind":"AddOnDeploymentConfig"},{"name":"addondeploymentconfigs","kind":"AddOnDeploymentConfig","namespaced":true}]}`))
	h.Answer("GET /apis/none/v1", http.NotFound)
	h.putCatalogue(t, "hello", func(a *addonv1alpha1.ClusterManagementAddOn) {
		a.Spec.SupportedConfigs = []addonv1alpha1.ConfigMeta{
			{ConfigGroupResource: addonv1beta1.ConfigGroupResource{Group: "addon.open-cluster-management.io", Resource: "addondeploymentconfigs"}}}
	})
	h.putCatalogue(t, "plain", nil)
	enable := []string{"addon", "enable", "--names", "hello", "--clusters", "cluster1,cluster2"}
	configured := slices.Concat(enable, []string{"-n", "hello", "--annotate", "a=b", "--labels", "c=d", "--config-file", "-"})
	for says, args := range map[string][]string{
		"--names is missing":                         {"--clusters", "cluster1"},
		"either --cluster or --clusters needs":       {"--names", "hello"},
		`"gone" not found`:                           {"--names", "hello", "--clusters", "cluster1,gone"},
		`"hullo" not found`:                          {"--names", "hullo", "--clusters", "cluster1"},
		"plain takes no addondeploymentconfigs":      {"--names", "plain", "--clusters", "cluster1", "--config-file", "-"},
		`--namespace: "H"`:                           {"--names", "hello", "--clusters", "cluster1", "-n", "H"},
		"--labels: c=d_":                             {"--names", "hello", "--clusters", "cluster1", "--labels", "c=d_"},
		"--annotate: _":                              {"--names", "hello", "--clusters", "cluster1", "--annotate", "_=d"},
		"--output-file: /none/x: there is no folder": {"--names", "hello", "--clusters", "cluster1", "--output-file", "/none/x"},
		"--config-file: stat gone.yaml":              {"--names", "hello", "--clusters", "cluster1", "--config-file", "gone.yaml"},
	} {
		h.run(t, deploymentConfig, append([]string{"addon", "enable"}, args...)...).fails(t, says)
	}
	misspelt := h.run(t, "", "addon", "enable", "--names", "hello", "--clusters", "gone,lost")
	misspelt.fails(t, `"gone" not found`, `"lost" not found`)
	if n := strings.Count(misspelt.errOut, "capstan get clusters"); n != 1 {
		t.Errorf("what to do is said %d times:\n%s", n, misspelt.errOut)
	}
	h.run(t, strings.Replace(deploymentConfig, ", namespace: team-a", "", 1), configured...).fails(t, "metadata.namespace is missing")
	h.run(t, strings.Replace(deploymentConfig, "addon.open-cluster-management.io/v1alpha1", "none/v1", 1), configured...).fails(t,
		"the hub does not serve none/v1")
	h.run(t, strings.Replace(deploymentConfig, "AddOnDeploymentConfig", "Config", 1), configured...).fails(t, "the hub serves no Config")
	h.run(t, deploymentConfig, append(configured, "--dry-run")...).succeeds(t, "kind: AddOnDeploymentConfig", "kind: ManagedClusterAddOn")
	if written := h.Requests("PATCH"); len(written) > 0 {
		t.Fatalf("it wrote %+v", written)
	}
	file := filepath.Join(t.TempDir(), "applied.yaml")
	h.run(t, deploymentConfig, append(configured, "--output-file", file)...).succeeds(t,
		"Deploying hello add-on to namespaces hello of managed cluster: cluster1.\nDeploying hello add-on to namespaces hello of managed cluster: cluster2.\n")
	var addOn addonv1alpha1.ManagedClusterAddOn
	h.Get(t, addOnsPath+"/hello", &addOn)
	configs, err := json.Marshal(addOn.Spec.Configs)
	if err != nil {
		t.Fatal(err)
	}
	if addOn.Spec.InstallNamespace != "hello" || addOn.Annotations["a"] != "b" || addOn.Labels["c"] != "d" ||
		string(configs) != `[{"group":"addon.open-cluster-management.io","resource":"addondeploymentconfigs","namespace":"team-a","name":"hello"}]` {
		t.Errorf("add-on %+v, configs %s", addOn, configs)
	}
	if !h.Has(addOnAPI + "/namespaces/team-a/addondeploymentconfigs/hello") {
		t.Error("the configuration is missing")
	}
	content, err := os.ReadFile(file)
	if err != nil || strings.Count(string(content), "kind: ManagedClusterAddOn") != 2 ||
		!strings.Contains(string(content), "kind: AddOnDeploymentConfig") {
		t.Errorf("written: %s, %v", content, err)
	}
	h.run(t, "", enable...).succeeds(t, "to namespaces open-cluster-management-agent-addon of managed cluster: cluster1.")

	// AM-33: the namespace that was asked for is not where the agents run if the configuration says another one, or leaves it out.
	for spec, says := range map[string]string{
		"agentInstallNamespace: hello":   "",
		`agentInstallNamespace: ""`:      "",
		"agentInstallNamespace: another": "has the agents run in namespace another, and not in hello: write agentInstallNamespace: hello",
		"":                               "AddOnDeploymentConfig team-a/hello of --config-file has the agents run in namespace open-cluster-management-agent-addon, which is the default of its spec.agentInstallNamespace, and not in hello",
	} {
		text := strings.Replace(deploymentConfig, "agentInstallNamespace: hello", spec, 1)
		got := h.run(t, text, append(configured, "--dry-run")...)
		got.succeeds(t)
		if strings.Contains(got.errOut, "AddOnDeploymentConfig") != (says != "") || !strings.Contains(got.errOut, says) {
			t.Errorf("{%s}: %s", spec, got.errOut)
		}
		if got := h.run(t, text, append(enable, "--config-file", "-", "--dry-run")...); strings.Contains(got.errOut, "AddOnDeploymentConfig") {
			t.Errorf("{%s}, and no namespace was asked for: %s", spec, got.errOut)
		}
	}
}

// CA-38
func TestAddOnDisable(t *testing.T) {
	t.Parallel()
	h := newHubWithClusters(t)
	h.putCatalogue(t, "hello", func(a *addonv1alpha1.ClusterManagementAddOn) { a.Spec.InstallStrategy.Type = "Placements" })
	h.putAddOn(t, "cluster1", "hello")
	h.putAddOn(t, "cluster1", "orphan")
	h.run(t, "", "addon", "disable", "--names", "hello", "--clusters", "cluster1", "--dry-run").succeeds(t,
		"would undeploy hello add-on in managed cluster: cluster1.")
	got := h.run(t, "", "addon", "disable", "--names", "hello,orphan", "--clusters", "cluster1,cluster2")
	got.succeeds(t, "Undeploying hello add-on in managed cluster: cluster1.\nhello add-on not found in managed cluster: cluster2.\nUndeploying orphan add-on in managed cluster: cluster1.\n")
	if !strings.Contains(got.errOut, "placements deploy add-on hello") {
		t.Errorf("nothing says that it comes back: %s", got.errOut)
	}
	h.run(t, "", "addon", "disable", "--names", "hullo", "--clusters", "cluster1").fails(t, `"hullo" not found`, "capstan get addon")
	h.run(t, "", "addon", "disable", "--names", "hello", "--clusters", "gone").fails(t, `"gone" not found`)
}

// fakeCharts is a program of the name capstan-charts that notes what it was asked, first in PATH.
func fakeCharts(t *testing.T, script string) (log string) {
	t.Helper()
	dir := t.TempDir()
	log = filepath.Join(dir, "log")
	content := "#!/bin/sh\necho \"$KUBECONFIG: $*\" >> " + log + "\n" + script
	if err := os.WriteFile(filepath.Join(dir, "capstan-charts"), []byte(content), 0o700); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir+string(os.PathListSeparator)+os.Getenv("PATH"))
	return log
}

// CA-39 CA-40 AR-08 O17
func TestHubAddOn(t *testing.T) { //nolint:paralleltest // it changes PATH
	h := newHubWithClusters(t)
	install := []string{"install", "hub-addon", "--names", "governance-policy-framework,argocd"}
	for says, args := range map[string][]string{
		"--names is missing: which of argocd, argocd-agent": {"install", "hub-addon"},
		`"argo" is none of argocd`:                          {"install", "hub-addon", "--names", "argo"},
		`"9.9" is none of default, latest, 1.1.0`:           append(install, "--bundle-version", "9.9"),
		"--bundle-version-overrides: open gone":             append(install, "--bundle-version-overrides", "gone"),
		`--namespace: "N"`:                                  append(install, "-n", "N"),
		"no namespace open-cluster-management for governance-policy-framework: --create-namespace": install,
	} {
		h.run(t, "", args...).fails(t, says)
	}
	h.putNamespace(t, "open-cluster-management")
	h.putNamespace(t, "argocd")
	h.Answer("GET /apis/apps/v1", http.NotFound)
	h.run(t, "", install...).fails(t, "runs no pods")
	h.Answer("GET /apis/apps/v1", fakehub.JSON(`{"resources":[{"name":"deployments","kind":"Deployment","namespaced":true}]}`))
	t.Setenv("PATH", t.TempDir())
	h.run(t, "", install...).fails(t, "capstan-charts is neither in ", "nor in PATH")

	t.Setenv("PATH", "/usr/bin:/bin")
	log := fakeCharts(t, `[ "$1" != template ] || echo "kind: FromChart-$2"`)
	h.run(t, "", append(install, "--dry-run")...).succeeds(t,
		"kind: FromChart-governance-policy-framework\nkind: FromChart-argocd-pull-integration\n")
	overrides := filepath.Join(t.TempDir(), "overrides.json")
	if err := os.WriteFile(overrides, []byte(`{"policy_addon":"v0.17.3"}`), 0o600); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "applied.yaml")
	h.run(t, "", append(install, "--bundle-version", "v1.2.0", "--bundle-version-overrides", overrides, "--repository",
		"https://mirror.example.com", "--repository-ca-file", "ca.crt", "--create-namespace", "--output-file", file)...).succeeds(t,
		"Installing built-in governance-policy-framework add-on to the Hub cluster...\nInstalling built-in argocd add-on to the Hub cluster...\n")
	if content, err := os.ReadFile(file); err != nil || strings.Count(string(content), "FromChart") != 2 {
		t.Errorf("written: %s, %v", content, err)
	}
	h.putAddOn(t, "cluster1", "argocd")
	h.run(t, "", "uninstall", "hub-addon", "--names", "argocd-agent,argocd").fails(t, "argocd is on cluster cluster1",
		"capstan addon disable --names argocd --clusters cluster1")
	h.Remove(t, addOnsPath+"/argocd")
	h.run(t, "", "uninstall", "hub-addon", "--names", "argocd", "--dry-run").succeeds(t, "would uninstall argocd from namespace argocd")
	h.run(t, "", "uninstall", "hub-addon", "--names", "argocd").succeeds(t, "Uninstalling built-in argocd add-on from the Hub cluster...")
	content, err := os.ReadFile(log)
	if err != nil {
		t.Fatal(err)
	}
	const repo, mirror = " --repository https://open-cluster-management.io/helm-charts --namespace ",
		" --repository https://mirror.example.com --namespace "
	lines := strings.Split(strings.TrimSpace(strings.ReplaceAll(string(content), h.kubeconfig+": ", "")), "\n")
	want := []string{
		"template governance-policy-framework governance-policy-framework" + repo +
			"open-cluster-management --version v0.18.0 --kube-context hub",
		"template argocd-pull-integration argocd-pull-integration" + repo + "argocd --kube-context hub",
		"template governance-policy-framework governance-policy-framework" + mirror +
			"open-cluster-management --repository-ca-file ca.crt --version v0.17.3 --kube-context hub",
		"template argocd-pull-integration argocd-pull-integration" + mirror + "argocd --repository-ca-file ca.crt --kube-context hub",
		"install governance-policy-framework governance-policy-framework" + mirror +
			"open-cluster-management --repository-ca-file ca.crt --version v0.17.3 --create-namespace --kube-context hub",
		"install argocd-pull-integration argocd-pull-integration" + mirror +
			"argocd --repository-ca-file ca.crt --create-namespace --kube-context hub",
		"uninstall argocd-pull-integration --namespace argocd --kube-context hub",
	}
	if strings.Join(lines, "\n") != strings.Join(want, "\n") {
		t.Errorf("the program was asked\n%s\nwant\n%s", strings.Join(lines, "\n"), strings.Join(want, "\n"))
	}
	fakeCharts(t, "echo 'chart not found' >&2; exit 1\n")
	h.run(t, "", install...).fails(t, "add-on governance-policy-framework: chart not found")
}
