package manifest

import (
	"maps"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/sets"
)

// The fields of metadata that hold keys of several parties: a party adds its own, and leaves those of others alone.
const (
	Labels          = "labels"
	Annotations     = "annotations"
	Finalizers      = "finalizers"
	OwnerReferences = "ownerReferences"
)

// Key is one entry of a field of metadata that several parties add to.
type Key struct {
	// Field is Labels, Annotations, Finalizers or OwnerReferences.
	Field string
	// Name is the key of a label or an annotation, a finalizer, or the UID of an owner.
	Name string
}

// KeysOf returns the keys that a manifest names. Those whose removal it requests are not among them, and neither are annotations that
// the agent writes.
func KeysOf(object *unstructured.Unstructured) sets.Set[Key] {
	keys, _ := namedKeys(object)
	return keys
}

// namedKeys are the keys that a manifest names, and those whose removal it requests.
func namedKeys(object *unstructured.Unstructured) (keys, removals sets.Set[Key]) {
	keys, removals = sets.New[Key](), sets.New[Key]()
	add := func(field, name string) {
		if key, removal := strings.CutSuffix(name, RemovalSuffix); removal {
			removals.Insert(Key{field, key})
		} else if name != "" && (field != Annotations || !isOwn(name)) {
			keys.Insert(Key{field, name})
		}
	}
	for key := range object.GetLabels() {
		add(Labels, key)
	}
	for key := range object.GetAnnotations() {
		add(Annotations, key)
	}
	for _, owner := range object.GetOwnerReferences() {
		add(OwnerReferences, string(owner.UID))
	}
	for _, finalizer := range object.GetFinalizers() {
		keys.Insert(Key{Finalizers, finalizer})
	}
	return keys.Difference(removals), removals
}

// WithKeys returns the object with no other metadata than the keys. It shares its content with the object.
func WithKeys(object *unstructured.Unstructured, keys sets.Set[Key]) *unstructured.Unstructured {
	with := &unstructured.Unstructured{Object: contentOf(object)}
	with.SetGroupVersionKind(object.GroupVersionKind())
	if metadata := metadataOf(keys); len(metadata) > 0 {
		with.Object["metadata"] = metadata
	}
	return with
}

// metadataOf is metadata that names the keys and says nothing in them.
func metadataOf(keys sets.Set[Key]) map[string]any {
	metadata := map[string]any{}
	for _, key := range slices.SortedFunc(maps.Keys(keys), func(a, b Key) int { return strings.Compare(a.Name, b.Name) }) {
		switch key.Field {
		case Labels, Annotations:
			texts, _ := metadata[key.Field].(map[string]any)
			if texts == nil {
				texts = map[string]any{}
				metadata[key.Field] = texts
			}
			texts[key.Name] = ""
		case Finalizers:
			list, _ := metadata[key.Field].([]any)
			metadata[key.Field] = append(list, key.Name)
		case OwnerReferences:
			list, _ := metadata[key.Field].([]any)
			metadata[key.Field] = append(list, map[string]any{"uid": key.Name})
		}
	}
	return metadata
}

// dropKeys removes the keys that an object has, and reports whether it has any.
func dropKeys(object *unstructured.Unstructured, keys sets.Set[Key]) (changed bool) {
	if labels := object.GetLabels(); deleteTexts(labels, Labels, keys) {
		object.SetLabels(orNil(labels))
		changed = true
	}
	if annotations := object.GetAnnotations(); deleteTexts(annotations, Annotations, keys) {
		object.SetAnnotations(orNil(annotations))
		changed = true
	}
	if owners, found := without(object.GetOwnerReferences(), keys, func(o metav1.OwnerReference) Key {
		return Key{OwnerReferences, string(o.UID)}
	}); found {
		object.SetOwnerReferences(owners)
		changed = true
	}
	if finalizers, found := without(object.GetFinalizers(), keys, func(f string) Key { return Key{Finalizers, f} }); found {
		object.SetFinalizers(finalizers)
		changed = true
	}
	return changed
}

func deleteTexts(texts map[string]string, field string, keys sets.Set[Key]) (found bool) {
	before := len(texts)
	maps.DeleteFunc(texts, func(key, _ string) bool { return keys.Has(Key{field, key}) })
	return len(texts) < before
}

// orNil makes the field go with the last of its keys.
func orNil(texts map[string]string) map[string]string {
	if len(texts) == 0 {
		return nil
	}
	return texts
}

// without returns a list without the elements of the keys, nil if none is left.
func without[T any](list []T, keys sets.Set[Key], keyOf func(T) Key) (kept []T, found bool) {
	for _, element := range list {
		if !keys.Has(keyOf(element)) {
			kept = append(kept, element)
		}
	}
	return kept, len(kept) < len(list)
}
