package manifest

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/capstan-io/capstan/internal/machinery/fleet"
)

// maxValue is how many bytes of a value a difference shows.
const maxValue = 80

// Diff says in one text each, in the order of their paths, in which fields two states of an object differ, such as
// `spec.replicas: 1 -> 3`. Of metadata, labels and annotations count; status does not. Of a Secret it says which fields differ,
// and not what they hold.
func Diff(before, after *unstructured.Unstructured) []string {
	d := differ{}
	if before.GroupVersionKind().GroupKind() == secretKind {
		d.secret = sets.New("data", "stringData", "metadata")
	}
	d.object("", visible(before), visible(after))
	return d.found
}

// visible is what a person who wrote the manifest would know again.
func visible(object *unstructured.Unstructured) map[string]any {
	shown := contentOf(object)
	annotations := object.GetAnnotations()
	maps.DeleteFunc(annotations, func(key, _ string) bool {
		return key == fleet.AnnotationConfigSpecHash || strings.HasPrefix(key, fleet.AnnotationAppliedFieldsPrefix)
	})
	metadata := map[string]any{}
	for name, texts := range map[string]map[string]string{"labels": object.GetLabels(), "annotations": annotations} {
		values := map[string]any{}
		for key, text := range texts {
			values[key] = text
		}
		metadata[name] = values
	}
	shown["metadata"] = metadata
	return shown
}

type differ struct {
	found []string
	// secret are the fields of the object whose values are not to be seen.
	secret sets.Set[string]
}

func (d *differ) object(path string, before, after map[string]any) {
	fields := sets.KeySet(before).Union(sets.KeySet(after))
	for _, field := range sets.List(fields) {
		d.value(join(path, field), before[field], after[field])
	}
}

func (d *differ) value(path string, before, after any) {
	if reflect.DeepEqual(before, after) {
		return
	}
	switch after := after.(type) {
	case map[string]any:
		if before, ok := before.(map[string]any); ok {
			d.object(path, before, after)
			return
		}
	case []any:
		if before, ok := before.([]any); ok && len(before) == len(after) {
			for i := range after {
				d.value(fmt.Sprintf("%s[%d]", path, i), before[i], after[i])
			}
			return
		}
	}
	root, _, _ := strings.Cut(path, ".")
	if root, _, _ = strings.Cut(root, "["); d.secret.Has(root) {
		d.found = append(d.found, path+": changed (the values of a Secret are not shown)")
		return
	}
	d.found = append(d.found, fmt.Sprintf("%s: %s -> %s", path, show(before), show(after)))
}

// join puts fields that are no plain words into brackets.
func join(path, field string) string {
	switch {
	case strings.ContainsAny(field, ".[]/ "):
		return path + "[" + strconv.Quote(field) + "]"
	case path == "":
		return field
	default:
		return path + "." + field
	}
}

func show(value any) string {
	if value == nil {
		return "(none)"
	}
	text, err := json.Marshal(value)
	if err != nil {
		panic(err) // What was decoded from JSON can be encoded as JSON.
	}
	if len(text) > maxValue {
		text = append(slices.Clip(text[:maxValue]), "..."...)
	}
	return strings.ToValidUTF8(string(text), "")
}
