package manifests_test

import (
	"context"
	"embed"
	"fmt"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capstan-io/capstan/addon"
	"github.com/capstan-io/capstan/addon/addontest"
	"github.com/capstan-io/capstan/addon/manifests"
	"github.com/capstan-io/capstan/addon/values"
)

//go:embed testdata
var files embed.FS

func field(t *testing.T, object client.Object, path ...string) any {
	t.Helper()
	value, _, err := unstructured.NestedFieldNoCopy(object.(*unstructured.Unstructured).Object, path...)
	if err != nil {
		t.Fatal(err)
	}
	return value
}

// AF-19
func TestRender(t *testing.T) {
	t.Parallel()
	templates, err := manifests.Parse(files, "testdata/rbac.yaml", "testdata/*.yaml")
	if err != nil {
		t.Fatal(err)
	}
	installation := addontest.Installation("cluster1", "hello")
	given := values.Values{"Image": "quay.io/acme/agent:v1", "LogLevel": 4, "ClusterName": "not-overridden", "HubKubeConfigSecret": "mine",
		"NodeSelector": map[string]string{"host": `a "disk"`}}
	objects, err := templates.Render(installation, given)
	if err != nil {
		t.Fatal(err)
	}
	var kinds []string
	for _, object := range objects {
		kinds = append(kinds, object.GetObjectKind().GroupVersionKind().Kind)
	}
	if diff := cmp.Diff([]string{"Deployment", "ServiceAccount", "Secret"}, kinds); diff != "" {
		t.Fatal(diff)
	}
	pod := field(t, objects[0], "spec", "template", "spec").(map[string]any)
	if diff := cmp.Diff([]any{"--cluster=cluster1", "--log-level=4"}, pod["containers"].([]any)[0].(map[string]any)["args"]); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(map[string]any{"host": `a "disk"`}, pod["nodeSelector"]); diff != "" {
		t.Error(diff)
	}
	if got := objects[0].GetNamespace(); got != "open-cluster-management-agent-addon" {
		t.Errorf("in namespace %q", got)
	}
	if got := field(t, objects[2], "stringData", "name"); got != "mine" {
		t.Errorf("the default could not be overridden: %v", got)
	}

	installation.HostingCluster = "hosting"
	delete(given, "NodeSelector")
	delete(given, "HubKubeConfigSecret")
	if objects, err = templates.Render(installation, given); err != nil || len(objects) != 4 {
		t.Fatalf("hosted: %d objects, %v", len(objects), err)
	}
	if got := []any{field(t, objects[1], "data", "kubeconfig"),
		field(t, objects[3], "stringData", "name")}; got[0] != "hello-managed-kubeconfig" || got[1] != "hello-hub-kubeconfig" {
		t.Errorf("secrets %v", got)
	}
}

// Errors name the file, and what is wrong in it.
func TestErrors(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ name, text, want string }{
		{"no template", "{{ if }}", "parse the template: template: a.yaml:1: missing value for if"},
		{"missing value", "a: b\nc: {{ .Missing }}", "render the template a.yaml: a value is missing in what is line 2 of the result"},
		{"no YAML", "kind: [", "render the template a.yaml, document 1: "},
		{"no object", "- a", "render the template a.yaml, document 1: it is no object of Kubernetes"},
		{"no kind", "apiVersion: v1\nkind: A\n---\na: b",
			"render the template a.yaml, document 2: it is no object of Kubernetes: apiVersion or kind is missing"},
		{"wrong call", "{{ index .ClusterName 99 }}", "render the template: template: a.yaml:1:3:"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			templates, err := manifests.Parse(fstest.MapFS{"a.yaml": {Data: []byte(test.text)}}, "*.yaml")
			if err == nil {
				_, err = templates.Render(addontest.Installation("cluster1", "hello"), nil)
			}
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("%v, want %s", err, test.want)
			}
		})
	}
	if _, err := manifests.Parse(files, "nowhere/*.yaml"); err == nil || err.Error() != "no template matches nowhere/*.yaml" {
		t.Error(err)
	}
}

// hello is an add-on made of embedded templates.
type hello struct{ templates *manifests.Templates }

func (h hello) Options() addon.Options { return addon.Options{Name: "hello"} }

func (h hello) Manifests(ctx context.Context, installation addon.Installation) (*addon.Workload, error) {
	given, err := values.Collect(ctx, installation, defaults, values.FromAnnotation)
	if err != nil {
		return nil, err
	}
	objects, err := h.templates.Render(installation, given)
	return &addon.Workload{Objects: objects}, err
}

func defaults(context.Context, addon.Installation) (values.Values, error) {
	return values.Values{"Image": "quay.io/acme/agent:v1", "LogLevel": 2}, nil
}

func ExampleTemplates() {
	templates, err := manifests.Parse(files, "testdata/*.yaml")
	if err != nil {
		panic(err)
	}
	installation := addontest.Installation("cluster1", "hello") // of the add-on hello on cluster1
	installation.AddOn.Annotations = map[string]string{values.Annotation: `{"LogLevel": 4}`}

	workload, err := hello{templates}.Manifests(context.Background(), installation)
	if err != nil {
		panic(err)
	}
	for _, object := range workload.Objects {
		fmt.Println(object.GetObjectKind().GroupVersionKind().Kind, object.GetNamespace(), object.GetName())
	}
	// Output:
	// Deployment open-cluster-management-agent-addon hello-agent
	// ServiceAccount open-cluster-management-agent-addon hello-agent
	// Secret open-cluster-management-agent-addon refers-to
}
