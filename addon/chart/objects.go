package chart

import (
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capstan-io/capstan/internal/machinery/fleet"
)

// annotationHook of Helm says when an object is applied, instead of with the others.
const annotationHook = "helm.sh/hook"

// isLeftOut tells whether an object is for a moment that an add-on does not have. Hooks before a deletion it marks as the add-on's.
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

// trim removes the descriptions of all schemas in a definition.
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

// trimSchema leaves properties of the name description: those are objects.
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
