package charts

import (
	"bytes"
	"flag"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"helm.sh/helm/v4/pkg/action"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/component-helpers/auth/rbac/validation"
	"sigs.k8s.io/yaml"

	clusterv1beta2 "github.com/capstan-io/capstan/api/cluster/v1beta2"
	"github.com/capstan-io/capstan/internal/hub/addon/builtin"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
)

var update = flag.Bool("update", false, "write the golden files")

// The charts are embedded whole: Go leaves files out whose names begin with an underscore, unless it is told not to.
func TestFiles(t *testing.T) {
	t.Parallel()
	for _, chart := range all {
		err := fs.WalkDir(os.DirFS("."), chart, func(file string, entry fs.DirEntry, err error) error {
			if err != nil || entry.IsDir() {
				return err
			}
			want, err := os.ReadFile(file)
			if err != nil {
				return err
			}
			if have, err := Files.ReadFile(file); err != nil || !bytes.Equal(have, want) {
				t.Errorf("%s is not embedded as it is: %v", file, err)
			}
			return nil
		})
		if err != nil {
			t.Error(err)
		}
	}
}

// HC-01 HC-05 HC-08 HC-09 HC-10 HC-11 SC-24: Helm has nothing to say against the charts.
func TestLint(t *testing.T) {
	t.Parallel()
	for _, chart := range all {
		lint := action.NewLint()
		lint.Strict, lint.Namespace = true, namespaces[chart]
		for _, err := range lint.Run([]string{chart}, nil).Errors {
			t.Errorf("%s: %v", chart, err)
		}
	}
}

// CP-03 HC-02 HC-06 HC-08 HC-09 HC-11 MS-08 SC-25: what a chart installs by default. `go test ./deploy/charts -update` writes the golden
// files.
func TestDefaults(t *testing.T) {
	t.Parallel()
	for _, chart := range all {
		files, err := install(chart, "").files(t)
		if err != nil {
			t.Fatal(err)
		}
		var rendered bytes.Buffer
		for _, file := range slices.Sorted(func(yield func(string) bool) {
			for file, content := range files {
				if strings.TrimSpace(content) != "" && !yield(file) {
					return
				}
			}
		}) {
			rendered.WriteString("# " + file + "\n" + strings.TrimSpace(files[file]) + "\n")
		}
		golden := filepath.Join("testdata", chart+".golden")
		if *update {
			if err := os.WriteFile(golden, rendered.Bytes(), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(golden)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(rendered.Bytes(), want) {
			t.Errorf("%s is not what chart %s installs; with -update, it is written:\n%s", golden, chart, rendered.Bytes())
		}
	}
}

// HC-01 HC-05 HC-08 HC-09 HC-10 HC-11 CG-08 MS-08 SC-24: what is misspelled, is not there, or has the wrong type, is refused, with the
// name of the value.
func TestSchema(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ chart, values, want string }{
		{"cluster-manager", "clusterManger: {}", "additional properties 'clusterManger' not allowed"},
		{"cluster-manager", "replicaCount: many", "at '/replicaCount': got string, want integer"},
		{"cluster-manager", "images: {registy: r}", "additional properties 'registy' not allowed"},
		{"cluster-manager", "images: {tag: 1.3}", "at '/images/tag': got number, want string"},
		{"cluster-manager", "bootstrapTokenSecret: ocmhub.a", "at '/bootstrapTokenSecret': 'ocmhub.a' does not match pattern"},
		{"cluster-manager", "clusterManager: {mode: hosted}", "at '/clusterManager/mode': value must be one of 'Default', 'Hosted'"},
		{"cluster-manager", "clusterManager: {registrationConfiguration: {featureGate: []}}", "additional properties 'featureGate' not allowed"},
		{"cluster-manager", "clusterManager: {registrationConfiguration: {featureGates: [{feature: A, mode: On}]}}",
			"at '/clusterManager/registrationConfiguration/featureGates/0/mode'"},
		{"capstan-hub", "apiserver: {externalhostname: h}", "additional properties 'externalhostname' not allowed"},
		{"capstan-hub", "etcd: {mode: embedded}", "at '/etcd/mode': value must be one of 'embed', 'external'"},
		{"capstan-hub", "replicas: 2", "replicas: 2 replicas need an etcd that they share: set etcd.mode external"},
		{"capstan-hub", "apiserver: {ca: x}", "apiserver.cakey is required"},
		{"capstan-hub", "apiserver: {cakey: x}", "apiserver.ca is required"},
		{"capstan-hub", "etcd: {mode: external}", "etcd.servers is required"},
		{"capstan-hub", "etcd: {mode: external, servers: ['https://a'], ca: x, cert: x}", "etcd.certkey is required"},
		{"capstan-hub", "route: {enabled: true}\nnodeport: {enabled: true}", "route, nodeport: enable at most one of them"},
		{"capstan-hub", "nodeport: {enabled: true}", "apiserver.externalHostname is required with nodeport.enabled"},
		{"capstan-hub", "storage: {type: memory}", "at '/storage/type': value must be one of 'persistentVolumeClaim', 'emptyDir', 'hostPath'"},
		{"capstan-hub", "storage: {type: hostPath}", "storage.hostPath is required with storage.type hostPath"},
		{"capstan-hub", "storage: {type: hostPath, hostPath: hub}", "at '/storage/hostPath'"},
		{"capstan-hub", "storage: {hostPath: /hub}", "storage.hostPath has no effect with storage.type persistentVolumeClaim"},
		{"capstan-hub", "{enableSelfManagement: true, selfManagementClusterName: Home.Lab}", "at '/selfManagementClusterName'"},
		{"capstan-hub", "{enableSelfManagement: true, selfManagementClusterName: kube-system}",
			"selfManagementClusterName: kube-system is a name that the hub has for itself"},
		{"cluster-gateway-addon-manager", "clusterGateway: {imgae: x}", "additional properties 'imgae' not allowed"},
		{"cluster-gateway-addon-manager", "{manualSecretManagement: false, installByPlacement: {placementName: a}}",
			"installByPlacement: a Placement has a name and a namespace"},
		{"cluster-gateway-addon-manager", "installByPlacement: {placementName: a, placementNamespace: b}",
			"installByPlacement: with manualSecretManagement: true the add-on is not installed"},
		{"cluster-proxy", "userserver: {enabled: true}", "additional properties 'userserver' not allowed"},
		{"cluster-proxy", "replicas: -1", "at '/replicas': minimum: got -1, want 0"},
		{"cluster-proxy", "exposedServices: [{namespace: a}]", "missing property 'service'"},
		{"cluster-proxy", "exposedServices: [{namespace: a, service: b}]", "exposedServices: no service is reached with enableServiceProxy: false"},
		{"cluster-proxy", "{enableKubeApiProxy: false, featureGates: {clusterProfile: true}}",
			"enableKubeApiProxy: false: with featureGates.clusterProfile, clients reach"},
		{"cluster-proxy", "{enableKubeApiProxy: false, featureGates: {gitOpsCluster: true}}",
			"enableKubeApiProxy: false: with featureGates.gitOpsCluster, clients reach"},
		{"cluster-proxy", "enableImpersonation: false", "enableImpersonation: false: users of the hub are always impersonated"},
		{"cluster-proxy", "installByPlacement: {placementName: a}", "installByPlacement: a Placement has a name and a namespace"},
		{"klusterlet", "bootstrapHubKubeconfig: x", "additional properties 'bootstrapHubKubeconfig' not allowed"},
		{"klusterlet", "noOperator: yess", "at '/noOperator': got string, want boolean"},
		{"klusterlet", "klusterlet: {mode: Detached}", "at '/klusterlet/mode': value must be one of"},
		{"klusterlet", "klusterlet: {workConfiguration: {statusSync: 1s}}", "additional properties 'statusSync' not allowed"},
		{"klusterlet", "multiHubBootstrapHubKubeConfigs: [{name: hub1}]", "missing property 'kubeConfig'"},
		{"klusterlet", "klusterlet: {mode: Hosted}", "klusterlet.clusterName is required in the hosted modes"},
		{"managed-serviceaccount", "agentInstallall: true", "additional properties 'agentInstallall' not allowed"},
		{"managed-serviceaccount", "replicas: many", "at '/replicas': got string, want integer"},
		{"managed-serviceaccount", "hubDeployMode: Helm", "at '/hubDeployMode': value must be one of 'Deployment', 'AddOnTemplate'"},
		{"resource-usage-collect-addon", "scores: {maxGPU: 0}", "at '/scores/maxGPU': minimum: got 0, want 1"},
		{"resource-usage-collect-addon", "addon: {nmae: x}", "additional properties 'nmae' not allowed"},
		{"resource-usage-collect-addon", "global: {image: {pullpolicy: Always}}", "additional properties 'pullpolicy' not allowed"},
		{"resource-usage-collect-addon", "addon: {name: Usage}", "at '/addon/name': 'Usage' does not match pattern"},
		{"resource-usage-collect-addon", "rbac: {hubNamespace: ''}", "at '/rbac/hubNamespace': '' does not match pattern"},
		{"resource-usage-collect-addon", "scores: {maxMemory: 32}", "at '/scores/maxMemory': got number, want string"},
		{"managed-serviceaccount", "targetCluster: c1", "targetCluster: c1 is one of all clusters, on which agentInstallAll enables the add-on"},
	} {
		if got := install(test.chart, test.values).fails(t); !strings.Contains(got, test.want) {
			t.Errorf("chart %s with %s fails with %q, want %q", test.chart, test.values, got, test.want)
		}
	}
	// What Helm itself adds, and documented ways to say nothing.
	for _, chart := range all {
		if _, err := install(chart, "global: {some: value}").files(t); err != nil {
			t.Error(err)
		}
	}
}

// HC-01 HC-05 HC-08 HC-09: the charts take the values of those of Open Cluster Management, with our images, and the feature gates that
// these may do without. test/interop sees that testdata/ocm has them.
func TestValuesOfOCM(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("testdata/ocm/*.yaml")
	if err != nil || len(files) != 4 {
		t.Fatalf("there are values in %v: %v", files, err)
	}
	for _, file := range files {
		chart := strings.TrimSuffix(filepath.Base(file), ".yaml")
		content, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		values := map[string]any{}
		if err := yaml.UnmarshalStrict(content, &values); err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{"images", "registry", "image", "tag"} {
			delete(values, name)
		}
		deployed := 0
		for _, object := range install(chart, show(values)).objects(t) {
			if object.GetKind() == "Deployment" {
				deployed++
				image, _ := at(objects{object}, "Deployment/"+object.GetNamespace()+"/"+object.GetName(),
					"/spec/template/spec/containers/0/image").(string)
				if !strings.HasPrefix(image, "ghcr.io/capstan-io/capstan-") {
					t.Errorf("chart %s deploys image %q", chart, image)
				}
			}
		}
		if deployed != 1 {
			t.Errorf("chart %s has %d Deployments", chart, deployed)
		}
	}
	for chart, values := range map[string]string{
		"cluster-manager": "images: {overrides: null}", "cluster-proxy": "featureGates: null", "klusterlet": "images: {overrides: null}",
		"managed-serviceaccount": "featureGates: null",
	} {
		install(chart, values).objects(t)
	}
}

// The README of a chart explains all of its values.
func TestReadme(t *testing.T) {
	t.Parallel()
	for _, chart := range all {
		readme, err := Files.ReadFile(chart + "/README.md")
		if err != nil {
			t.Fatal(err)
		}
		values := map[string]any{}
		decode(t, chart+"/values.yaml", &values)
		known := map[string]bool{}
		leaves("", values, known)
		for name := range known {
			if !explained(string(readme), name) {
				t.Errorf("%s/README.md does not explain `%s`", chart, name)
			}
		}
	}
}

// explained tells whether a table has a row for a value, or for the object that it is in.
func explained(readme, name string) bool {
	for {
		if strings.Contains(readme, "| `"+name+"` |") {
			return true
		}
		dot := strings.LastIndex(name, ".")
		if dot < 0 {
			return false
		}
		name = name[:dot]
	}
}

// HC-03 HC-04: who has a bootstrap token, or a token of the bootstrap service account, may do the same on each kind of hub.
func TestBootstrapRules(t *testing.T) {
	t.Parallel()
	objects := install("cluster-manager", "createBootstrapSA: true").objects(t)
	role := get[rbacv1.ClusterRole](t, objects, "ClusterRole/"+fleet.ClusterRoleBootstrap)
	standalone := fleet.BootstrapRules("get", "create", "list", "watch")
	if same, missing := validation.Covers(role.Rules, standalone); !same {
		t.Errorf("the chart does not grant %v", missing)
	}
	if same, more := validation.Covers(standalone, role.Rules); !same {
		t.Errorf("the chart grants %v, too", more)
	}
}

// HC-04: in another namespace than that of the operators, the bootstrap account is one of those who join, and the notes say how to make its
// tokens, as the command line does not find it.
func TestBootstrapAccountElsewhere(t *testing.T) {
	t.Parallel()
	const create = "kubectl create token agent-registration-bootstrap -n hub "
	for _, test := range []struct{ namespace, values, has, hasNot string }{
		{"hub", "createBootstrapSA: true", create, "capstan get token"},
		{"hub", "{createBootstrapSA: true, createBootstrapToken: true}", create, "capstan get token\n"},
		{"hub", "{createBootstrapSA: true, createBootstrapToken: true}", "capstan get token --use-bootstrap-token\n", "nothing to join with"},
		{"hub", "", "capstan get token\n", create},
		{fleet.NamespaceOperators, "createBootstrapSA: true", "capstan get token\n", "kubectl create token"},
	} {
		release := installation{chart: "cluster-manager", release: "cluster-manager", namespace: test.namespace, values: test.values}
		files, err := release.files(t)
		if err != nil {
			t.Fatal(err)
		}
		if notes := files["NOTES.txt"]; !strings.Contains(notes, test.has) || strings.Contains(notes, test.hasNot) {
			t.Errorf("%s in %s: want %q and not %q in:\n%s", test.values, test.namespace, test.has, test.hasNot, notes)
		}
		users, _ := at(release.objects(t), "ClusterManager/cluster-manager", "/spec/registrationConfiguration/autoApproveUsers").([]any)
		account := fleet.ServiceAccountUser(test.namespace, fleet.ServiceAccountBootstrap)
		if made := strings.Contains(test.values, "createBootstrapSA"); slices.Contains(users, any(account)) != made ||
			made && !fleet.IsJoining(account, nil) {
			t.Errorf("%s in %s: the users are %v, and %s is one who joins: %v", test.values, test.namespace, users, account,
				fleet.IsJoining(account, nil))
		}
	}
}

// MS-06: agents have the same rights for managed service accounts on each kind of hub, and the manager has them not.
func TestRightsForManagedServiceAccounts(t *testing.T) {
	t.Parallel()
	objects := install("managed-serviceaccount", "").objects(t)
	role := get[rbacv1.ClusterRole](t, objects, "ClusterRole/"+fleet.ClusterRoleManagedServiceAccount)
	if want := builtin.Rules(fleet.AddOnManagedServiceAccount); !reflect.DeepEqual(role.Rules, want) {
		t.Errorf("the chart grants %v, want %v", role.Rules, want)
	}
	manager := get[rbacv1.ClusterRole](t, objects, "ClusterRole/open-cluster-management:managed-serviceaccount:addon-manager")
	for _, rule := range manager.Rules {
		if slices.Contains(rule.Resources, "secrets") || slices.Contains(rule.Verbs, "escalate") || slices.Contains(rule.Verbs, "*") ||
			slices.Contains(rule.Verbs, "bind") && !slices.Equal(rule.ResourceNames, []string{role.Name}) {
			t.Errorf("%v is more than the manager needs", rule)
		}
	}
}

// MS-08: both modes install the same, and the notes say so of what changes nothing.
func TestManagedServiceAccountModes(t *testing.T) {
	t.Parallel()
	const chart = "managed-serviceaccount"
	want, err := install(chart, "hubDeployMode: Deployment").files(t)
	if err != nil {
		t.Fatal(err)
	}
	got, err := install(chart, "{hubDeployMode: AddOnTemplate, agentImagePullSecret: pull, addOnTemplateName: accounts}").files(t)
	if err != nil {
		t.Fatal(err)
	}
	const notes = "NOTES.txt"
	for _, text := range []string{"hubDeployMode: AddOnTemplate installs the same as Deployment", "agentImagePullSecret: pull changes nothing",
		"addOnTemplateName: accounts changes nothing"} {
		if !strings.Contains(got[notes], text) || strings.Contains(want[notes], text) {
			t.Errorf("%q is not in the notes of that mode alone:\n%s\n%s", text, got[notes], want[notes])
		}
	}
	delete(want, notes)
	delete(got, notes)
	if !reflect.DeepEqual(got, want) {
		t.Errorf("with AddOnTemplate, the chart installs %v, want %v", got, want)
	}
}

// HC-11: the chart installs the add-on of deploy/examples/resource-usage-collect, with the image of a release and other resources.
func TestResourceUsageCollectIsTheExample(t *testing.T) {
	t.Parallel()
	const name = "resource-usage-collect"
	chart := install("resource-usage-collect-addon", "").objects(t)
	const container = "/spec/agentSpec/workload/manifests/3/spec/template/spec/containers/0"
	for file, parts := range map[string][]string{
		"addontemplate.yaml": {"AddOnTemplate/" + name + " /spec/addonName", "AddOnTemplate/" + name + " /spec/registration",
			"AddOnTemplate/" + name + " /spec/agentSpec/workload/manifests/0", "AddOnTemplate/" + name + " /spec/agentSpec/workload/manifests/1",
			"AddOnTemplate/" + name + " /spec/agentSpec/workload/manifests/2", "AddOnTemplate/" + name + " " + container + "/args",
			"AddOnTemplate/" + name + " " + container + "/securityContext",
			"AddOnTemplate/" + name + " /spec/agentSpec/workload/manifests/3/spec/template/spec/securityContext",
			"AddOnTemplate/" + name + " /spec/agentSpec/workload/manifests/3/spec/template/spec/serviceAccountName"},
		"addondeploymentconfig.yaml": {"AddOnDeploymentConfig/open-cluster-management-addon/" + name + " /spec"},
		"clustermanagementaddon.yaml": {"ClusterManagementAddOn/" + name + " /spec/addOnMeta",
			"ClusterManagementAddOn/" + name + " /spec/supportedConfigs"},
		"hub.yaml": {"ClusterRole/open-cluster-management:" + name + ":agent /rules", "ClusterRole/open-cluster-management:" + name + ":hub /rules",
			"ClusterRoleBinding/open-cluster-management:" + name + ":hub /roleRef",
			"ClusterRoleBinding/open-cluster-management:" + name + ":hub /subjects"},
	} {
		from := exampleObjects(t, name+"/"+file)
		for _, part := range parts {
			object, pointer, _ := strings.Cut(part, " ")
			got, want := at(chart, object, pointer), at(from, object, pointer)
			if want == nil || !reflect.DeepEqual(got, want) {
				t.Errorf("%s is %s, in %s %s", part, show(got), file, show(want))
			}
		}
	}
}

// HC-02: the operator has the rights that it grants to the components of a hub, and may not escalate its own.
func TestOperatorOfHubGrantsWhatItHas(t *testing.T) {
	t.Parallel()
	role := get[rbacv1.ClusterRole](t, install("cluster-manager", "").objects(t), "ClusterRole/cluster-manager")
	var granting strings.Builder
	for _, file := range []string{"../hub/rights.yaml", "../hub/clusterprofiles.yaml", "../hub/clusterimporter.yaml", "../hub/grpc.yaml"} {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		granting.WriteString(string(data) + "\n---")
	}
	roles := 0
	for document := range strings.SplitSeq(granting.String(), "\n---") {
		granted := rbacv1.ClusterRole{}
		if err := yaml.Unmarshal([]byte(document), &granted); err != nil {
			t.Fatal(err)
		}
		if granted.Kind != "ClusterRole" && granted.Kind != "Role" {
			continue
		}
		roles++
		if enough, missing := validation.Covers(role.Rules, granted.Rules); !enough {
			t.Errorf("the operator cannot grant %s: it lacks %v", granted.Name, missing)
		}
	}
	if roles < 7 {
		t.Errorf("found %d roles", roles)
	}
	for _, rule := range role.Rules {
		for _, list := range [][]string{rule.Verbs, rule.Resources, rule.APIGroups} {
			if slices.Contains(list, "*") || slices.Contains(list, "escalate") || slices.Contains(list, "bind") {
				t.Errorf("%v is more than the operator needs", rule)
			}
		}
	}
}

// HC-08 HC-09 HC-10 HC-11: a cluster set stays bound to the namespace when the chart that has bound it is uninstalled: other charts there
// may select its clusters, too.
func TestSetStaysBound(t *testing.T) {
	t.Parallel()
	for chart, values := range map[string]string{
		"cluster-gateway-addon-manager": "manualSecretManagement: false", "cluster-proxy": "", "managed-serviceaccount": "",
		"resource-usage-collect-addon": "",
	} {
		objects := install(chart, values).objects(t)
		binding := get[clusterv1beta2.ManagedClusterSetBinding](t, objects, "ManagedClusterSetBinding/"+namespaces[chart]+"/global")
		if policy := binding.Annotations["helm.sh/resource-policy"]; policy != "keep" {
			t.Errorf("chart %s: the policy is %q", chart, policy)
		}
	}
}
