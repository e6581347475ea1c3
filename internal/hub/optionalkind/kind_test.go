package optionalkind

import (
	"reflect"
	"slices"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// crdServing is an established CustomResourceDefinition of three versions, of which some are served.
func crdServing(versions ...string) *unstructured.Unstructured {
	var all []any
	for _, version := range []string{"v1alpha1", "v1beta1", "v1beta2"} {
		all = append(all, map[string]any{"name": version, "served": slices.Contains(versions, version), "storage": version == "v1beta2"})
	}
	return &unstructured.Unstructured{Object: map[string]any{
		"spec":   map[string]any{"versions": all},
		"status": map[string]any{"conditions": []any{map[string]any{"type": "Established", "status": "True"}}},
	}}
}

// Objects are followed in the version that was found, until another one is served and that is not.
func TestSwitchVersion(t *testing.T) {
	t.Parallel()
	var calls []string
	s := &switcher{Options: Options{Versions: []string{"v1beta2", "v1beta1"}}, follow: func(version string) func() {
		calls = append(calls, "follow "+version)
		return func() { calls = append(calls, "end "+version) }
	}}
	notEstablished := crdServing("v1beta1")
	delete(notEstablished.Object, "status")
	for _, step := range []struct {
		name string
		crd  *unstructured.Unstructured
		want []string
	}{
		{"not established", notEstablished, nil},
		{"in a version that cannot be read", crdServing("v1alpha1"), nil},
		{"in one that can", crdServing("v1alpha1", "v1beta1"), []string{"follow v1beta1"}},
		{"in a better one, too", crdServing("v1beta1", "v1beta2"), nil},
		{"in the better one alone", crdServing("v1beta2"), []string{"end v1beta1", "follow v1beta2"}},
		{"in none", crdServing("v1alpha1"), nil},
		{"in the first one again", crdServing("v1beta1"), []string{"end v1beta2", "follow v1beta1"}},
	} {
		calls = nil
		s.see(step.crd)
		if !slices.Equal(calls, step.want) {
			t.Errorf("%s: %q, want %q", step.name, calls, step.want)
		}
	}
}

// The cache has what is read of a CustomResourceDefinition.
func TestWithoutSchemas(t *testing.T) {
	t.Parallel()
	crd := crdServing("v1beta1")
	versions, found, err := unstructured.NestedSlice(crd.Object, "spec", "versions")
	if err != nil || !found {
		t.Fatal(found, err)
	}
	for _, version := range versions {
		if of, ok := version.(map[string]any); ok {
			of["schema"] = map[string]any{"openAPIV3Schema": map[string]any{"type": "object"}}
		}
	}
	if err := unstructured.SetNestedSlice(crd.Object, versions, "spec", "versions"); err != nil {
		t.Fatal(err)
	}
	kept, err := withoutSchemas(crd)
	if err != nil || !reflect.DeepEqual(kept, crdServing("v1beta1")) {
		t.Errorf("kept %v, %v", kept, err)
	}
}
