package chart

import (
	"fmt"
	"hash/fnv"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capstan-io/capstan/internal/machinery/fleet"
)

// annotationHook is Helm's annotation for objects that are applied at a certain time, apart from the others.
const annotationHook = "helm.sh/hook"

// suffixPreDelete is appended to the name of a pre-delete hook that is also there from the installation on.
const suffixPreDelete = "-pre-delete"

// longestName is that of a Job, whose name is a label of its pods.
const longestName = 63

// atTheirTimes turns Helm's hooks into what add-ons have: ordinary objects and pre-delete hooks. Hooks for other times are left out. A Job
// or a Pod for both times runs at both, so it is two objects. Objects of other kinds do not run: one is there at both times.
func atTheirTimes(objects []client.Object) (all []client.Object, err error) {
	for _, object := range objects {
		installed, preDelete := timesOf(object)
		if installed {
			all = append(all, object)
		}
		switch {
		case preDelete && !installed:
			all = append(all, asPreDelete(object))
		case preDelete && runs(object):
			again, err := another(object)
			if err != nil {
				return nil, err
			}
			all = append(all, asPreDelete(again))
		}
	}
	return all, nil
}

// timesOf reports whether an object is there from the installation on, as all are that are no hooks, and whether it is a pre-delete hook.
func timesOf(object client.Object) (installed, preDelete bool) {
	text, isHook := object.GetAnnotations()[annotationHook]
	if !isHook {
		return true, false
	}
	for _, moment := range strings.FieldsFunc(text, func(r rune) bool { return r == ',' || r == ' ' }) {
		installed = installed || moment == "pre-install" || moment == "post-install" || moment == "crd-install"
		preDelete = preDelete || moment == "pre-delete"
	}
	return installed, preDelete
}

func asPreDelete(object client.Object) client.Object {
	annotations := object.GetAnnotations()
	annotations[fleet.AnnotationAddOnPreDelete] = ""
	object.SetAnnotations(annotations)
	return object
}

func runs(object client.Object) bool {
	kind := object.GetObjectKind().GroupVersionKind().GroupKind().String()
	return kind == "Job.batch" || kind == "Pod"
}

// another is a copy of a hook, with a name of its own.
func another(object client.Object) (client.Object, error) {
	again, ok := object.DeepCopyObject().(client.Object)
	if !ok {
		return nil, fmt.Errorf("the %s %q is no object of Kubernetes", object.GetObjectKind().GroupVersionKind().Kind, object.GetName())
	}
	again.SetName(preDeleteName(object.GetName()))
	return again, nil
}

// preDeleteName is the name of the copy. Of a long name, it has the beginning and a hash.
func preDeleteName(name string) string {
	if len(name)+len(suffixPreDelete) <= longestName {
		return name + suffixPreDelete
	}
	hash := fnv.New32a()
	fmt.Fprint(hash, name)
	suffix := fmt.Sprintf("-%08x%s", hash.Sum32(), suffixPreDelete)
	return strings.TrimRight(name[:longestName-len(suffix)], "-.") + suffix
}

func isDefinition(object client.Object) bool {
	return object.GetObjectKind().GroupVersionKind().GroupKind().String() == "CustomResourceDefinition.apiextensions.k8s.io"
}

// trim removes the descriptions from all schemas of a CustomResourceDefinition.
func trim(object client.Object) {
	definition, ok := object.(*unstructured.Unstructured)
	if !ok {
		return
	}
	spec, _ := definition.Object["spec"].(map[string]any)
	versions, _ := spec["versions"].([]any)
	for _, version := range versions {
		if version, ok := version.(map[string]any); ok {
			trimSchema(version["schema"])
		}
	}
}

// trimSchema removes the descriptions from a schema. A property with the name description stays: it is an object, not a string.
func trimSchema(schema any) {
	switch schema := schema.(type) {
	case map[string]any:
		if _, isText := schema["description"].(string); isText {
			delete(schema, "description")
		}
		for key, inner := range schema {
			if key != "default" && key != "enum" && key != "example" {
				trimSchema(inner)
			}
		}
	case []any:
		for _, inner := range schema {
			trimSchema(inner)
		}
	}
}
