package chart

import (
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capstan-io/capstan/internal/machinery/fleet"
)

// annotationHook is Helm's annotation for objects that are applied at a certain time, apart from the others.
const annotationHook = "helm.sh/hook"

// isLeftOut reports whether an object is a hook for a time that add-ons do not have. It turns Helm's pre-delete hooks into those of
// add-ons.
func isLeftOut(object client.Object) bool {
	annotations := object.GetAnnotations()
	text, isHook := annotations[annotationHook]
	if !isHook {
		return false
	}
	moments := strings.FieldsFunc(text, func(r rune) bool { return r == ',' || r == ' ' })
	if slices.ContainsFunc(moments, func(moment string) bool {
		return moment == "pre-install" || moment == "post-install" || moment == "crd-install"
	}) {
		return false
	}
	if !slices.Contains(moments, "pre-delete") {
		return true
	}
	annotations[fleet.AnnotationAddOnPreDelete] = ""
	object.SetAnnotations(annotations)
	return false
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
