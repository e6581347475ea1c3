// Package managedfields reads from metadata.managedFields of an object who has written which of its fields.
package managedfields

import (
	"reflect"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/sets"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
	"sigs.k8s.io/structured-merge-diff/v6/value"

	"github.com/capstan-io/capstan/internal/machinery/manifest"
)

// Agent is the field manager of work agents. Where works name one of their own, it starts with this.
const Agent = "work-agent"

// Writer is a field manager. The zero value is an unknown one.
type Writer struct {
	Manager string
	// Subresource is the one by which it wrote, such as scale; empty for the object itself.
	Subresource string
}

// IsAgent reports whether the writer is a work agent.
func (w Writer) IsAgent() bool { return strings.HasPrefix(w.Manager, Agent) }

// original is the field manager of the work agent of the original, which a cluster may have had before: the name of its program.
const original = "work"

// String is the writer as a message names it.
func (w Writer) String() string {
	if w.Subresource == "" {
		return w.Manager
	}
	return w.Manager + " (subresource " + w.Subresource + ")"
}

// LastWriter is who wrote any of the fields last. An agent is returned only if nobody else owns any of them: the API server records the
// times in seconds, and a list that has got longer or shorter is owned by all who wrote elements. The writer of a field that was removed is
// not known.
func LastWriter(live *unstructured.Unstructured, fields []manifest.Field) Writer {
	var last Writer
	var at *metav1.Time
	for _, entry := range live.GetManagedFields() {
		if !ownsAny(entry, live, fields) {
			continue
		}
		writer := Writer{Manager: entry.Manager, Subresource: entry.Subresource}
		switch {
		case last == Writer{}, last.IsAgent() && !writer.IsAgent(), last.IsAgent() == writer.IsAgent() && at.Before(entry.Time):
			last, at = writer, entry.Time
		}
	}
	return last
}

// OfOthers returns those of the keys that others than work agents have written. What another client sets to the value that it has already
// is recorded only of server-side apply.
func OfOthers(live *unstructured.Unstructured, keys sets.Set[manifest.Key]) sets.Set[manifest.Key] {
	others := sets.New[manifest.Key]()
	for _, entry := range live.GetManagedFields() {
		if isOfAgent(entry) {
			continue
		}
		fields, ok := fieldsOf(entry)
		for key := range keys {
			if ok && fields.Has(pathOf(key)) {
				others.Insert(key)
			}
		}
	}
	return others
}

// HaveOthers reports whether others than work agents have a field of the object, or anything in it: those who apply it server-side, and
// those who write it by a subresource, as autoscalers do. Who has written the object as a whole need not mean to have the field for good.
func HaveOthers(live *unstructured.Unstructured, field manifest.Field) bool {
	return slices.ContainsFunc(live.GetManagedFields(), func(entry metav1.ManagedFieldsEntry) bool {
		return !isOfAgent(entry) && (isApplied(entry) || entry.Subresource != "") && has(entry, live, field)
	})
}

// AgentsApply reports whether work agents apply a field of the object, or anything in it, server-side.
func AgentsApply(live *unstructured.Unstructured, field manifest.Field) bool {
	return slices.ContainsFunc(live.GetManagedFields(), func(entry metav1.ManagedFieldsEntry) bool {
		return isOfAgent(entry) && isApplied(entry) && has(entry, live, field)
	})
}

func isApplied(entry metav1.ManagedFieldsEntry) bool {
	return entry.Operation == metav1.ManagedFieldsOperationApply
}

// has reports whether an entry is about a field, or anything in it. One that cannot be read is about none.
func has(entry metav1.ManagedFieldsEntry, live *unstructured.Unstructured, field manifest.Field) bool {
	fields, ok := fieldsOf(entry)
	return ok && hasAny(fields, func(path fieldpath.Path) bool { return len(path) >= len(field) && isAt(path, field, live.Object) })
}

func isOfAgent(entry metav1.ManagedFieldsEntry) bool {
	return Writer{Manager: entry.Manager}.IsAgent() || entry.Manager == original
}

func pathOf(key manifest.Key) fieldpath.Path {
	switch key.Field {
	case manifest.Finalizers:
		return fieldpath.MakePathOrDie("metadata", key.Field, value.NewValueInterface(key.Name))
	case manifest.OwnerReferences:
		return fieldpath.MakePathOrDie("metadata", key.Field, fieldpath.KeyByFields("uid", key.Name))
	default:
		return fieldpath.MakePathOrDie("metadata", key.Field, key.Name)
	}
}

// fieldsOf are the fields of an entry that can be read.
func fieldsOf(entry metav1.ManagedFieldsEntry) (fields *fieldpath.Set, ok bool) {
	fields = fieldpath.NewSet()
	return fields, entry.FieldsV1 != nil && fields.FromJSON(entry.FieldsV1.GetRawReader()) == nil
}

// ownsAny reports whether an entry is about any of the fields. One that cannot be read is about none.
func ownsAny(entry metav1.ManagedFieldsEntry, live *unstructured.Unstructured, fields []manifest.Field) bool {
	written, ok := fieldsOf(entry)
	if !ok {
		return false
	}
	return hasAny(written, func(path fieldpath.Path) bool {
		return slices.ContainsFunc(fields, func(field manifest.Field) bool { return isAt(path, field, live.Object) })
	})
}

// hasAny reports whether it is so of any leaf of the fields.
func hasAny(fields *fieldpath.Set, isSo func(fieldpath.Path) bool) (found bool) {
	fields.Leaves().Iterate(func(path fieldpath.Path) { found = found || isSo(path) })
	return found
}

// isAt reports whether a path leads to the field, to something in it, or to something that it is in, in the object.
func isAt(path fieldpath.Path, field manifest.Field, value any) bool {
	for i := range min(len(path), len(field)) {
		var matches bool
		if value, matches = follow(path[i], field[i], value); !matches {
			return false
		}
	}
	return true
}

// follow reports whether an element of a path is a step of a field, and returns the value that is there.
func follow(element fieldpath.PathElement, step, value any) (next any, matches bool) {
	switch step := step.(type) {
	case string:
		object, _ := value.(map[string]any)
		return object[step], element.FieldName != nil && *element.FieldName == step
	case int:
		list, _ := value.([]any)
		if step >= len(list) {
			return nil, false
		}
		return list[step], isElement(element, step, list[step])
	default:
		return nil, false
	}
}

// isElement reports whether an element of a path names the element of a list.
func isElement(element fieldpath.PathElement, index int, value any) bool {
	switch {
	case element.Key != nil:
		object, _ := value.(map[string]any)
		for _, key := range *element.Key {
			if !reflect.DeepEqual(object[key.Name], key.Value.Unstructured()) {
				return false
			}
		}
		return true
	case element.Value != nil:
		return reflect.DeepEqual(value, (*element.Value).Unstructured())
	case element.Index != nil:
		return *element.Index == index
	default:
		return false
	}
}
