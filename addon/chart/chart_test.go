package chart_test

import (
	"context"
	"embed"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capstan-io/capstan/addon"
	"github.com/capstan-io/capstan/addon/addontest"
	"github.com/capstan-io/capstan/addon/chart"
	"github.com/capstan-io/capstan/addon/values"
	clusterv1 "github.com/capstan-io/capstan/api/cluster/v1"
)

//go:embed all:testdata/hello
var files embed.FS

func load(t *testing.T) *chart.Chart {
	t.Helper()
	c, err := chart.Load(files, "testdata/hello")
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func names(objects []client.Object) (names []string) {
	for _, object := range objects {
		names = append(names, object.GetObjectKind().GroupVersionKind().Kind+" "+object.GetName())
	}
	return names
}

// AF-18
func TestRender(t *testing.T) {
	t.Parallel()
	installation := addontest.Installation("cluster1", "hello")
	installation.AddOn.Status.Namespace = "hello-system"
	installation.Cluster.Status.Version.Kubernetes = "v1.30.3+k3s1"
	objects, err := load(t).Render(installation, values.Values{"logLevel": 4, "clusterName": "not-overridden", "hubKubeConfigSecret": "mine",
		"global": values.Values{"nodeSelector": values.Values{"host": "ssd"}}})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"CustomResourceDefinition greetings.example.com", "Deployment hello-agent", "Job clean-up",
		"ConfigMap first"}, names(objects)); diff != "" {
		t.Fatal(diff)
	}
	want := map[string]string{"cluster": "cluster1", "namespace": "hello-system", "mode": "Default",
		"secrets": "mine hello-managed-kubeconfig", "kubernetes": "v1.30.3+k3s1"}
	if diff := cmp.Diff(want, objects[1].GetAnnotations()); diff != "" || objects[1].GetNamespace() != "hello-system" {
		t.Errorf("%s in %q", diff, objects[1].GetNamespace())
	}
	pod, _, _ := unstructured.NestedMap(objects[1].(*unstructured.Unstructured).Object, "spec", "template", "spec")
	if diff := cmp.Diff(map[string]any{"nodeSelector": map[string]any{"host": "ssd"},
		"containers": []any{map[string]any{"name": "agent", "image": "quay.io/acme/agent:v1", "args": []any{"--log-level=4"}}}},
		pod); diff != "" {
		t.Error(diff)
	}
	if _, hook := objects[2].GetAnnotations()["addon.open-cluster-management.io/addon-pre-delete"]; !hook {
		t.Errorf("the hook is annotated with %v", objects[2].GetAnnotations())
	}
}

// AF-15, AF-18: what Helm runs after the installation and before the deletion runs twice, and what does not run is there at both times.
func TestHooksForTwoTimes(t *testing.T) {
	t.Parallel()
	hook := func(apiVersion, kind, name, times string) string {
		return fmt.Sprintf("---\n{apiVersion: %s, kind: %s, metadata: {name: %s, annotations: {helm.sh/hook: %q}}}\n", apiVersion, kind, name, times)
	}
	c, err := chart.Load(fstest.MapFS{
		"Chart.yaml": {Data: []byte("{apiVersion: v2, name: hello, version: 0.1.0}")},
		"templates/a.yaml": {Data: []byte(hook("batch/v1", "Job", "both", "post-install,post-upgrade,pre-delete") +
			hook("v1", "Pod", "pod", "pre-delete, pre-install") + hook("v1", "ServiceAccount", "account", "pre-install,pre-delete") +
			hook("batch/v1", "Job", "first", "pre-install") + hook("batch/v1", "Job", "last", "pre-delete") +
			hook("example.com/v1", "Job", "other", "pre-install,pre-delete") + hook("batch/v1", "Job", "never", "post-upgrade"))},
	}, ".")
	if err != nil {
		t.Fatal(err)
	}
	objects, err := c.Render(addontest.Installation("cluster1", "hello"), nil)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, object := range objects {
		name := object.GetObjectKind().GroupVersionKind().Kind + " " + object.GetName()
		if _, preDelete := object.GetAnnotations()["addon.open-cluster-management.io/addon-pre-delete"]; preDelete {
			name += ", before the deletion"
		}
		got = append(got, name)
	}
	want := []string{"Job both", "Job both-pre-delete, before the deletion", "Pod pod", "Pod pod-pre-delete, before the deletion",
		"ServiceAccount account", "Job first", "Job last, before the deletion", "Job other"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// AF-15, AF-18: the second name of a hook is one that a Job may have, and another for each hook.
func TestLongHooksForTwoTimes(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]string{
		strings.Repeat("a", 52):                                 strings.Repeat("a", 52) + "-pre-delete",
		strings.Repeat("a", 53):                                 strings.Repeat("a", 43) + "-e4fa9d58-pre-delete",
		strings.Repeat("a", 42) + "." + strings.Repeat("b", 20): strings.Repeat("a", 42) + "-1f22abc3-pre-delete",
	} {
		c, err := chart.Load(fstest.MapFS{"Chart.yaml": {Data: []byte("{apiVersion: v2, name: hello, version: 0.1.0}")},
			"templates/a.yaml": {Data: []byte("{apiVersion: batch/v1, kind: Job, metadata: {name: " + name +
				", annotations: {helm.sh/hook: 'post-install,pre-delete'}}}")}}, ".")
		if err != nil {
			t.Fatal(err)
		}
		objects, err := c.Render(addontest.Installation("cluster1", "hello"), nil)
		if err != nil || len(objects) != 2 || objects[1].GetName() != want {
			t.Errorf("%s: %v, %v, want %s", name, objects, err, want)
		}
	}
}

// AF-18: a chart decides by values which of those it depends on are there, on each cluster again.
func TestDependencies(t *testing.T) {
	t.Parallel()
	c := load(t)
	var group sync.WaitGroup
	for i := range 8 {
		group.Go(func() {
			enabled := i%2 == 0
			objects, err := c.Render(addontest.Installation("cluster1", "hello"),
				values.Values{"sub": values.Values{"enabled": enabled, "who": "world"}})
			if got := strings.Contains(fmt.Sprint(names(objects)), "ConfigMap sub"); err != nil || got != enabled {
				t.Errorf("enabled %t: %v, %v", enabled, names(objects), err)
			}
		})
	}
	group.Wait()
}

// AF-18
func TestTrimCRDDescriptions(t *testing.T) {
	t.Parallel()
	c := load(t)
	c.TrimCRDDescriptions = true
	objects, err := c.Render(addontest.Installation("cluster1", "hello"), nil)
	if err != nil {
		t.Fatal(err)
	}
	versions, _, _ := unstructured.NestedSlice(objects[0].(*unstructured.Unstructured).Object, "spec", "versions")
	want := []any{map[string]any{"name": "v1",
		"schema": map[string]any{"openAPIV3Schema": map[string]any{"type": "object", "properties": map[string]any{
			"description": map[string]any{"type": "string", "default": "description"},
			"list":        map[string]any{"type": "array", "items": map[string]any{"type": "string"}},
		}}}}}
	if diff := cmp.Diff(want, versions); diff != "" {
		t.Error(diff)
	}
}

// AF-18: the version of the hosting cluster.
func TestHostingCapabilities(t *testing.T) {
	t.Parallel()
	hosting := &clusterv1.ManagedCluster{ObjectMeta: metav1.ObjectMeta{Name: "hosting"}}
	hosting.Status.Version.Kubernetes = "v1.31.0"
	source := chart.HostingCapabilities(addontest.Client(hosting))
	installation := addontest.Installation("cluster1", "hello")
	if got, err := source(t.Context(), installation); got != nil || err != nil {
		t.Errorf("not hosted: %v, %v", got, err)
	}
	installation.HostingCluster = "hosting"
	given, err := source(t.Context(), installation)
	if err != nil {
		t.Fatal(err)
	}
	objects, err := load(t).Render(installation, given)
	if err != nil {
		t.Fatal(err)
	}
	if got := objects[1].GetAnnotations(); got["hosting"] != "v1.31.0" || got["mode"] != "Hosted" {
		t.Errorf("%v", got)
	}
	installation.HostingCluster = "missing"
	if _, err := source(t.Context(), installation); err == nil || !strings.Contains(err.Error(), `read the hosting cluster "missing"`) {
		t.Error(err)
	}
}

// AF-18: Helm puts objects that say no namespace into that of the release.
func TestNamespaces(t *testing.T) {
	t.Parallel()
	object := func(apiVersion, kind, name string) string {
		return fmt.Sprintf("---\n{apiVersion: %s, kind: %s, metadata: {name: %s}}\n", apiVersion, kind, name)
	}
	definition := func(kind, scope string) string {
		return fmt.Sprintf("---\n{apiVersion: apiextensions.k8s.io/v1, kind: CustomResourceDefinition, metadata: {name: %[1]s}, spec: {group: example.com, scope: %[2]s, names: {kind: %[1]s}}}\n", kind, scope)
	}
	c, err := chart.Load(fstest.MapFS{
		"Chart.yaml":     {Data: []byte("{apiVersion: v2, name: hello, version: 0.1.0}")},
		"crds/crds.yaml": {Data: []byte(definition("Inside", "Namespaced") + definition("Outside", "Cluster"))},
		"templates/a.yaml": {Data: []byte("{apiVersion: v1, kind: ConfigMap, metadata: {name: elsewhere, namespace: kube-system}}\n" +
			object("apps/v1", "Deployment", "agent") + object("autoscaling/v2", "HorizontalPodAutoscaler", "agent") +
			object("rbac.authorization.k8s.io/v1", "ClusterRole", "agent") + object("v1", "Namespace", "agent") +
			object("example.com/v1", "Inside", "a") + object("example.com/v1", "Outside", "a") + object("example.org/v1", "Unknown", "a"))},
	}, ".")
	if err != nil {
		t.Fatal(err)
	}
	installation := addontest.Installation("cluster1", "hello")
	installation.AddOn.Status.Namespace = "hello"
	objects, err := c.Render(installation, nil)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, object := range objects[2:] {
		got = append(got, object.GetObjectKind().GroupVersionKind().Kind+" in "+object.GetNamespace())
	}
	want := []string{"ConfigMap in kube-system", "Deployment in hello", "HorizontalPodAutoscaler in hello", "ClusterRole in ", "Namespace in ",
		"Inside in hello", "Outside in ", "Unknown in "}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// AF-18: files that the chart wants to be ignored are.
func TestIgnore(t *testing.T) {
	t.Parallel()
	c, err := chart.Load(fstest.MapFS{
		"Chart.yaml": {Data: []byte("{apiVersion: v2, name: hello, version: 0.1.0}")}, ".helmignore": {Data: []byte("*.bak\nold/\n")},
		"templates/a.yaml.bak": {Data: []byte("{{ broken")}, "templates/old/a.yaml": {Data: []byte("{{ broken")},
		"templates/.a.yaml.swp": {Data: []byte("{{ broken")},
		"templates/a.yaml":      {Data: []byte("{apiVersion: v1, kind: ConfigMap, metadata: {name: a}}")},
	}, ".")
	if err != nil {
		t.Fatal(err)
	}
	if objects, err := c.Render(addontest.Installation("cluster1", "hello"), nil); err != nil || len(objects) != 1 {
		t.Errorf("%v, %v", names(objects), err)
	}
}

//go:embed testdata/hello
var withoutHelpers embed.FS

//go:embed testdata/selfcontained
var selfContained embed.FS

// AF-18: what Go leaves out of an embedded chart is missed at once, and not on the first cluster.
func TestEmbedded(t *testing.T) {
	t.Parallel()
	if _, err := chart.Load(withoutHelpers, "testdata/hello"); err == nil ||
		!strings.Contains(err.Error(),
			`templates/deployment.yaml includes "hello.name", which no file defines: embed the chart with //go:embed all:`) {
		t.Error(err)
	}
}

// AF-18: a template may be defined in every way that Go knows, and a comment includes none.
func TestDefinitions(t *testing.T) {
	t.Parallel()
	if _, err := chart.Load(selfContained, "testdata/selfcontained"); err != nil {
		t.Error(err)
	}
}

// Errors name the chart and the file.
func TestErrors(t *testing.T) {
	t.Parallel()
	broken := func(template string) fstest.MapFS {
		return fstest.MapFS{"Chart.yaml": {Data: []byte("{apiVersion: v2, name: broken, version: 0.1.0}")},
			"templates/a.yaml": {Data: []byte(template)}}
	}
	for _, test := range []struct {
		name, want string
		files      fstest.MapFS
		strict     bool
	}{
		{name: "no chart", files: fstest.MapFS{"values.yaml": {Data: []byte("{}")}}, want: "load the chart .: Chart.yaml file is missing"},
		{name: "not valid", files: fstest.MapFS{"Chart.yaml": {Data: []byte("{apiVersion: v2, name: broken}")}}, want: "load the chart .: "},
		{name: "no template", files: broken("{{ if }}"), want: "render the chart broken: "},
		{name: "no object", files: broken("a: b"),
			want: "render the chart broken: broken/templates/a.yaml, document 1: it is no object of Kubernetes"},
		{name: "missing value", files: broken("a: {{ .Values.a.b }}"), want: "render the chart broken: "},
		{name: "missing value, strict", files: broken("a: {{ .Values.a }}"), strict: true, want: `render the chart broken: `},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			c, err := chart.Load(test.files, ".")
			if err == nil {
				c.Strict = test.strict
				_, err = c.Render(addontest.Installation("cluster1", "hello"), nil)
			}
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("%v, want %s", err, test.want)
			}
		})
	}
	if _, err := chart.Load(files, "nowhere"); err == nil || !strings.Contains(err.Error(), "read the chart nowhere") {
		t.Error(err)
	}
	installation := addontest.Installation("cluster1", "hello")
	installation.Cluster.Status.Version.Kubernetes = "new"
	if _, err := load(t).Render(installation, nil); err == nil ||
		!strings.Contains(err.Error(), `the Kubernetes version "new" of ManagedCluster "cluster1"`) {
		t.Error(err)
	}
}

// hello is an add-on made of an embedded chart.
type hello struct{ chart *chart.Chart }

func (h hello) Options() addon.Options { return addon.Options{Name: "hello"} }

func (h hello) Manifests(ctx context.Context, installation addon.Installation) (*addon.Workload, error) {
	given, err := values.Collect(ctx, installation, values.FromAnnotation)
	if err != nil {
		return nil, err
	}
	objects, err := h.chart.Render(installation, given)
	return &addon.Workload{Objects: objects}, err
}

func ExampleChart() {
	c, err := chart.Load(os.DirFS("testdata"), "hello") // or an embed.FS
	if err != nil {
		panic(err)
	}
	workload, err := hello{c}.Manifests(context.Background(), addontest.Installation("cluster1", "hello"))
	if err != nil {
		panic(err)
	}
	for _, object := range workload.Objects {
		fmt.Println(object.GetObjectKind().GroupVersionKind().Kind, object.GetName())
	}
	// Output:
	// CustomResourceDefinition greetings.example.com
	// Deployment hello-agent
	// Job clean-up
	// ConfigMap first
}
