package charts

import (
	"context"
	"encoding/base64"
	"reflect"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"

	"github.com/capstan-io/capstan/internal/machinery/fleet"
)

// existing are the objects of a cluster, which templates look up.
type existing []unstructured.Unstructured

// GetClientFor is called by Helm.
func (e existing) GetClientFor(apiVersion, kind string) (dynamic.NamespaceableResourceInterface, bool, error) {
	return lookup{all: e, apiVersion: apiVersion, kind: kind}, true, nil
}

// lookup reads the objects of a kind, in all namespaces or in one. Templates do nothing else with them.
type lookup struct {
	dynamic.ResourceInterface

	all                         existing
	apiVersion, kind, namespace string
}

// Namespace is called by Helm.
func (l lookup) Namespace(namespace string) dynamic.ResourceInterface {
	l.namespace = namespace
	return l
}

// Get is called by Helm. Every cluster has the namespace kube-system.
func (l lookup) Get(_ context.Context, name string, _ metav1.GetOptions, _ ...string) (*unstructured.Unstructured, error) {
	if l.apiVersion == "v1" && l.kind == "Namespace" && name == metav1.NamespaceSystem {
		return &unstructured.Unstructured{Object: map[string]any{"metadata": map[string]any{"name": name}}}, nil
	}
	at := slices.IndexFunc(l.all, func(o unstructured.Unstructured) bool {
		return o.GetAPIVersion() == l.apiVersion && o.GetKind() == l.kind && o.GetNamespace() == l.namespace && o.GetName() == name
	})
	if at < 0 {
		return nil, apierrors.NewNotFound(schema.GroupResource{Resource: l.kind}, name)
	}
	return &l.all[at], nil
}

// ofRelease is an object as Helm marks it.
func ofRelease(t *testing.T, name, namespace, object string) unstructured.Unstructured {
	t.Helper()
	marked := parse(t, "object", object)[0]
	marked.SetAnnotations(map[string]string{"meta.helm.sh/release-name": name, "meta.helm.sh/release-namespace": namespace})
	return marked
}

const resourcePolicy = "helm.sh/resource-policy"

// HC-03: the bootstrap token that is there stays, unless the values give one.
func TestBootstrapToken(t *testing.T) {
	t.Parallel()
	const there, given, name = "there56789abcdef", "given56789abcdef", "kube-system/bootstrap-token-ocmhub"
	secret := existing(parse(t, "secret", "{apiVersion: v1, kind: Secret, metadata: {namespace: kube-system, name: bootstrap-token-ocmhub}, "+
		"data: {token-secret: "+base64.StdEncoding.EncodeToString([]byte(there))+"}}"))
	for values, want := range map[string]string{
		"createBootstrapToken: true": there, "{createBootstrapToken: true, bootstrapTokenSecret: " + given + "}": given,
	} {
		release := install("cluster-manager", values)
		release.there = secret
		if got := string(get[corev1.Secret](t, release.objects(t), "Secret/"+name).Data["token-secret"]); got != want {
			t.Errorf("%s: the token is %q, want %q", values, got, want)
		}
	}
}

// HC-03 SC-24: without access to the cluster, a chart cannot see what it has made at random before, so it makes nothing at random: that
// would replace the token that clusters join with, or the CA that agents trust.
func TestWithoutCluster(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ chart, values, refused string }{
		{"cluster-manager", "createBootstrapToken: true", "createBootstrapToken: true: without access to the cluster, as in `helm template` " +
			"and Argo CD, the token would be another one each time: set bootstrapTokenSecret to 16 lower-case letters and digits"},
		{"cluster-manager", "{createBootstrapToken: true, bootstrapTokenSecret: 0123456789abcdef}", ""},
		{"cluster-manager", "createBootstrapSA: true", ""},
		{"capstan-hub", "apiserver: {generateCA: true}", "apiserver.generateCA: true: without access to the cluster, as in `helm template` and " +
			"Argo CD, the CA would be another one each time, which no agent trusts: set apiserver.ca and apiserver.cakey"},
		{"capstan-hub", "apiserver: {generateCA: true, ca: CERT, cakey: KEY}", ""},
		{"capstan-hub", "", ""},
		{"cluster-gateway-addon-manager", "manualSecretManagement: false", ""},
		{"cluster-proxy", "", ""},
		{"klusterlet", "bootstrapHubKubeConfig: k", ""},
		{"managed-serviceaccount", "", ""},
		{"resource-usage-collect-addon", "", ""},
	} {
		release := install(test.chart, test.values)
		release.offline = true
		if test.refused != "" {
			if got := release.fails(t); !strings.Contains(got, test.refused) {
				t.Errorf("chart %s with %s fails with %q, want %q", test.chart, test.values, got, test.refused)
			}
			continue
		}
		if first, second := release.objects(t), release.objects(t); !reflect.DeepEqual(first, second) {
			t.Errorf("chart %s with %s differs each time: %v and %v", test.chart, test.values, first, second)
		}
	}
}

// MS-08: an upgrade that enables the add-on nowhere keeps the strategy Manual of a former chart, with which the hub removes nothing.
func TestManualStrategyStays(t *testing.T) {
	t.Parallel()
	const chart, strategy = "managed-serviceaccount", "/spec/installStrategy/type"
	for _, test := range []struct{ there, values, want string }{
		{"Manual", "agentInstallAll: false", "Manual"},
		{"Manual", "{agentInstallAll: false, targetCluster: c1}", "Placements"},
		{"Manual", "", "Placements"},
		{"Placements", "agentInstallAll: false", "Placements"},
		{"", "agentInstallAll: false", "Placements"},
	} {
		release := install(chart, test.values)
		if test.there != "" {
			release.there = existing(parse(t, "add-on", "{apiVersion: addon.open-cluster-management.io/v1beta1, kind: ClusterManagementAddOn, "+
				`metadata: {name: `+chart+`, annotations: {capstan.io/built-in: "true"}}, spec: {installStrategy: {type: `+test.there+`}}}`))
		}
		if got := at(release.objects(t), "ClusterManagementAddOn/"+chart, strategy); got != test.want {
			t.Errorf("%q with the strategy %q: it is %v, want %s", test.values, test.there, got, test.want)
		}
	}
}

// HC-06: the PriorityClass and the namespace of agents stay with them when the chart is uninstalled, and are left to whoever has them.
func TestWhatAgentsNeedStays(t *testing.T) {
	t.Parallel()
	const class, namespace = "PriorityClass/agents", "Namespace/open-cluster-management-agent"
	release := install("klusterlet", "{priorityClassName: agents, bootstrapHubKubeConfig: k}")
	for owner, rendered := range map[string]bool{
		"": true, "klusterlet open-cluster-management": true, "another open-cluster-management": false, "klusterlet elsewhere": false,
	} {
		release.there = nil
		if name, in, owned := strings.Cut(owner, " "); owned {
			release.there = existing{
				ofRelease(t, name, in, "{apiVersion: scheduling.k8s.io/v1, kind: PriorityClass, metadata: {name: agents}}"),
				ofRelease(t, name, in, "{apiVersion: v1, kind: Namespace, metadata: {name: open-cluster-management-agent}}"),
			}
		}
		objects := release.objects(t)
		for _, name := range []string{class, namespace} {
			if got := slices.Contains(objects.names(), name); got != rendered {
				t.Errorf("owned by %q, %s is rendered: %v", owner, name, got)
			}
			if policy := at(objects, name, "/metadata/annotations/helm.sh~1resource-policy"); rendered && policy != "keep" {
				t.Errorf("owned by %q, the policy of %s is %v", owner, name, policy)
			}
		}
	}
}

// HC-02 HC-06: the operators of hub and agents share the password of the registry in their namespace. The release that has it changes it,
// and it stays for the other. An upgrade does not leave out, and so delete, one that has lost what Helm writes.
func TestPullSecretIsShared(t *testing.T) {
	t.Parallel()
	const secret = "{apiVersion: v1, kind: Secret, metadata: {name: " + fleet.SecretImagePullCredentials + ", namespace: " +
		fleet.NamespaceOperators + "}}"
	for _, chart := range []string{"cluster-manager", "klusterlet"} {
		for name, test := range map[string]struct {
			there    existing
			rendered bool
		}{
			"none":                           {rendered: true},
			"of this release":                {existing{ofRelease(t, chart, fleet.NamespaceOperators, secret)}, true},
			"of another":                     {existing{ofRelease(t, "another", fleet.NamespaceOperators, secret)}, false},
			"of no release, as written anew": {existing(parse(t, "secret", secret)), true},
		} {
			release := install(chart, "images: {imageCredentials: {createImageCredentials: true, userName: me, password: new}}")
			release.there = test.there
			files, err := release.files(t)
			if err != nil {
				t.Fatal(err)
			}
			objects, object := release.objects(t), "Secret/"+fleet.NamespaceOperators+"/"+fleet.SecretImagePullCredentials
			if got := slices.Contains(objects.names(), object); got != test.rendered {
				t.Errorf("chart %s renders the Secret, of which there is one %s: %v", chart, name, got)
			}
			if test.rendered {
				if made := get[corev1.Secret](t, objects, object); made.Annotations[resourcePolicy] != "keep" ||
					!strings.Contains(string(made.Data[corev1.DockerConfigJsonKey]), `"password":"new"`) {
					t.Errorf("chart %s, with one %s, renders %+v", chart, name, made)
				}
			}
			if said := strings.Contains(files["NOTES.txt"], "images.imageCredentials changes nothing"); said == test.rendered {
				t.Errorf("chart %s, with one %s: the notes are\n%s", chart, name, files["NOTES.txt"])
			}
		}
	}
}

// HC-08 HC-09 HC-10: the charts of add-ons upgrade no release of Open Cluster Management, of which they could change a part alone, but
// their own.
func TestAddOnsOfAnotherManager(t *testing.T) {
	t.Parallel()
	for chart, name := range map[string]string{
		"cluster-gateway-addon-manager": "cluster-gateway", "cluster-proxy": "cluster-proxy", "managed-serviceaccount": "managed-serviceaccount",
	} {
		addOn := "apiVersion: addon.open-cluster-management.io/v1beta1, kind: ClusterManagementAddOn, metadata: {name: " + name
		for owner, test := range map[string]struct {
			there existing
			want  string
		}{
			"of a release": {existing{ofRelease(t, "theirs", "there", "{"+addOn+"}}")},
				"ClusterManagementAddOn " + name + " is of another manager, such as that of Open Cluster Management: uninstall its release first, " +
					"helm uninstall theirs -n there; "},
			"of no release": {existing(parse(t, "add-on", "{"+addOn+"}}")), "helm uninstall " + name + " -n open-cluster-management-addon; "},
			"ours":          {existing(parse(t, "add-on", "{"+addOn+`, annotations: {capstan.io/built-in: "true"}}}`)), ""},
			"none":          {},
		} {
			release := install(chart, "")
			release.there = test.there
			_, err := release.files(t)
			if test.want == "" && err != nil || test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want)) {
				t.Errorf("chart %s with the add-on %s: %v, want %q", chart, owner, err, test.want)
			}
		}
	}
	for chart, test := range map[string]struct{ deployment, label string }{
		"cluster-gateway-addon-manager": {"cluster-gateway-addon-manager", "app.kubernetes.io/name: cluster-gateway-addon-manager"},
		"managed-serviceaccount":        {"managed-serviceaccount-addon-manager", "app: managed-serviceaccount"},
	} {
		deployment := "apiVersion: apps/v1, kind: Deployment, metadata: {name: " + test.deployment +
			", namespace: open-cluster-management-addon}, spec: {selector: {matchLabels: "
		release := install(chart, "")
		release.there = existing(parse(t, "deployment", "{"+deployment+"{open-cluster-management.io/addon: theirs}}}}"))
		if got, want := release.fails(t), "Deployment "+test.deployment+" is of another manager"; !strings.Contains(got, want) {
			t.Errorf("%q, want %q", got, want)
		}
		release.there = existing(parse(t, "deployment", "{"+deployment+"{"+test.label+"}}}}"))
		release.objects(t)
	}
}
