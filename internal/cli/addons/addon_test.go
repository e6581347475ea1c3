package addons_test

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
	"github.com/capstan-io/capstan/internal/cli/clitest"
	"github.com/capstan-io/capstan/internal/cli/fakehub"
)

const templatesPath = clitest.AddOnAPI + "/addontemplates"

// CA-27
func TestGetAddOn(t *testing.T) {
	t.Parallel()
	h := clitest.NewHubWithClusters(t)
	if got := h.Run(t, "", "get", "addon"); got.Code != 0 || !strings.Contains(got.Out, "ManagedClusterAddOns: none") ||
		!strings.Contains(got.ErrOut, "capstan addon create") {
		t.Errorf("without any: %+v", got)
	}
	h.PutCatalogue(t, "idle", nil)
	h.PutCatalogue(t, "hello", nil)
	h.PutAddOn(t, "cluster1", "hello", metav1.Condition{Type: "Available", Status: "True"},
		metav1.Condition{Type: "ManifestApplied", Status: "False", Message: "it is refused"})
	h.PutAddOn(t, "cluster2", "hello")
	h.PutAddOn(t, "cluster2", "orphan")
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
		h.Put(t, strings.Replace(clitest.WorksPath, "cluster1", w.cluster, 1)+"/"+w.name, &workv1.ManifestWork{
			ObjectMeta: metav1.ObjectMeta{Namespace: w.cluster, Name: w.name, Labels: w.labels},
			Status: workv1.ManifestWorkStatus{ResourceStatus: workv1.ManifestResourceStatus{Manifests: []workv1.ManifestCondition{{
				ResourceMeta: workv1.ManifestResourceMeta{Kind: "Deployment", Namespace: "hello", Name: "agent"},
				Conditions:   []metav1.Condition{{Type: "Applied", Status: "True"}},
			}}}},
		})
	}
	h.Run(t, "", "get", "addon").Succeeds(t, `ManagedClusterAddOns: 3
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
	h.Run(t, "", "get", "addon", "-o", "table").Succeeds(t,
		"NAME     INSTALLEDCLUSTERS\nhello    2\nidle     0\norphan   1\n")
	h.Run(t, "", "get", "addon", "-o", "name", "-c", "cluster2").Succeeds(t,
		"managedclusteraddon.addon.open-cluster-management.io/hello\nmanagedclusteraddon.addon.open-cluster-management.io/orphan\n")
	var list addonv1alpha1.ManagedClusterAddOnList
	if err := json.Unmarshal([]byte(h.Run(t, "", "get", "addon", "orphan", "-o", "json").Out), &list); err != nil {
		t.Fatal(err)
	}
	if len(list.Items) != 1 || list.Items[0].Name != "orphan" || list.Items[0].Kind != "ManagedClusterAddOn" ||
		len(list.Items[0].ManagedFields) > 0 {
		t.Errorf("as JSON: %+v", list)
	}
	h.Run(t, "", "get", "addon", "gone").Fails(t, `add-on "gone" is not there`, "capstan get addon")
	h.Run(t, "", "get", "addon", "--clusters", "misspelt").Fails(t, `"misspelt" not found`)
}

// CA-27: who may read one cluster sees the add-ons there; what may not be read is left out, and said.
func TestGetAddOnWithRightsInOneCluster(t *testing.T) {
	t.Parallel()
	h := clitest.NewHubWithClusters(t)
	in := func(cluster string) string { return strings.Replace(clitest.WorksPath, "cluster1", cluster, 1) }
	refuse := fakehub.Refuse(http.StatusForbidden, metav1.StatusReasonForbidden, "you may not list these")
	h.Handle("GET /apis/work.open-cluster-management.io/v1/manifestworks", refuse)
	h.Handle("GET "+in("idle"), refuse)
	h.Handle("GET "+clitest.CataloguePath, refuse)
	h.PutAddOn(t, "cluster1", "hello")
	h.PutAddOn(t, "cluster1", "other")
	var hosted addonv1alpha1.ManagedClusterAddOn
	h.Get(t, clitest.AddOnsPath+"/other", &hosted)
	hosted.Annotations = map[string]string{"addon.open-cluster-management.io/hosting-cluster-name": "idle"}
	h.Put(t, clitest.AddOnsPath+"/other", &hosted)
	for _, addOn := range []string{"hello", "other"} {
		name := "addon-" + addOn + "-deploy-0"
		h.Put(t, clitest.WorksPath+"/"+name, &workv1.ManifestWork{ObjectMeta: metav1.ObjectMeta{Namespace: "cluster1", Name: name,
			Labels: map[string]string{"open-cluster-management.io/addon-name": addOn}}})
	}
	const catalogue, hosting = "Warning: add-ons that are on no cluster are not shown", "Warning: ManifestWorks in idle are not shown"
	got := h.Run(t, "", "get", "addon", "--clusters", "cluster1")
	got.Succeeds(t, "ManagedClusterAddOns: 2", "└── addon-hello-deploy-0", "└── addon-other-deploy-0")
	if !strings.Contains(got.ErrOut, catalogue) || !strings.Contains(got.ErrOut, hosting) {
		t.Errorf("it says %q", got.ErrOut)
	}
	got = h.Run(t, "", "get", "addon", "hello", "--clusters", "cluster1")
	got.Succeeds(t, "ManagedClusterAddOns: 1", "└── addon-hello-deploy-0")
	if strings.Contains(got.ErrOut, hosting) {
		t.Errorf("of an add-on that is not shown, it says %q", got.ErrOut)
	}
	h.Run(t, "", "get", "addon", "gone", "--clusters", "cluster1").Fails(t,
		`add-on "gone" is not on these clusters: "capstan get addon" lists`)
	got = h.Run(t, "", "get", "addon")
	got.Succeeds(t, "ManagedClusterAddOns: 2")
	if !strings.Contains(got.ErrOut, "Warning: ManifestWorks in the clusters are not shown") {
		t.Errorf("it says %q", got.ErrOut)
	}
}

// CA-36
func TestAddOnCreate(t *testing.T) {
	t.Parallel()
	h := clitest.NewHub(t)
	create := []string{"addon", "create", "hello", "-f", "-", "--hub-registration", "--cluster-role-bind", "hello", "--labels", "team=a"}
	h.Run(t, clitest.ConfigMap, append(create, "--dry-run")...).Succeeds(t, "kind: AddOnTemplate", "name: hello-0.0.1", "kind: ClusterManagementAddOn")
	h.Run(t, clitest.ConfigMap, append(create, "--placement-ref", "team-a/web")...).Fails(t, `"web" not found`)
	if made := h.Requests("POST"); len(made) > 0 {
		t.Fatalf("it wrote %+v", made)
	}
	first := h.Run(t, clitest.ConfigMap, create...)
	first.Succeeds(t, "AddonTemplate hello-0.0.1 is created\n", "ClusterManagementAddon hello is created\n")
	if !strings.Contains(first.ErrOut, "the hub has no ClusterRole hello") {
		t.Errorf("the missing role is not pointed out: %s", first.ErrOut)
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
	h.Get(t, clitest.CataloguePath+"/hello", &addOn)
	if addOn.Annotations["addon.open-cluster-management.io/lifecycle"] != "addon-manager" || addOn.Labels["team"] != "a" ||
		addOn.Spec.InstallStrategy.Type != "Manual" || addOn.Spec.SupportedConfigs[0].Resource != "addontemplates" ||
		addOn.Spec.SupportedConfigs[0].DefaultConfig.Name != "hello-0.0.1" ||
		len(addOn.Spec.SupportedConfigs) != 2 || addOn.Spec.SupportedConfigs[1].Resource != "addondeploymentconfigs" ||
		addOn.Spec.SupportedConfigs[1].DefaultConfig != nil {
		t.Errorf("add-on %+v", addOn)
	}
	again := h.Run(t, clitest.ConfigMap, create...)
	again.Succeeds(t, "AddonTemplate hello-0.0.1 is already created\n", "ClusterManagementAddon hello is already created\n")
	if again.ErrOut != "" {
		t.Errorf("with the role: %s", again.ErrOut)
	}

	changed := strings.Replace(clitest.ConfigMap, "value", "other", 1)
	h.Run(t, changed, create...).Fails(t, "AddonTemplate hello-0.0.1 already exists", "--version", "--overwrite")
	next := slices.Concat(create, []string{"--version", "0.0.2"})
	h.Run(t, changed, next...).Fails(t, "ClusterManagementAddon hello already exists", "--overwrite")
	if h.Has(templatesPath + "/hello-0.0.2") {
		t.Error("half of it was done")
	}
	h.PutPlacement(t, "team-a", "web")
	h.PutPlacement(t, "team-a", "db")
	addOn.Spec.InstallStrategy = addonv1beta1.InstallStrategy{Type: "Placements",
		Placements: []addonv1beta1.PlacementStrategy{{PlacementRef: addonv1beta1.PlacementRef{Namespace: "team-a", Name: "web"}}}}
	addOn.Spec.InstallStrategy.Placements[0].RolloutStrategy.Type = "Progressive"
	addOn.Spec.SupportedConfigs[1].DefaultConfig = &addonv1beta1.ConfigReferent{Namespace: "team-a", Name: "default"}
	addOn.Spec.SupportedConfigs = append(addOn.Spec.SupportedConfigs,
		addonv1alpha1.ConfigMeta{ConfigGroupResource: addonv1beta1.ConfigGroupResource{Resource: "others"}})
	h.Put(t, clitest.CataloguePath+"/hello", &addOn)
	h.Run(t, changed, append(next, "--overwrite", "--placement-ref", "team-a/db,team-a/web")...).Succeeds(t,
		"AddonTemplate hello-0.0.2 is created\n", "ClusterManagementAddon hello is updated\n")
	addOn = addonv1alpha1.ClusterManagementAddOn{}
	h.Get(t, clitest.CataloguePath+"/hello", &addOn)
	placements := addOn.Spec.InstallStrategy.Placements
	if addOn.Spec.SupportedConfigs[0].DefaultConfig.Name != "hello-0.0.2" || len(addOn.Spec.SupportedConfigs) != 3 ||
		addOn.Spec.SupportedConfigs[1].DefaultConfig == nil || len(placements) != 2 ||
		placements[0].Name != "db" || placements[1].RolloutStrategy.Type != "Progressive" {
		t.Errorf("after --overwrite: %+v", addOn.Spec)
	}
	h.Run(t, clitest.ConfigMap, append(next, "--overwrite")...).Succeeds(t, "AddonTemplate hello-0.0.2 is updated\n",
		"ClusterManagementAddon hello is already created\n")

	for flags, says := range map[string]string{
		"--cluster-role-bind r":      "add --hub-registration",
		"--version 1_0":              `--version: "1_0" cannot end the name of a template`,
		"--labels a=b_":              "--labels: a=b_",
		"--placement-ref web":        `--placement-ref: "web"`,
		"--filename gone.yaml":       "-f: stat gone.yaml",
		"--kustomize . -f gone.yaml": "[filename kustomize] were all set",
	} {
		h.Run(t, "", append([]string{"addon", "create", "new"}, strings.Fields(flags)...)...).Fails(t, says)
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
	h := clitest.NewHubWithClusters(t)
	h.Handle("GET "+clitest.AddOnAPI, fakehub.JSON(`{"resources":[{"name":"addondeploymentconfigs/status","kind":"AddOnDeploymentConfig"},{"name":"addondeploymentconfigs","kind":"AddOnDeploymentConfig","namespaced":true}]}`))
	h.Handle("GET /apis/none/v1", http.NotFound)
	h.PutCatalogue(t, "hello", func(a *addonv1alpha1.ClusterManagementAddOn) {
		a.Spec.SupportedConfigs = []addonv1alpha1.ConfigMeta{
			{ConfigGroupResource: addonv1beta1.ConfigGroupResource{Group: "addon.open-cluster-management.io", Resource: "addondeploymentconfigs"}}}
	})
	h.PutCatalogue(t, "plain", nil)
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
		h.Run(t, deploymentConfig, append([]string{"addon", "enable"}, args...)...).Fails(t, says)
	}
	misspelt := h.Run(t, "", "addon", "enable", "--names", "hello", "--clusters", "gone,lost")
	misspelt.Fails(t, `"gone" not found`, `"lost" not found`)
	if n := strings.Count(misspelt.ErrOut, "capstan get clusters"); n != 1 {
		t.Errorf("what to do is said %d times:\n%s", n, misspelt.ErrOut)
	}
	h.Run(t, strings.Replace(deploymentConfig, ", namespace: team-a", "", 1), configured...).Fails(t, "metadata.namespace is missing")
	h.Run(t, strings.Replace(deploymentConfig, "addon.open-cluster-management.io/v1alpha1", "none/v1", 1), configured...).Fails(t,
		"the hub does not serve none/v1")
	h.Run(t, strings.Replace(deploymentConfig, "AddOnDeploymentConfig", "Config", 1), configured...).Fails(t, "the hub serves no Config")
	h.Run(t, deploymentConfig, append(configured, "--dry-run")...).Succeeds(t, "kind: AddOnDeploymentConfig", "kind: ManagedClusterAddOn")
	if written := h.Requests("PATCH"); len(written) > 0 {
		t.Fatalf("it wrote %+v", written)
	}
	file := filepath.Join(t.TempDir(), "applied.yaml")
	h.Run(t, deploymentConfig, append(configured, "--output-file", file)...).Succeeds(t,
		"Deploying hello add-on to namespaces hello of managed cluster: cluster1.\nDeploying hello add-on to namespaces hello of managed cluster: cluster2.\n")
	var addOn addonv1alpha1.ManagedClusterAddOn
	h.Get(t, clitest.AddOnsPath+"/hello", &addOn)
	configs, err := json.Marshal(addOn.Spec.Configs)
	if err != nil {
		t.Fatal(err)
	}
	if addOn.Spec.InstallNamespace != "hello" || addOn.Annotations["a"] != "b" || addOn.Labels["c"] != "d" ||
		string(configs) != `[{"group":"addon.open-cluster-management.io","resource":"addondeploymentconfigs","namespace":"team-a","name":"hello"}]` {
		t.Errorf("add-on %+v, configs %s", addOn, configs)
	}
	if !h.Has(clitest.AddOnAPI + "/namespaces/team-a/addondeploymentconfigs/hello") {
		t.Error("the configuration is missing")
	}
	content, err := os.ReadFile(file)
	if err != nil || strings.Count(string(content), "kind: ManagedClusterAddOn") != 2 ||
		!strings.Contains(string(content), "kind: AddOnDeploymentConfig") {
		t.Errorf("written: %s, %v", content, err)
	}
	h.Run(t, "", enable...).Succeeds(t, "to namespaces open-cluster-management-agent-addon of managed cluster: cluster1.")

	// AM-33: the namespace of the flag is not where the agents run if the configuration says another one, or leaves it out.
	for spec, says := range map[string]string{
		"agentInstallNamespace: hello":   "",
		`agentInstallNamespace: ""`:      "",
		"agentInstallNamespace: another": "has the agents run in namespace another, and not in hello: write agentInstallNamespace: hello",
		"":                               "AddOnDeploymentConfig team-a/hello of --config-file has the agents run in namespace open-cluster-management-agent-addon, which is the default of its spec.agentInstallNamespace, and not in hello",
	} {
		text := strings.Replace(deploymentConfig, "agentInstallNamespace: hello", spec, 1)
		got := h.Run(t, text, append(configured, "--dry-run")...)
		got.Succeeds(t)
		if strings.Contains(got.ErrOut, "AddOnDeploymentConfig") != (says != "") || !strings.Contains(got.ErrOut, says) {
			t.Errorf("{%s}: %s", spec, got.ErrOut)
		}
		if got := h.Run(t, text, append(enable, "--config-file", "-", "--dry-run")...); strings.Contains(got.ErrOut, "AddOnDeploymentConfig") {
			t.Errorf("{%s}, and no namespace was asked for: %s", spec, got.ErrOut)
		}
	}
}

// CA-38
func TestAddOnDisable(t *testing.T) {
	t.Parallel()
	h := clitest.NewHubWithClusters(t)
	h.PutCatalogue(t, "hello", func(a *addonv1alpha1.ClusterManagementAddOn) {
		a.Spec.InstallStrategy = addonv1beta1.InstallStrategy{Type: "Placements",
			Placements: []addonv1beta1.PlacementStrategy{{PlacementRef: addonv1beta1.PlacementRef{Namespace: "team-a", Name: "everywhere"}}}}
	})
	h.PutCatalogue(t, "idle", func(a *addonv1alpha1.ClusterManagementAddOn) { a.Spec.InstallStrategy.Type = "Placements" })
	h.PutAddOn(t, "cluster1", "hello")
	h.PutAddOn(t, "cluster1", "orphan")
	h.Run(t, "", "addon", "disable", "--names", "hello", "--clusters", "cluster1", "--dry-run").Succeeds(t,
		"would undeploy hello add-on in managed cluster: cluster1.")
	got := h.Run(t, "", "addon", "disable", "--names", "hello,orphan", "--clusters", "cluster1,cluster2")
	got.Succeeds(t, "Undeploying hello add-on in managed cluster: cluster1.\nhello add-on not found in managed cluster: cluster2.\nUndeploying orphan add-on in managed cluster: cluster1.\n")
	if !strings.Contains(got.ErrOut, "placements deploy add-on hello") {
		t.Errorf("nothing says that it comes back: %s", got.ErrOut)
	}
	if got := h.Run(t, "", "addon", "disable", "--names", "idle", "--clusters", "cluster1"); strings.Contains(got.ErrOut, "placements deploy") {
		t.Errorf("without a placement, it says that it comes back: %s", got.ErrOut)
	}
	h.PutPlacement(t, "team-a", "everywhere", "cluster1")
	h.Follow(t, got, "get placements").Succeeds(t, "everywhere", "cluster1")
	h.Run(t, "", "addon", "disable", "--names", "hullo", "--clusters", "cluster1").Fails(t, `"hullo" not found`, "capstan get addon")
	h.Run(t, "", "addon", "disable", "--names", "hello", "--clusters", "gone").Fails(t, `"gone" not found`)
}

// CA-38: who may delete add-ons of a cluster needs no right to read what the hub offers.
func TestAddOnDisableWithoutCatalogue(t *testing.T) {
	t.Parallel()
	h := clitest.NewHubWithClusters(t)
	h.PutCatalogue(t, "hello", func(*addonv1alpha1.ClusterManagementAddOn) {})
	h.PutAddOn(t, "cluster1", "hello")
	h.Handle("GET "+clitest.CataloguePath+"/hello",
		fakehub.Refuse(http.StatusForbidden, metav1.StatusReasonForbidden, `User "jane" cannot get resource "clustermanagementaddons"`))
	h.Run(t, "", "addon", "disable", "--names", "hello", "--clusters", "cluster2").Fails(t, `User "jane" cannot get`)
	got := h.Run(t, "", "addon", "disable", "--names", "hello", "--clusters", "cluster1")
	got.Succeeds(t, "Undeploying hello add-on in managed cluster: cluster1.\n")
	if got.ErrOut != "" {
		t.Errorf("it says %q", got.ErrOut)
	}
}
