// Package documents reads the objects that templates of add-ons yield.
package documents

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/json"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"
)

// Objects are those of a file of YAML documents, in their order, with those of lists in the place of the list. The file's name is for
// errors, which also give the number of the document.
func Objects(file string, text []byte) ([]client.Object, error) {
	var objects []client.Object
	reader := utilyaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(text)))
	for number := 1; ; number++ {
		document, err := reader.Read()
		if errors.Is(err, io.EOF) {
			return objects, nil
		}
		var found []client.Object
		if err == nil {
			found, err = decode(document)
		}
		if err != nil {
			return nil, fmt.Errorf("%s, document %d: %w", file, number, err)
		}
		objects = append(objects, found...)
	}
}

func decode(document []byte) ([]client.Object, error) {
	text, err := yaml.YAMLToJSON(document)
	if err != nil {
		return nil, err
	}
	if string(text) == "null" {
		return nil, nil // nothing but comments
	}
	object := &unstructured.Unstructured{}
	if err := json.Unmarshal(text, &object.Object); err != nil {
		return nil, fmt.Errorf("it is no object of Kubernetes: %w", err)
	}
	if object.GetAPIVersion() == "" || object.GetKind() == "" {
		return nil, errors.New("it is no object of Kubernetes: apiVersion or kind is missing")
	}
	if !object.IsList() {
		return []client.Object{object}, nil
	}
	var objects []client.Object
	err = object.EachListItem(func(item runtime.Object) error {
		element, ok := item.(client.Object)
		if !ok {
			return fmt.Errorf("the list holds a %T", item)
		}
		objects = append(objects, element)
		return nil
	})
	return objects, err
}
