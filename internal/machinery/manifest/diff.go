package manifest

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
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
	var secret sets.Set[string] // fields of the object whose values are not to be seen
	if before.GroupVersionKind().GroupKind() == secretKind {
		secret = sets.New("data", "stringData", "metadata")
	}
	var found []string
	report := differ(func(field Field, before, after any) {
		if root, _ := field[0].(string); secret.Has(root) {
			found = append(found, field.String()+": changed (the values of a Secret are not shown)")
		} else {
			found = append(found, fmt.Sprintf("%s: %s -> %s", field, show(before), show(after)))
		}
	})
	report.object(nil, visible(before, isOwn), visible(after, isOwn))
	return found
}

// ChangedFields are the fields in which two states of an object differ, in the order of their paths. Of metadata, labels, annotations
// and owner references count, those of the agent as well; status does not. Where a list has got another length, it is one field.
func ChangedFields(before, after *unstructured.Unstructured) []Field {
	var changed []Field
	report := differ(func(field Field, _, _ any) { changed = append(changed, field) })
	none := func(string) bool { return false }
	report.object(nil, visible(before, none), visible(after, none))
	if !sameOwners(before.GetOwnerReferences(), after.GetOwnerReferences()) {
		changed = append(changed, Field{"metadata", "ownerReferences"})
	}
	return changed
}

// isOwn reports whether the agent writes an annotation by itself.
func isOwn(annotation string) bool {
	return annotation == fleet.AnnotationConfigSpecHash || strings.HasPrefix(annotation, fleet.AnnotationAppliedFieldsPrefix)
}

// visible is what a person who wrote the manifest would know again, without some annotations.
func visible(object *unstructured.Unstructured, isHidden func(annotation string) bool) map[string]any {
	shown := contentOf(object)
	annotations := object.GetAnnotations()
	maps.DeleteFunc(annotations, func(key, _ string) bool { return isHidden(key) })
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

// differ is called with each field in which two states of an object differ.
type differ func(field Field, before, after any)

func (d differ) object(at Field, before, after map[string]any) {
	fields := sets.KeySet(before).Union(sets.KeySet(after))
	for _, field := range sets.List(fields) {
		d.value(at.inside(field), before[field], after[field])
	}
}

func (d differ) value(at Field, before, after any) {
	if reflect.DeepEqual(before, after) {
		return
	}
	switch after := after.(type) {
	case map[string]any:
		if before, ok := before.(map[string]any); ok {
			d.object(at, before, after)
			return
		}
	case []any:
		if before, ok := before.([]any); ok && len(before) == len(after) {
			for i := range after {
				d.value(at.inside(i), before[i], after[i])
			}
			return
		}
	}
	d(at, before, after)
}

// Field is the path of a field in an object: names of fields, and indexes in lists, as an int each.
type Field []any

func (f Field) inside(step any) Field { return append(slices.Clip(f), step) }

// String is the field as a person writes it, such as spec.ports[0].name. Names that are no plain words are in brackets.
func (f Field) String() string {
	var path strings.Builder
	for _, step := range f {
		name, isName := step.(string)
		switch {
		case !isName:
			fmt.Fprintf(&path, "[%d]", step)
		case strings.ContainsAny(name, ".[]/ "):
			fmt.Fprintf(&path, "[%q]", name)
		case path.Len() == 0:
			path.WriteString(name)
		default:
			path.WriteString("." + name)
		}
	}
	return path.String()
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
