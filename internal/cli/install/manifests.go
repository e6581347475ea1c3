package install

import (
	"bufio"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/yaml"
	sigsyaml "sigs.k8s.io/yaml"
)

// Parse reads the objects of rendered manifests, in their order.
func Parse(manifests string) ([]*unstructured.Unstructured, error) {
	decoder := yaml.NewYAMLOrJSONDecoder(bufio.NewReader(strings.NewReader(manifests)), 4096)
	var objects []*unstructured.Unstructured
	for n := 1; ; n++ {
		object := &unstructured.Unstructured{}
		err := decoder.Decode(&object.Object)
		if errors.Is(err, io.EOF) {
			return objects, nil
		}
		if err != nil {
			return nil, fmt.Errorf("document %d: %w", n, err)
		}
		if len(object.Object) == 0 { // comments alone
			continue
		}
		if object.GetKind() == "" || object.GetName() == "" {
			return nil, fmt.Errorf("document %d: it has no kind or no name", n)
		}
		encodeStringData(object)
		objects = append(objects, object)
	}
}

// encodeStringData moves the stringData of a Secret to data: a server does the same, after it has noted who owns stringData, so a key
// that is not applied again would stay.
func encodeStringData(object *unstructured.Unstructured) {
	texts, found, err := unstructured.NestedStringMap(object.Object, "stringData")
	if !found || err != nil || object.GroupVersionKind() != KindSecret {
		return
	}
	for key, text := range texts {
		_ = unstructured.SetNestedField(object.Object, base64.StdEncoding.EncodeToString([]byte(text)), "data", key)
	}
	unstructured.RemoveNestedField(object.Object, "stringData")
}

// Format writes objects as YAML documents.
func Format(objects []*unstructured.Unstructured) (string, error) {
	var all strings.Builder
	for _, object := range objects {
		content, err := sigsyaml.Marshal(object.Object)
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
