package template

import (
	"fmt"

	"k8s.io/apimachinery/pkg/runtime"
)

// objectsIn returns the elements of a list of objects; none if there is no list.
func objectsIn(parent map[string]any, name string) ([]map[string]any, error) {
	if parent[name] == nil {
		return nil, nil
	}
	list, ok := parent[name].([]any)
	if !ok {
		return nil, fmt.Errorf("%s is a %T, not a list", name, parent[name])
	}
	objects := make([]map[string]any, len(list))
	for i := range list {
		if objects[i], ok = list[i].(map[string]any); !ok {
			return nil, fmt.Errorf("%s[%d] is a %T, not an object", name, i, list[i])
		}
	}
	return objects, nil
}

// setNamed puts a copy of an element into a list whose elements have names, in the place of the one that has its name.
func setNamed(parent map[string]any, list string, element map[string]any) error {
	return put(parent, list, element, "name", true)
}

// appendNamed puts a copy of an element at the end of a list, unless one has its name already: what a template brings itself stays.
func appendNamed(parent map[string]any, list string, element map[string]any) error {
	return put(parent, list, element, "name", false)
}

// mount puts a volume at its path, unless the template has put something there itself.
func mount(container, volumeMount map[string]any) error {
	return put(container, "volumeMounts", volumeMount, "mountPath", false)
}

func put(parent map[string]any, name string, element map[string]any, key string, replace bool) error {
	objects, err := objectsIn(parent, name)
	if err != nil {
		return err
	}
	list, _ := parent[name].([]any)
	for i := range objects {
		if objects[i][key] != element[key] {
			continue
		}
		if replace {
			list[i] = runtime.DeepCopyJSON(element)
		}
		return nil
	}
	parent[name] = append(list, runtime.DeepCopyJSON(element))
	return nil
}
