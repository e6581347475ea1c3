package install_test

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/version"
	"sigs.k8s.io/yaml"

	"github.com/capstan-io/capstan/deploy/charts"
	"github.com/capstan-io/capstan/internal/cli/clitest"
	"github.com/capstan-io/capstan/internal/cli/fakehub"
)

// newCluster is a cluster that runs pods.
func newCluster(t *testing.T) clitest.Hub {
	t.Helper()
	h := clitest.NewHub(t)
	h.Handle("GET /version", fakehub.JSON(`{"gitVersion":"v1.30.0"}`))
	h.Handle("GET /apis", fakehub.JSON(`{}`))
	serve(h, "/api/v1", "namespaces Namespace", "pods Pod", "secrets Secret", "configmaps ConfigMap", "events Event", "serviceaccounts ServiceAccount")
	serve(h, "/apis/apps/v1", "deployments Deployment", "statefulsets StatefulSet", "daemonsets DaemonSet")
	serve(h, "/apis/rbac.authorization.k8s.io/v1", "roles Role", "rolebindings RoleBinding", "clusterroles ClusterRole",
		"clusterrolebindings ClusterRoleBinding")
	serve(h, "/apis/certificates.k8s.io/v1", "certificatesigningrequests CertificateSigningRequest")
	serve(h, "/apis/apiextensions.k8s.io/v1", "customresourcedefinitions CustomResourceDefinition")
	serve(h, "/apis/policy/v1", "poddisruptionbudgets PodDisruptionBudget")
	h.OnCreate("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", func(definition *unstructured.Unstructured) {
		definition.Object["status"] = map[string]any{"conditions": []any{map[string]any{"type": "Established", "status": "True"}}}
	})
	serve(h, "/apis/operator.open-cluster-management.io/v1", "clustermanagers ClusterManager", "klusterlets Klusterlet")
	h.Handle("POST /apis/authorization.k8s.io/v1/selfsubjectaccessreviews", fakehub.JSON(`{"status":{"allowed":true}}`))
	return h
}

// changes is how many requests have changed something.
func changes(h clitest.Hub) int {
	return len(h.Requests("PATCH")) + len(h.Requests("PUT")) + len(h.Requests("DELETE"))
}

// clusterScoped are the kinds without namespaces.
var clusterScoped = []string{"AppliedManifestWork", "CertificateSigningRequest", "ClusterManager", "ClusterRole", "ClusterRoleBinding",
	"CustomResourceDefinition", "Klusterlet", "ManagedCluster", "MutatingWebhookConfiguration", "Namespace", "PriorityClass",
	"ValidatingWebhookConfiguration"}

// serve has the cluster say that it serves some resources, each with its kind.
func serve(h clitest.Hub, path string, resources ...string) {
	var list metav1.APIResourceList
	for _, resource := range resources {
		name, kind, _ := strings.Cut(resource, " ")
		namespaced := !slices.Contains(clusterScoped, kind)
		list.APIResources = append(list.APIResources, metav1.APIResource{Name: name, Kind: kind, Namespaced: namespaced,
			Verbs: metav1.Verbs{"list"}})
	}
	content, _ := json.Marshal(list)
	h.Handle("GET "+path, fakehub.JSON(string(content)))
}

// objectsOf are the objects that a dry run prints, each by its kind and name.
func objectsOf(t *testing.T, dryRun clitest.Result) map[string]any {
	t.Helper()
	objects := map[string]any{}
	for document := range strings.SplitSeq(dryRun.Out, "---\n") {
		object := unstructured.Unstructured{}
		if err := yaml.Unmarshal([]byte(document), &object.Object); err != nil {
			t.Fatalf("%v in %s", err, document)
		}
		if len(object.Object) > 0 {
			objects[object.GetKind()+"/"+object.GetName()] = object.Object
		}
	}
	return objects
}

// at finds a value by its path, as text.
func at(values any, path string) string {
	for key := range strings.SplitSeq(path, ".") {
		if list, isList := values.([]any); isList {
			index, err := strconv.Atoi(key)
			if err != nil || index >= len(list) {
				return ""
			}
			values = list[index]
			continue
		}
		fields, _ := values.(map[string]any)
		values = fields[key]
	}
	if text, ok := values.(string); ok {
		return text
	}
	content, _ := json.Marshal(values)
	return string(content)
}

// decodedAt finds a value in base64, as what it encodes.
func decodedAt(t *testing.T, values any, path string) string {
	t.Helper()
	content, err := base64.StdEncoding.DecodeString(at(values, path))
	if err != nil {
		t.Fatalf("%s: %v", path, err)
	}
	return string(content)
}

func wantValues(t *testing.T, values map[string]any, want map[string]string) {
	t.Helper()
	for path, value := range want {
		if got := at(values, path); got != value {
			t.Errorf("%s is %s, want %s", path, got, value)
		}
	}
}

// inDir returns a function that writes a file in a folder of the test, and returns its path.
func inDir(t *testing.T) func(name, content string) string {
	t.Helper()
	dir := t.TempDir()
	return func(name, content string) string {
		file := filepath.Join(dir, name)
		if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		return file
	}
}

// CA-07, CA-08, CA-10: the flags of init are values of the chart, and the file of values is over them. No other program is needed.
func TestInitValues(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	h, write := newCluster(t), inDir(t)
	got := h.Run(t, "", "init", "--dry-run")
	got.Succeeds(t, "kind: Deployment", "name: cluster-manager")
	if strings.Contains(got.Out, "helm.sh/resource-policy") || strings.Contains(got.Out, "managed-by: Helm") {
		t.Errorf("what is applied says that Helm keeps it:\n%s", got.Out)
	}
	if !strings.Contains(got.ErrOut, "capstan init is running in dry-run mode") || !strings.Contains(got.ErrOut, "flag dry-run has been set") {
		t.Errorf("it says %s", got.ErrOut)
	}
	const manager, deployment = "ClusterManager/cluster-manager.spec.", "Deployment/cluster-manager.spec."
	image := at(objectsOf(t, got), deployment+"template.spec.containers.0.image")
	if !strings.HasPrefix(image, "ghcr.io/capstan-io/capstan-hub:") {
		t.Errorf("the operator is %s", image)
	}
	wantValues(t, objectsOf(t, got), map[string]string{
		"ServiceAccount/agent-registration-bootstrap.metadata.name": "agent-registration-bootstrap",
		"Secret/bootstrap-token-ocmhub":                             "null",
		"Namespace/open-cluster-management.metadata.name":           "open-cluster-management",
		manager + "registrationConfiguration.registrationDrivers":   `[{"authType":"csr"}]`,
		manager + "resourceRequirement.type":                        "Default",
	})
	got = h.Run(t, "", "init", "--dry-run", "--use-bootstrap-token", "--image-registry", "registry.example.com/x/", "--enable-sync-labels",
		"--feature-gates", "ManagedClusterAutoApproval=true,PlacementDebugServer=false", "--auto-approved-csr-identities", "u1,u2",
		"--resource-qos-class", "ResourceRequirement", "--resource-limits", "cpu=1,memory=64Mi", "--create-namespace=false",
		"--image-pull-credential-file", write("docker.json", `{"auths":{}}`), "--bundle-version-overrides", write("bundle.json", `{"ocm":"v9"}`),
		"--cluster-manager-values-file", write("values.yaml", "replicaCount: 1\nclusterManager: {mode: Hosted}\n"))
	got.Succeeds(t)
	objects := objectsOf(t, got)
	wantValues(t, objects, map[string]string{
		deployment + "template.spec.containers.0.image":           "registry.example.com/x/capstan-hub:v9",
		deployment + "template.spec.containers.0.args.2":          "--enable-sync-labels",
		deployment + "replicas":                                   "1",
		"ServiceAccount/agent-registration-bootstrap":             "null",
		"Namespace/open-cluster-management":                       "null",
		"Secret/bootstrap-token-ocmhub.metadata.namespace":        "kube-system",
		manager + "deployOption.mode":                             "Hosted",
		manager + "registrationConfiguration.registrationDrivers": `[{"authType":"csr","csr":{"autoApprovedIdentities":["u1","u2"]}}]`,
		manager + "resourceRequirement.resourceRequirements":      `{"limits":{"cpu":"1","memory":"64Mi"},"requests":{}}`,
		manager + "placementConfiguration.featureGates":           `[{"feature":"PlacementDebugServer","mode":"Disable"}]`,
	})
	encoded := base64.StdEncoding.EncodeToString([]byte(`{"auths":{}}`))
	if data := at(objects, "Secret/open-cluster-management-image-pull-credentials.data"); data != `{".dockerconfigjson":"`+encoded+`"}` {
		t.Errorf("the password of the registry is %v", data)
	}
}

// CA-10: the drivers of registration, and the versions of images.
func TestInitDrivers(t *testing.T) {
	t.Parallel()
	const manager = "ClusterManager/cluster-manager.spec."
	h := newCluster(t)
	for line, want := range map[string]map[string]string{
		"--registration-drivers csr,grpc --grpc-server hub.example.com --feature-gates ManagedClusterAutoApproval=true " +
			"--auto-approved-grpc-identities u1,u2": {
			manager + "registrationConfiguration.registrationDrivers": `[{"authType":"csr"},{"authType":"grpc","grpc":` +
				`{"autoApprovedIdentities":["u1","u2"]}}]`,
			manager + "serverConfiguration.endpointsExposure": `[{"grpc":{"hostname":{"host":"hub.example.com"},"type":"hostname"},` +
				`"protocol":"grpc","usage":"agentToHub"}]`,
		},
		"--registration-drivers grpc --grpc-endpoint-type loadBalancer": {
			manager + "registrationConfiguration.registrationDrivers": `[{"authType":"grpc"}]`,
			manager + "serverConfiguration.endpointsExposure": `[{"grpc":{"loadBalancer":{},"type":"loadBalancer"},"protocol":"grpc",` +
				`"usage":"agentToHub"}]`,
		},
		"--registration-drivers csr,awsirsa --hub-cluster-arn " + hubARN + " --aws-resource-tags team=fleet " +
			"--feature-gates ManagedClusterAutoApproval=true --auto-approved-arn-patterns arn:a": {
			manager + "registrationConfiguration.registrationDrivers": `[{"authType":"csr"},{"authType":"awsirsa","awsirsa":` +
				`{"autoApprovedIdentities":["arn:a"],"hubClusterArn":"` + hubARN + `","tags":["team=fleet"]}}]`,
		},
		"--bundle-version latest": {manager + "workImagePullSpec": "ghcr.io/capstan-io/capstan-hub:latest"},
	} {
		got := h.Run(t, "", append([]string{"init", "--dry-run"}, strings.Fields(line)...)...)
		got.Succeeds(t)
		wantValues(t, objectsOf(t, got), want)
	}
	got := h.Run(t, "", "init", "--dry-run", "--bundle-version", "v1.3.1")
	if image := at(objectsOf(t, got), manager+"workImagePullSpec"); strings.HasSuffix(image, ":v1.3.1") || strings.HasSuffix(image, ":") {
		t.Errorf("the image for a bundle of Open Cluster Management is %q, want the version of this program", image)
	}
}

// CA-10, CA-11: what is wrong with the flags is found before anything is sent to the cluster.
func TestInitBadInput(t *testing.T) {
	t.Parallel()
	for line, says := range map[string][]string{
		"--registration-drivers awsirsa":             {`--hub-cluster-arn: "" is not the ARN`},
		"--registration-drivers awsirsa --singleton": {"not with --singleton"},
		"--registration-drivers awsirsa --hub-cluster-arn " + hubARN + " --auto-approved-arn-patterns .*": {"ManagedClusterAutoApproval=true"},
		"--registration-drivers grpc":                                                   {"--grpc-server is missing", "--grpc-endpoint-type loadBalancer"},
		"--registration-drivers grpc --grpc-server https://hub.example.com":             {`"https://hub.example.com" must be a host name`},
		"--registration-drivers grpc --grpc-server hub.example.com:443":                 {`"hub.example.com:443" must be a host name`},
		"--registration-drivers grpc --grpc-endpoint-type route":                        {`"route" is none of hostname, loadBalancer`},
		"--registration-drivers grpc --grpc-server h --auto-approved-csr-identities u":  {"useless without csr"},
		"--registration-drivers grpc --grpc-server h --auto-approved-grpc-identities u": {"ManagedClusterAutoApproval=true"},
		"--registration-drivers grpc --grpc-server h --singleton":                       {"--singleton has no gRPC server"},
		"--grpc-endpoint-type loadBalancer":                                             {"useless without grpc"},
		"--auto-approved-grpc-identities u":                                             {"useless without grpc"},
		"--registration-drivers x":                                                      {`"x" is no driver`},
		"--grpc-server x":                                                               {"--grpc-server"},
		"--hub-cluster-arn x":                                                           {"--hub-cluster-arn: useless without awsirsa"},
		"--auto-approved-csr-identities u":                                              {"ManagedClusterAutoApproval=true"},
		"--auto-approved-arn-patterns u":                                                {"--auto-approved-arn-patterns"},
		"--resource-limits cpu=1":                                                       {"--resource-qos-class ResourceRequirement"},
		"--resource-qos-class X":                                                        {"--resource-qos-class", "BestEffort"},
		"--set a=b":                                                                     {"--set: useless without --singleton"},
		"--singleton --singleton-name X":                                                {"--singleton-name"},
		"--feature-gates Nonsense=true":                                                 {`"Nonsense" is no feature gate`},
		"--output-file /no/such/folder/x":                                               {"--output-file"},
		"--output-join-command-file /none/x":                                            {"--output-join-command-file: /none/x: there is no"},
		"--image-registry x --kubeconfig /no/such/kc":                                   {"/no/such/kc", "leads to a cluster"},

		"--singleton --use-bootstrap-token":                           {"--use-bootstrap-token: of no use with --singleton"},
		"--singleton --output-join-command-file x":                    {"--output-join-command-file: of no use with --singleton"},
		"--singleton -o json":                                         {"--output: of no use with --singleton"},
		"--singleton --registration-drivers csr":                      {"--registration-drivers: of no use with --singleton"},
		"--singleton --feature-gates ManagedClusterAutoApproval=true": {"--feature-gates: of no use with --singleton"},
		"--singleton --enable-sync-labels":                            {"--enable-sync-labels: of no use with --singleton"},
		"--singleton --cluster-manager-values-file x":                 {"--cluster-manager-values-file: of no use with --singleton"},
		"--singleton --image-pull-credential-file x":                  {"--image-pull-credential-file: of no use with --singleton"},
		"--singleton --resource-qos-class BestEffort":                 {"--resource-qos-class: of no use with --singleton"},
		"--singleton --resource-qos-class ResourceRequirement --resource-limits cpu=1": {
			"--resource-limits, --resource-qos-class: of no use with --singleton"},
		"--singleton --resource-qos-class ResourceRequirement --resource-requests cpu=1": {
			"--resource-qos-class, --resource-requests: of no use with --singleton"},
		"--singleton --feature-gates ManagedClusterAutoApproval=true --auto-approved-csr-identities u": {
			"--auto-approved-csr-identities, --feature-gates: of no use with --singleton"},
	} {
		t.Run(line, func(t *testing.T) {
			t.Parallel()
			clitest.Run(t.Context(), "", append([]string{"init"}, strings.Fields(line)...)...).Fails(t, says...)
		})
	}
}

// CA-11: a cluster that is too old, that runs no pods, or whose user may not do all that it takes, is left as it is.
func TestInitPreflight(t *testing.T) {
	t.Parallel()
	old := newCluster(t)
	old.Handle("GET /version", fakehub.JSON(`{"gitVersion":"v1.29.3"}`))
	old.Run(t, "", "init").Fails(t, "v1.29.3", "1.30.0 or newer")

	podless := newCluster(t)
	podless.Handle("GET /apis/apps/v1", fakehub.Refuse(http.StatusNotFound, metav1.StatusReasonNotFound, "no"))
	podless.Run(t, "", "init").Fails(t, "runs no pods")

	forbidden := newCluster(t)
	forbidden.Handle("POST /apis/authorization.k8s.io/v1/selfsubjectaccessreviews", fakehub.JSON(`{"status":{"allowed":false}}`))
	forbidden.Run(t, "", "init").Fails(t, "create deployments.apps in namespace open-cluster-management",
		"patch deployments.apps in namespace open-cluster-management", "Ask an administrator")

	helms := newCluster(t)
	putOperator(t, helms, "cluster-manager", "r/x:v1", map[string]string{"meta.helm.sh/release-name": "ocm"})
	helms.Run(t, "", "init").Fails(t, "Deployment open-cluster-management/cluster-manager is kept by Helm (release ocm", "--force")

	empty := newCluster(t)
	empty.Put(t, "/api/v1/namespaces/kube-public/configmaps/cluster-info", &corev1.ConfigMap{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"}, ObjectMeta: metav1.ObjectMeta{Name: "cluster-info"},
	})
	empty.Run(t, "", "init").Fails(t, "kube-public/cluster-info", "holds no kubeconfig")
	for name, h := range map[string]clitest.Hub{"old": old, "podless": podless, "forbidden": forbidden, "helms": helms, "empty": empty} {
		if n := changes(h); n != 0 {
			t.Errorf("%s: %d changes were made", name, n)
		}
	}
}

// CA-11: what the command line needs of a cluster is what the charts need of it.
func TestOldestKubernetes(t *testing.T) {
	t.Parallel()
	for chart, command := range map[string]string{
		"cluster-manager": "init", "capstan-hub": "init --singleton",
		"klusterlet": "join --hub-token t --hub-apiserver %s --cluster-name c",
	} {
		t.Run(chart, func(t *testing.T) {
			t.Parallel()
			oldest := kubernetesOf(t, chart)
			tooOld := fmt.Sprintf("v%d.%d.9", oldest.Major(), oldest.Minor()-1)
			h := newHubToJoin(t)
			h.Handle("GET /version", fakehub.JSON(`{"gitVersion":"`+tooOld+`"}`))
			h.Run(t, "", strings.Fields(strings.Replace(command, "%s", h.URL, 1))...).Fails(t, tooOld, oldest.String()+" or newer")
		})
	}
}

// kubernetesOf is the oldest version of Kubernetes that a chart can be installed in.
func kubernetesOf(t *testing.T, chart string) *version.Version {
	t.Helper()
	content, err := charts.Files.ReadFile(chart + "/Chart.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var metadata struct {
		KubeVersion string `json:"kubeVersion"`
	}
	if err := yaml.Unmarshal(content, &metadata); err != nil {
		t.Fatal(err)
	}
	oldest, isRange := strings.CutPrefix(metadata.KubeVersion, ">=")
	if !isRange {
		t.Fatalf("chart %s wants Kubernetes %q", chart, metadata.KubeVersion)
	}
	return version.MustParseGeneric(strings.TrimSuffix(oldest, "-0"))
}

func putOperator(t *testing.T, h clitest.Hub, name, image string, annotations map[string]string) {
	t.Helper()
	h.Put(t, "/apis/apps/v1/namespaces/open-cluster-management/deployments/"+name, &appsv1.Deployment{
		TypeMeta:   metav1.TypeMeta{APIVersion: "apps/v1", Kind: "Deployment"},
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "open-cluster-management", Annotations: annotations},
		Spec: appsv1.DeploymentSpec{
			Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": name}},
			Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "operator", Image: image}}}},
		},
	})
}

// CA-41: init replaces an operator under the same rule as upgrade, before anything is changed.
func TestInitVersion(t *testing.T) {
	t.Parallel()
	args := []string{"init", "--bundle-version-overrides", inDir(t)("bundle.json", `{"ocm":"v0.3.0"}`)}
	for running, refused := range map[string]string{
		"other/capstan-hub:v0.1.0": "v0.3.0 skips a minor version", "other/capstan-hub:v0.4.0": "v0.3.0 is older",
		"other/capstan-hub:v0.3.1": "v0.3.0 is older", "other/capstan-hub:v0.2.0": "", "other/capstan-hub:v0.3.0": "",
		"other/y:v0.1.0": "", "other/capstan-hub@sha256:00": "",
	} {
		h := newCluster(t)
		putOperator(t, h, "cluster-manager", running, nil)
		if refused == "" {
			h.Run(t, "", args...).Succeeds(t, "capstan join")
			continue
		}
		h.Run(t, "", args...).Fails(t, refused, "capstan upgrade clustermanager --force")
		if n := len(h.Requests("PATCH")) + len(h.Requests("PUT")) + len(h.Requests("DELETE")); n != 0 {
			t.Errorf("%s: %d changes were made", running, n)
		}
	}
}

// CA-41: join replaces an operator under the same rule, and leaves one as it is that runs, or that is not to be installed.
func TestJoinVersion(t *testing.T) {
	t.Parallel()
	const klusterlet = klusterletsPath + "klusterlet"
	hub, managed := newHubToJoin(t), newCluster(t)
	overrides := inDir(t)("bundle.json", `{"ocm":"v0.3.0"}`)
	for name, test := range map[string]struct {
		image     string
		runs      bool
		installed string // of the Klusterlet, by its annotation
		refused   string
	}{
		"skips a minor version":   {image: "other/capstan-agent:v0.1.0", refused: "v0.3.0 skips a minor version"},
		"goes back":               {image: "other/capstan-agent:v0.3.1", refused: "v0.3.0 is older"},
		"the next minor version":  {image: "other/capstan-agent:v0.2.0"},
		"another operator":        {image: "other/y:v0.1.0"},
		"one that runs":           {image: "other/capstan-agent:v0.1.0", runs: true},
		"skips what is installed": {image: "other/y:v0.2.0", installed: "v0.1.0", refused: "Klusterlet klusterlet: version v0.1.0 is installed"},
	} {
		for mode, flags := range map[string][]string{"default": nil, "hosted": {"--managed-cluster-kubeconfig", managed.File}} {
			h := newCluster(t)
			putOperator(t, h, "klusterlet", test.image, nil)
			if test.runs {
				var operator appsv1.Deployment
				h.Get(t, clitest.OperatorsPath+"klusterlet", &operator)
				operator.Status.AvailableReplicas = 1
				h.Put(t, clitest.OperatorsPath+"klusterlet", &operator)
			}
			if test.installed != "" {
				put(t, h, map[string]string{klusterlet: "Klusterlet"}, map[string]string{
					klusterlet: `{"metadata":{"annotations":{"capstan.io/installed-version":"` + test.installed + `"}},"spec":{"clusterName":"c1"}}`})
			}
			got := h.Run(t, "", joinCommand(t, hub, append(flags, "--mode", mode, "--bundle-version-overrides", overrides)...)...)
			if test.refused == "" {
				got.Succeeds(t, "capstan accept")
				continue
			}
			got.Fails(t, test.refused, "insist with \"capstan upgrade klusterlet --force\"")
			if n := changes(h); n != 0 {
				t.Errorf("%s, mode %s: %d changes were made", name, mode, n)
			}
		}
	}
	kept := newCluster(t)
	putOperator(t, kept, "klusterlet", "other/capstan-agent:v0.1.0", nil)
	values := inDir(t)("values.yaml", "noOperator: true")
	kept.Run(t, "", joinCommand(t, hub, "--klusterlet-values-file", values, "--bundle-version-overrides", overrides)...).Succeeds(t)
}

// CA-12: on a time-out, init says why the operator does not run.
func TestInitTimeout(t *testing.T) {
	t.Parallel()
	waiting := func(reason, message string) corev1.ContainerState {
		return corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason, Message: message}}
	}
	ended := corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 3}}
	tests := map[string]struct {
		status corev1.PodStatus
		event  string
		says   []string
	}{
		"image": {
			status: corev1.PodStatus{ContainerStatuses: []corev1.ContainerStatus{
				{Image: "r/x:v0.3.0", State: waiting("ImagePullBackOff", "no such image")},
			}},
			says: []string{"image r/x:v0.3.0 cannot be pulled", "no such image", "--image-registry"},
		},
		"crash": {
			status: corev1.PodStatus{ContainerStatuses: []corev1.ContainerStatus{
				{Name: "operator", RestartCount: 4, State: waiting("CrashLoopBackOff", "back-off"), LastTerminationState: ended},
			}},
			says: []string{"ended 4 times, the last time with exit code 3", "its log ends with", "panic: no"},
		},
		"no node": {
			status: corev1.PodStatus{Conditions: []corev1.PodCondition{
				{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: "Unschedulable", Message: "0/3 nodes are available"},
			}},
			says: []string{"has no node", "0/3 nodes are available"},
		},
		"secret": {
			status: corev1.PodStatus{ContainerStatuses: []corev1.ContainerStatus{{State: waiting("ContainerCreating", "")}}},
			event:  `MountVolume.SetUp failed: secret "x" not found`,
			says:   []string{"FailedMount", `secret "x" not found`},
		},
		"configuration": {
			status: corev1.PodStatus{ContainerStatuses: []corev1.ContainerStatus{
				{State: waiting("CreateContainerConfigError", `secret "y" not found`)},
			}},
			says: []string{"cannot be created", `secret "y" not found`},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := newCluster(t)
			putOperator(t, h, "cluster-manager", "r/x:v0.3.0", nil)
			h.Put(t, "/api/v1/namespaces/open-cluster-management/pods/p1", &corev1.Pod{
				TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"},
				ObjectMeta: metav1.ObjectMeta{Name: "p1", Namespace: "open-cluster-management", UID: "u1", Labels: map[string]string{"app": "cluster-manager"}},
				Status:     test.status,
			})
			h.Handle("GET /api/v1/namespaces/open-cluster-management/pods/p1/log", func(w http.ResponseWriter, _ *http.Request) {
				fmt.Fprintln(w, "panic: no")
			})
			if test.event != "" {
				h.Put(t, "/api/v1/namespaces/open-cluster-management/events/e1", &corev1.Event{
					TypeMeta:       metav1.TypeMeta{APIVersion: "v1", Kind: "Event"},
					ObjectMeta:     metav1.ObjectMeta{Name: "e1", Namespace: "open-cluster-management"},
					InvolvedObject: corev1.ObjectReference{UID: types.UID("u1")}, Type: corev1.EventTypeWarning, Reason: "FailedMount", Message: test.event,
				})
			}
			h.TimesOut(t, strings.TrimSuffix(clitest.OperatorsPath, "/"), "", "init", "--wait", "--timeout", "1").Fails(t,
				append(test.says, "Deployment open-cluster-management/cluster-manager", "0 of 3 pods ready", "not done after 1s")...)
		})
	}
	t.Run("quota", func(t *testing.T) {
		t.Parallel()
		h := newCluster(t)
		putOperator(t, h, "cluster-manager", "r/x:v0.3.0", nil)
		h.Put(t, "/apis/apps/v1/namespaces/open-cluster-management/deployments/cluster-manager", &appsv1.Deployment{
			TypeMeta:   metav1.TypeMeta{APIVersion: "apps/v1", Kind: "Deployment"},
			ObjectMeta: metav1.ObjectMeta{Name: "cluster-manager", Namespace: "open-cluster-management"},
			Spec:       appsv1.DeploymentSpec{Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "x"}}},
			Status: appsv1.DeploymentStatus{Conditions: []appsv1.DeploymentCondition{
				{Type: appsv1.DeploymentReplicaFailure, Status: corev1.ConditionTrue, Message: "pods is forbidden: exceeded quota: small"},
			}},
		})
		h.TimesOut(t, strings.TrimSuffix(clitest.OperatorsPath, "/"), "", "init", "--wait", "--timeout", "1").Fails(t,
			"· cluster-manager: 0 of 3 pods ready; its pods cannot be created: pods is forbidden: exceeded quota: small (",
			"0 of 3 pods ready\n  its pods cannot be created: pods is forbidden: exceeded quota: small")
	})
}

// CA-41: the operator keeps its settings, and a minor version is not skipped.
func TestUpgradeOperator(t *testing.T) {
	t.Parallel()
	h := newCluster(t)
	upgrade := []string{"upgrade", "clustermanager", "--bundle-version-overrides", inDir(t)("bundle.json", `{"ocm":"v0.3.0"}`)}
	h.Run(t, "", upgrade...).Fails(t, "has no operator to upgrade", "capstan init")
	putOperator(t, h, "cluster-manager", "other/capstan-hub:v0.1.0", nil)
	h.Run(t, "", append(upgrade, "--dry-run")...).Fails(t, "v0.1.0", "v0.3.0 skips a minor version", "--force")
	replicas := int32(2)
	h.Put(t, "/apis/apps/v1/namespaces/open-cluster-management/deployments/cluster-manager", &appsv1.Deployment{
		TypeMeta:   metav1.TypeMeta{APIVersion: "apps/v1", Kind: "Deployment"},
		ObjectMeta: metav1.ObjectMeta{Name: "cluster-manager", Namespace: "open-cluster-management"},
		Spec: appsv1.DeploymentSpec{Replicas: &replicas, Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{
			NodeSelector: map[string]string{"role": "infra"},
			Containers:   []corev1.Container{{Name: "operator", Image: "other/capstan-hub:v0.2.0", Args: []string{"hub", "--enable-sync-labels"}}},
		}}},
	})
	got := h.Run(t, "", append(upgrade, "--dry-run")...)
	got.Succeeds(t, "name: cluster-manager")
	wantValues(t, objectsOf(t, got), map[string]string{
		"Deployment/cluster-manager.spec.replicas":                          "2",
		"Deployment/cluster-manager.spec.template.spec.nodeSelector":        `{"role":"infra"}`,
		"Deployment/cluster-manager.spec.template.spec.containers.0.args.2": "--enable-sync-labels",
		"ClusterManager/cluster-manager":                                    "null",
	})
}

// newClusterWithVolumes is a cluster that serves what a standalone hub takes besides.
func newClusterWithVolumes(t *testing.T) clitest.Hub {
	t.Helper()
	h := newCluster(t)
	serveVolumes(h)
	return h
}

func serveVolumes(h clitest.Hub) {
	serve(h, "/api/v1", "namespaces Namespace", "pods Pod", "secrets Secret", "configmaps ConfigMap", "events Event", "serviceaccounts ServiceAccount",
		"services Service", "persistentvolumeclaims PersistentVolumeClaim")
}

// CA-14: a standalone hub is what its chart consists of, with values of the flags of Helm, and needs no other program.
func TestInitSingletonValues(t *testing.T) {
	t.Setenv("PATH", "")
	h := newClusterWithVolumes(t)
	in := inDir(t)
	got := h.Run(t, "", "init", "--singleton", "--dry-run", "--image-registry", "r.example.com/x", "--bundle-version", "latest",
		"--values", in("a.yaml", "{features: a, priorityClassName: a}"), "-f", in("b.yaml", "{features: b, replicas: 0}"),
		"--set", "features=c,tls.cipherSuites={a,b}", "--set-string", "podLabels.number=1", "--set-file", "apiserver.ca="+in("ca", "A=B"),
		"--set-literal", "apiserver.cakey=K,=", "--set-json", `tolerations=[{"key":"k"}]`, "--set-json", `{"nodeSelector":{"n":"1"}}`)
	got.Succeeds(t, "name: multicluster-controlplane")
	objects := objectsOf(t, got)
	const deployment, config = "Deployment/multicluster-controlplane.spec.", "Secret/controlplane-config.data."
	wantValues(t, objects, map[string]string{
		"Namespace/singleton-controlplane.metadata.name":          "singleton-controlplane",
		"Deployment/multicluster-controlplane.metadata.namespace": "singleton-controlplane",
		deployment + "replicas":                                   "0",
		deployment + "template.metadata.labels.number":            "1",
		deployment + "template.spec.priorityClassName":            "a",
		deployment + "template.spec.nodeSelector":                 `{"n":"1"}`,
		deployment + "template.spec.tolerations":                  `[{"key":"k"}]`,
		deployment + "template.spec.containers.0.image":           "r.example.com/x/capstan-hub:latest",
		deployment + "template.spec.containers.0.args.2":          "--feature-gates=c",
		deployment + "template.spec.containers.0.args.3":          "--tls-cipher-suites=a,b",
	})
	for key, want := range map[string]string{"ca.crt": "A=B", "ca.key": "K,="} {
		secret := objects["Secret/controlplane-config"].(map[string]any)["data"].(map[string]any)
		if content, err := base64.StdEncoding.DecodeString(secret[key].(string)); err != nil || string(content) != want {
			t.Errorf("%s%s is %q, want %q: %v", config, key, content, want, err)
		}
	}
	for flags, says := range map[string][]string{
		"--set a=b":               {"values of chart capstan-hub", "additional properties 'a' not allowed"},
		"--set replicas=2":        {"replicas: 2 replicas need an etcd that they share"},
		"--set-json replicas={":   {"--set-json", "replicas={"},
		"--set-file image=/none/": {"--set-file", "/none/"},
		"--values /none":          {"--values: ", "/none"},
	} {
		h.Run(t, "", append([]string{"init", "--singleton"}, strings.Fields(flags)...)...).Fails(t, says...)
	}
	if n := changes(h); n != 0 {
		t.Errorf("%d changes were made", n)
	}
}

// CA-14: a standalone hub that is installed again keeps the values that are not given now, and its CA; what they do without is deleted.
func TestInitSingletonAgain(t *testing.T) {
	t.Parallel()
	h := newClusterWithVolumes(t)
	const volume = "/api/v1/namespaces/one/persistentvolumeclaims/multicluster-controlplane-pvc-volume"
	const budget = "/apis/policy/v1/namespaces/one/poddisruptionbudgets/multicluster-controlplane"
	const config = "/api/v1/namespaces/one/secrets/controlplane-config"
	initialize := func(flags ...string) (ca string) {
		t.Helper()
		h.Run(t, "", append([]string{"init", "--singleton", "--singleton-name", "one"}, flags...)...).
			Succeeds(t, "The standalone hub one is installed", "one/multicluster-controlplane-kubeconfig")
		secret := corev1.Secret{}
		h.Get(t, config, &secret)
		return string(secret.Data["ca.crt"])
	}
	ca := initialize("--set", "pvc.storageCapacity=5Gi,podDisruptionBudget.enabled=true,apiserver.generateCA=true")
	if !h.Has(budget) || !strings.HasPrefix(ca, "-----BEGIN CERTIFICATE") {
		t.Errorf("the CA is %q; there is a PodDisruptionBudget: %t", ca, h.Has(budget))
	}
	if again := initialize("--set", "podDisruptionBudget.enabled=false"); again != ca || h.Has(budget) {
		t.Errorf("the CA stays: %t; there is a PodDisruptionBudget: %t", again == ca, h.Has(budget))
	}
	claim := corev1.PersistentVolumeClaim{}
	h.Get(t, volume, &claim)
	if got := claim.Spec.Resources.Requests.Storage().String(); got != "5Gi" {
		t.Errorf("the volume has %s", got)
	}
	initialize("--set", "storage.type=emptyDir")
	if !h.Has(volume) {
		t.Error("the volume is deleted")
	}
}

// A standalone hub that is installed again keeps the image that was given; one that was not follows the version of the program.
func TestInitSingletonKeepsTheImage(t *testing.T) {
	t.Parallel()
	const config = "/api/v1/namespaces/one/secrets/controlplane-config"
	overrides := inDir(t)("bundle.json", `{"ocm":"v9"}`)
	own := newClusterWithVolumes(t).Run(t, "", "init", "--singleton", "--dry-run")
	own.Succeeds(t)
	const at0 = "Deployment/multicluster-controlplane.spec.template.spec.containers.0.image"
	ours := at(objectsOf(t, own), at0)
	tag := ours[strings.LastIndex(ours, ":")+1:]
	for name, test := range map[string]struct {
		stored string // by an earlier version, which has kept the image among the values
		runs   []string
		want   string
	}{
		"nothing given":         {runs: []string{"", ""}, want: ours},
		"of an earlier version": {stored: "image: old.example.com/capstan-hub:v0.0.1\nfeatures: a", runs: []string{""}, want: ours},
		"a value":               {runs: []string{"--set image=r/x:1", ""}, want: "r/x:1"},
		"a value, and another":  {runs: []string{"--set image=r/x:1", "--set features=a", "--set image=r/x:2", ""}, want: "r/x:2"},
		"a registry": {runs: []string{"--image-registry r.example.com/a/", "--set features=a"},
			want: "r.example.com/a/capstan-hub:" + tag},
		"a tag": {runs: []string{"--bundle-version-overrides " + overrides, ""}, want: "ghcr.io/capstan-io/capstan-hub:v9"},
		"a registry, then a tag": {runs: []string{"--image-registry r.example.com", "--bundle-version latest", ""},
			want: "r.example.com/capstan-hub:latest"},
		"a tag, then that of the program": {runs: []string{"--bundle-version latest", "--bundle-version default"}, want: ours},
		"a tag that is the program's":     {runs: []string{"--bundle-version latest", "--bundle-version v1.2.0", ""}, want: ours},
		"a registry over a value": {runs: []string{"--set image=r/x:1", "--image-registry r.example.com", ""},
			want: "r.example.com/capstan-hub:" + tag},
		"a value over a registry": {runs: []string{"--image-registry r.example.com --set image=r/x:1", ""}, want: "r/x:1"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := newClusterWithVolumes(t)
			if test.stored != "" {
				put(t, h, map[string]string{config: "Secret"}, map[string]string{
					config: `{"data":{"values.yaml":"` + base64.StdEncoding.EncodeToString([]byte(test.stored)) + `"}}`})
			}
			for _, flags := range test.runs {
				h.Run(t, "", append([]string{"init", "--singleton", "--singleton-name", "one"}, strings.Fields(flags)...)...).Succeeds(t)
			}
			var deployment appsv1.Deployment
			h.Get(t, deploymentsOf+"one/deployments/multicluster-controlplane", &deployment)
			if got := deployment.Spec.Template.Spec.Containers[0].Image; got != test.want {
				t.Errorf("the image is %s, want %s", got, test.want)
			}
			var secret corev1.Secret
			h.Get(t, config, &secret)
			if test.want == ours && strings.Contains(string(secret.Data["values.yaml"])+string(secret.Data["image.yaml"]), tag) {
				t.Errorf("the next version does not take its own image: %s%s", secret.Data["values.yaml"], secret.Data["image.yaml"])
			}
		})
	}
}

// CA-14: what Helm has installed is left alone, unless it is taken over; and so is a cluster without the namespace, if that is not to be
// created.
func TestInitSingletonPreflight(t *testing.T) {
	t.Parallel()
	h := newClusterWithVolumes(t)
	h.Put(t, "/apis/apps/v1/namespaces/one/deployments/multicluster-controlplane", &appsv1.Deployment{
		TypeMeta: metav1.TypeMeta{APIVersion: "apps/v1", Kind: "Deployment"},
		ObjectMeta: metav1.ObjectMeta{Name: "multicluster-controlplane", Namespace: "one",
			Annotations: map[string]string{"meta.helm.sh/release-name": "hub"}},
	})
	h.Run(t, "", "init", "--singleton", "--singleton-name", "one").
		Fails(t, "Deployment one/multicluster-controlplane is kept by Helm (release hub", "--force")
	h.Run(t, "", "init", "--singleton", "--create-namespace=false").Fails(t, "the cluster has no namespace singleton-controlplane")
	if n := changes(h); n != 0 {
		t.Errorf("%d changes were made", n)
	}
	h.Run(t, "", "init", "--singleton", "--singleton-name", "one", "--force").Succeeds(t, "is installed")
}

// CA-14, CA-41: a standalone hub is upgraded under the same rule as others, before anything is changed, unless --force insists.
func TestInitSingletonVersion(t *testing.T) {
	t.Parallel()
	args := []string{"init", "--singleton", "--singleton-name", "one", "--bundle-version-overrides",
		inDir(t)("bundle.json", `{"ocm":"v0.3.0"}`)}
	for running, refused := range map[string]string{
		"other/capstan-hub:v0.1.0": "v0.3.0 skips a minor version", "other/capstan-hub:v0.4.0": "v0.3.0 is older",
		"other/capstan-hub:v0.2.0": "", "other/capstan-hub:v0.3.0": "", "other/y:v0.1.0": "", "other/capstan-hub@sha256:00": "",
	} {
		h := newClusterWithVolumes(t)
		h.Put(t, deploymentsOf+"one/deployments/multicluster-controlplane", &appsv1.Deployment{
			TypeMeta:   metav1.TypeMeta{APIVersion: "apps/v1", Kind: "Deployment"},
			ObjectMeta: metav1.ObjectMeta{Name: "multicluster-controlplane", Namespace: "one"},
			Spec: appsv1.DeploymentSpec{Template: corev1.PodTemplateSpec{
				Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "hub", Image: running}}}}},
		})
		if refused == "" {
			h.Run(t, "", args...).Succeeds(t, "is installed")
			continue
		}
		h.Run(t, "", args...).Fails(t, refused, "use the capstan of that version, or insist with --force")
		if n := changes(h); n != 0 {
			t.Errorf("%s: %d changes were made", running, n)
		}
		h.Run(t, "", append(slices.Clone(args), "--force")...).Succeeds(t, "is installed")
	}
}

// CA-14: the kubeconfig of a standalone hub ends up in a file, with which the command works that is printed.
func TestInitSingleton(t *testing.T) {
	t.Chdir(t.TempDir())
	hub := newHubWithTokens(t)
	kubeconfig, err := os.ReadFile(hub.File)
	if err != nil {
		t.Fatal(err)
	}
	h := newClusterWithVolumes(t)
	h.Put(t, "/apis/apps/v1/namespaces/one/deployments/multicluster-controlplane", &appsv1.Deployment{
		TypeMeta:   metav1.TypeMeta{APIVersion: "apps/v1", Kind: "Deployment"},
		ObjectMeta: metav1.ObjectMeta{Name: "multicluster-controlplane", Namespace: "one"},
		Status:     appsv1.DeploymentStatus{Replicas: 1, UpdatedReplicas: 1, AvailableReplicas: 1},
	})
	h.Put(t, "/api/v1/namespaces/one/secrets/multicluster-controlplane-kubeconfig", &corev1.Secret{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Secret"},
		ObjectMeta: metav1.ObjectMeta{Name: "multicluster-controlplane-kubeconfig", Namespace: "one"},
		Data:       map[string][]byte{"kubeconfig": kubeconfig},
	})
	installed := h.Run(t, "", "init", "--singleton", "--singleton-name", "one", "--wait")
	installed.Succeeds(t)
	h.Follow(t, installed, "--kubeconfig one.kubeconfig get token").Succeeds(t, "capstan join --hub-token t --hub-apiserver "+hub.URL)
	content, err := os.ReadFile("one.kubeconfig")
	if info, statErr := os.Stat("one.kubeconfig"); err != nil || statErr != nil || !bytes.Equal(content, kubeconfig) || info.Mode().Perm() != 0o600 {
		t.Errorf("%q: %v, %v", content, err, statErr)
	}
}

// O17: values that the chart refuses are an error of the command, which changes nothing.
func TestInitRefusesValues(t *testing.T) {
	t.Parallel()
	for values, says := range map[string][]string{
		"images: {tag: 1.3}":                 {"values of chart cluster-manager", "at '/images/tag': got number, want string"},
		"clusterManger: {}":                  {"additional properties 'clusterManger' not allowed"},
		"clusterManager: {mode: Standalone}": {"at '/clusterManager/mode': value must be one of 'Default', 'Hosted'"},
		"[not, values]":                      {"--cluster-manager-values-file"},
	} {
		h := newCluster(t)
		h.Run(t, "", "init", "--cluster-manager-values-file", inDir(t)("values.yaml", values)).Fails(t, says...)
		if n := len(h.Requests("PATCH")) + len(h.Requests("PUT")) + len(h.Requests("DELETE")); n != 0 {
			t.Errorf("%s: %d changes were made", values, n)
		}
	}
}

// CA-20: a cluster that is too old for a hub can be rid of one: its version is not checked.
func TestCleanOldCluster(t *testing.T) {
	t.Parallel()
	h := newCluster(t)
	h.Handle("GET /version", fakehub.JSON(`{"gitVersion":"v1.21.0"}`))
	putOperator(t, h, "cluster-manager", "other/x:v0.1.0", nil)
	for path, kind := range map[string]string{
		"/api/v1/namespaces/open-cluster-management/serviceaccounts": "ServiceAccount",
		"/api/v1/namespaces/open-cluster-management/configmaps":      "ConfigMap",
		"/api/v1/namespaces/open-cluster-management/secrets":         "Secret",
		"/api/v1/namespaces/open-cluster-management/pods":            "Pod",
	} {
		h.Handle("GET "+path, fakehub.JSON(`{"apiVersion":"v1","kind":"`+kind+`List","items":[]}`))
	}
	h.Run(t, "", "clean", "--dry-run").Succeeds(t, "Deployment open-cluster-management/cluster-manager")
}
