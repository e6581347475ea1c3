package charts

import (
	"context"
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

// Get is called by Helm.
func (l lookup) Get(_ context.Context, name string, _ metav1.GetOptions, _ ...string) (*unstructured.Unstructured, error) {
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
