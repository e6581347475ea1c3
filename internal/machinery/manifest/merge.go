package manifest

import (
	"maps"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// RemovalSuffix at the end of a label or annotation key, or of an owner's UID, requests its removal.
const RemovalSuffix = "-"

// Merge returns what to write so that the live object existing becomes what the manifest required says, by the rules of
// the package comment, and whether that differs from existing at all. When changed is false there is nothing to
// write. None of the arguments is modified.
//
// lastApplied is the manifest that was written last: the one before this until that is written, this one from then on.
// Without it (nil), fields that the manifest no longer names stay. Of its metadata, only the keys count (see KeysOf).
//
// A required object with a field that the API server does not store (one it does not know, for instance) differs every
// time. Writing it is harmless, as the API server changes nothing, but to save the call compare Hash(required) and the
// resource version with those of the last write first.
func Merge(required, existing, lastApplied *unstructured.Unstructured) (merged *unstructured.Unstructured, changed bool) {
	merged = existing.DeepCopy()
	changed = mergeMetadata(required, merged, lastApplied)

	m := mergerFor(required, merged)
	want, live := m.content(required), contentOf(merged)
	var last map[string]any
	if lastApplied != nil {
		last = m.content(lastApplied)
	}
	if m.object(position{}, want, live, last) {
		changed = true
		setContent(merged, live)
	}
	return merged, changed
}

// ForCreate returns the object to create when there is no live one: the manifest without what only requests removals.
func ForCreate(required *unstructured.Unstructured) *unstructured.Unstructured {
	created := required.DeepCopy()
	created.SetLabels(nil)
	created.SetAnnotations(nil)
	created.SetOwnerReferences(nil)
	mergeMetadata(required, created, nil)
	return created
}

// isContent distinguishes the fields that Merge compares as a whole from those with rules of their own.
func isContent(field string) bool {
	switch field {
	case "apiVersion", "kind", "metadata", "status":
		return false
	default:
		return true
	}
}

func contentOf(object *unstructured.Unstructured) map[string]any {
	content := maps.Clone(object.Object)
	maps.DeleteFunc(content, func(field string, _ any) bool { return !isContent(field) })
	return content
}

func setContent(object *unstructured.Unstructured, content map[string]any) {
	maps.DeleteFunc(object.Object, func(field string, _ any) bool { return isContent(field) })
	maps.Copy(object.Object, content)
}

// mergeMetadata sets the keys of the manifest, and removes those whose removal it requests and those that only the last one names. last
// may be nil.
func mergeMetadata(required, merged, last *unstructured.Unstructured) (changed bool) {
	keys, gone := namedKeys(required)
	isGone := func(field, name string) bool {
		return strings.HasSuffix(name, RemovalSuffix) || gone.Has(Key{field, name})
	}
	if labels := merged.GetLabels(); setTexts(required.GetLabels(), &labels, func(key string) bool { return isGone(Labels, key) }) {
		merged.SetLabels(labels)
		changed = true
	}
	annotations := merged.GetAnnotations()
	if setTexts(required.GetAnnotations(), &annotations, func(key string) bool { return isGone(Annotations, key) }) {
		merged.SetAnnotations(annotations)
		changed = true
	}
	owners := slices.DeleteFunc(required.GetOwnerReferences(), func(o metav1.OwnerReference) bool {
		return isGone(OwnerReferences, string(o.UID))
	})
	before := merged.GetOwnerReferences()
	if after := setOwners(owners, before); !sameOwners(before, after) {
		merged.SetOwnerReferences(after)
		changed = true
	}
	if last != nil {
		gone = gone.Union(KeysOf(last).Difference(keys))
	}
	return dropKeys(merged, gone) || changed
}

func setTexts(required map[string]string, live *map[string]string, isGone func(key string) bool) (changed bool) {
	for key, value := range required {
		if present, found := (*live)[key]; found && present == value || isGone(key) {
			continue
		}
		if *live == nil {
			*live = map[string]string{}
		}
		(*live)[key] = value
		changed = true
	}
	return changed
}

// setOwners puts the required owners among the live ones: matched by UID, new ones at the end.
func setOwners(required, live []metav1.OwnerReference) []metav1.OwnerReference {
	merged := slices.Clone(live)
	for _, want := range required {
		at := slices.IndexFunc(merged, func(o metav1.OwnerReference) bool { return o.UID == want.UID })
		if at < 0 {
			merged = append(merged, want)
		} else {
			merged[at] = updateOwner(merged[at], want)
		}
	}
	return merged
}

func updateOwner(live, want metav1.OwnerReference) metav1.OwnerReference {
	if want.Controller == nil {
		want.Controller = live.Controller
	}
	if want.BlockOwnerDeletion == nil {
		want.BlockOwnerDeletion = live.BlockOwnerDeletion
	}
	return want
}
