package installer

import (
	"path"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// rendered are objects by KIND/NAME.
func rendered(t *testing.T, all []*unstructured.Unstructured, err error) map[string]map[string]any {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	objects := map[string]map[string]any{}
	for _, object := range all {
		objects[path.Join(object.GetKind(), object.GetName())] = object.Object
	}
	return objects
}

// CA-10 CA-14 CA-16: nothing says that Helm manages what is installed without it.
func TestNothingIsOfHelm(t *testing.T) {
	t.Parallel()
	hub, err := StandaloneHub{Namespace: "hub", Values: map[string]any{"apiserver": map[string]any{"generateCA": true}}}.Objects()
	if err != nil {
		t.Fatal(err)
	}
	for _, chart := range []string{clusterManagerChart, klusterletChart} {
		values := map[string]any{"createNamespace": true, "createBootstrapToken": true}
		if chart == klusterletChart {
			values = map[string]any{"bootstrapHubKubeConfig": "k", "priorityClassName": "agents"}
		}
		objects, err := Objects(chart, values)
		if err != nil {
			t.Fatal(err)
		}
		if objects[0].GetKind() != "CustomResourceDefinition" {
			t.Errorf("chart %s: the first object is %s %s", chart, objects[0].GetKind(), objects[0].GetName())
		}
		hub = append(hub, objects...)
	}
	for _, object := range hub {
		content, err := object.MarshalJSON()
		if err != nil {
			t.Fatal(err)
		}
		if text := string(content); strings.Contains(text, "helm.sh/") || strings.Contains(text, `"Helm"`) {
			t.Errorf("%s %s is %s", object.GetKind(), object.GetName(), text)
		}
	}
}

// CA-14: flags of the hub are what the values say, whatever YAML would read in them.
func TestFlagsOfHubAreTexts(t *testing.T) {
	t.Parallel()
	values := map[string]any{"features": "A: b # c", "autoApprovalBootstrapUsers": `x: "y"`}
	all, err := StandaloneHub{Namespace: "hub", Values: values}.Objects()
	deployment := rendered(t, all, err)["Deployment/"+StandaloneHubName]
	containers, _, _ := unstructured.NestedSlice(deployment, "spec", "template", "spec", "containers")
	container, _ := containers[0].(map[string]any)
	args, _, _ := unstructured.NestedStringSlice(container, "args")
	for _, want := range []string{"--feature-gates=A: b # c", `--auto-approved-csr-users=x: "y"`} {
		if !slices.Contains(args, want) {
			t.Errorf("%q, want %q among them", args, want)
		}
	}
}

// CA-10: a null value takes away what the chart has, and is nothing where the chart has nothing.
func TestNullValues(t *testing.T) {
	t.Parallel()
	values := map[string]any{"resources": map[string]any{"requests": nil, "limits": map[string]any{"memory": nil}}}
	all, err := Objects(clusterManagerChart, values)
	deployment := rendered(t, all, err)["Deployment/"+clusterManagerChart]
	containers, _, _ := unstructured.NestedSlice(deployment, "spec", "template", "spec", "containers")
	container, _ := containers[0].(map[string]any)
	resources, _, _ := unstructured.NestedMap(container, "resources")
	limits, isMap := resources["limits"].(map[string]any)
	if !isMap || len(limits) > 0 || len(resources) > 1 {
		t.Errorf("resources are %v, want empty limits alone", resources)
	}
}

// CA-14: what a hub has with some values alone is found without them, its volume excepted.
func TestOptional(t *testing.T) {
	t.Parallel()
	all, err := StandaloneHub{Namespace: "hub"}.Optional()
	var kinds []string
	for _, object := range all {
		kinds = append(kinds, object.GetKind())
	}
	slices.Sort(kinds)
	want := []string{"PodDisruptionBudget", "RoleBinding", "Route", "ServiceMonitor"}
	if err != nil || !slices.Equal(kinds, want) {
		t.Errorf("%v, %v, want %v", kinds, err, want)
	}
}
