package installation

import (
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"
)

// Format writes objects as YAML documents.
func Format(objects []*unstructured.Unstructured) (string, error) {
	var all strings.Builder
	for _, object := range objects {
		content, err := yaml.Marshal(object.Object)
		if err != nil {
			return "", fmt.Errorf("%s: %w", ReferenceTo(object), err)
		}
		fmt.Fprintf(&all, "---\n%s", content)
	}
	return all.String(), nil
}

// Find returns the object of a kind and name, nil if there is none.
func Find(objects []*unstructured.Unstructured, kind, name string) *unstructured.Unstructured {
	for _, object := range objects {
		if object.GetKind() == kind && object.GetName() == name {
			return object
		}
	}
	return nil
}
