package manifest

import (
	"maps"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
)

// RemovalSuffix at the end of a label or annotation key, or of an owner's UID, asks for its removal.
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
	changed = mergeMetadata(required, merged)
	if lastApplied != nil {
		changed = dropKeys(merged, KeysOf(lastApplied).Difference(KeysOf(required))) || changed
	}

	m := mergerFor(required, merged)
	want, live := m.content(required), contentOf(merged)
	var last map[string]any
	if lastApplied != nil {
		last = m.content(lastApplied)
	}
	if m.object(place{}, want, live, last) {
		changed = true
		setContent(merged, live)
	}
	return merged, changed
}

// ForCreate returns the object to create when there is no live one: the manifest without what only asks for removals.
func ForCreate(required *unstructured.Unstructured) *unstructured.Unstructured {
	created := required.DeepCopy()
	created.SetLabels(nil)
	created.SetAnnotations(nil)
	created.SetOwnerReferences(nil)
	mergeMetadata(required, created)
	return created
}

// isContent tells the fields that Merge compares as a whole from those with rules of their own.
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

func mergeMetadata(required, merged *unstructured.Unstructured) (changed bool) {
	if labels := merged.GetLabels(); mergeTexts(required.GetLabels(), &labels) {
		merged.SetLabels(labels)
		changed = true
	}
	if annotations := merged.GetAnnotations(); mergeTexts(required.GetAnnotations(), &annotations) {
		merged.SetAnnotations(annotations)
		changed = true
	}
	before := merged.GetOwnerReferences()
	if after := mergeOwners(required.GetOwnerReferences(), before); !sameOwners(before, after) {
		merged.SetOwnerReferences(after)
		changed = true
	}
	return changed
}

func mergeTexts(required map[string]string, live *map[string]string) (changed bool) {
	for key, value := range required {
		if name, removal := strings.CutSuffix(key, RemovalSuffix); removal {
			if _, found := (*live)[name]; found {
				delete(*live, name)
				changed = true
			}
			continue
		}
		if _, removed := required[key+RemovalSuffix]; removed {
			continue
		}
		if present, found := (*live)[key]; !found || present != value {
			if *live == nil {
				*live = map[string]string{}
			}
			(*live)[key] = value
			changed = true
		}
	}
	return changed
}

// mergeOwners puts the required owners among the live ones: matched by UID, new ones at the end.
func mergeOwners(required, live []metav1.OwnerReference) []metav1.OwnerReference {
	wanted, unwanted := map[types.UID]metav1.OwnerReference{}, map[types.UID]bool{}
	for _, owner := range required {
		if uid, removal := strings.CutSuffix(string(owner.UID), RemovalSuffix); removal {
			unwanted[types.UID(uid)] = true
		} else {
			wanted[owner.UID] = owner
		}
	}
	for uid := range unwanted {
		delete(wanted, uid)
	}
	var merged []metav1.OwnerReference
	for _, owner := range live {
		if unwanted[owner.UID] {
			continue
		}
		if want, found := wanted[owner.UID]; found {
			owner = updateOwner(owner, want)
			delete(wanted, owner.UID)
		}
		merged = append(merged, owner)
	}
	for _, owner := range required {
		if want, found := wanted[owner.UID]; found {
			merged = append(merged, want)
			delete(wanted, owner.UID)
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
