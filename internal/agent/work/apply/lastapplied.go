package apply

import (
	"maps"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/capstan-io/capstan/internal/agent/work/appliedmanifestwork"
	"github.com/capstan-io/capstan/internal/agent/work/managedfields"
	"github.com/capstan-io/capstan/internal/agent/work/tracker"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
	"github.com/capstan-io/capstan/internal/machinery/manifest"
)

// The manifest that was written last is remembered, and an annotation of the object says which fields it named, for an agent that has been
// restarted. The annotation is written with the object, so it also knows of a write whose answer never came.

// rememberFields writes into an annotation of the object which fields the manifest names.
func (t *task) rememberFields() {
	key := appliedmanifestwork.FieldsAnnotation(t.owner.Name)
	annotations := t.required.GetAnnotations()
	if annotations == nil {
		annotations = map[string]string{}
	}
	if fields := manifest.NamedFields(t.manifest); fields != "" {
		annotations[key] = fields
	} else {
		annotations[key+manifest.RemovalSuffix] = ""
	}
	t.required.SetAnnotations(annotations)
}

// lastApplied is the manifest that was written before this one, as far as it is known. It names what is to go: the keys of metadata and the
// fields that this manifest does not name, and nobody else has.
func (t *task) lastApplied(live *unstructured.Unstructured) *unstructured.Unstructured {
	own := appliedmanifestwork.FieldsAnnotation(t.owner.Name)
	last := manifest.LastNamed(live.GetAnnotations()[own])
	keys := sets.New[manifest.Key]()
	if last != nil {
		last.SetGroupVersionKind(t.required.GroupVersionKind())
		keys = manifest.KeysOf(last)
	}
	if t.before != nil && t.before.written != nil {
		last = t.before.written
		keys = keys.Union(manifest.KeysOf(last))
	}
	if last == nil {
		return nil
	}
	keys = withoutOthers(keys.Difference(manifest.KeysOf(t.required)), live, own)
	maps.DeleteFunc(keys, func(key manifest.Key, _ sets.Empty) bool {
		return t.wasDisputed(manifest.Field{"metadata", key.Field, key.Name})
	})
	named, isCoOwned := namedByOthers(live, own), hasSilentOwner(live, own)
	return manifest.WithKeys(manifest.LeaveToOthers(t.required, live, last, func(field manifest.Field) bool {
		return t.wasDisputed(field) || managedfields.HaveOthers(live, field) || isCoOwned && managedfields.AgentsApply(live, field) ||
			slices.ContainsFunc(named, func(other *unstructured.Unstructured) bool { return manifest.Names(other, live, field) })
	}), keys)
}

// namedByOthers are manifests that name the fields that other works name, as far as the annotations of the object say so. own is that of
// this work.
func namedByOthers(live *unstructured.Unstructured, own string) (named []*unstructured.Unstructured) {
	for annotation, fields := range live.GetAnnotations() {
		if !strings.HasPrefix(annotation, fleet.AnnotationAppliedFieldsPrefix) || annotation == own {
			continue
		}
		if other := manifest.LastNamed(fields); other != nil {
			other.SetGroupVersionKind(live.GroupVersionKind())
			named = append(named, other)
		}
	}
	return named
}

// isShared reports whether another work owns the object, or says on it which of its fields it names.
func (t *task) isShared(live *unstructured.Unstructured) bool {
	return t.hasOtherOwner(live) || len(namedByOthers(live, appliedmanifestwork.FieldsAnnotation(t.owner.Name))) > 0
}

// hasOtherOwner reports whether another work owns the object.
func (t *task) hasOtherOwner(live *unstructured.Unstructured) bool {
	return slices.ContainsFunc(live.GetOwnerReferences(), func(o metav1.OwnerReference) bool {
		return tracker.IsWork(o) && o.UID != t.owner.UID
	})
}

// wasDisputed reports whether others kept changing a field when the last manifest was applied. Between two of their writes, it is the agent
// that has written it last.
func (t *task) wasDisputed(field manifest.Field) bool {
	return t.before != nil && t.before.lastDispute().IsAbout(field.String())
}

// withoutOthers leaves out the keys that others have: the works whose owner the key is or whose annotations name it, and other clients, as
// far as the API server has recorded that they wrote it. Where another work owns the object and does not say what it names, none goes. own
// is the annotation of this work.
func withoutOthers(keys sets.Set[manifest.Key], live *unstructured.Unstructured, own string) sets.Set[manifest.Key] {
	if len(keys) == 0 {
		return keys
	}
	if hasSilentOwner(live, own) {
		return sets.New[manifest.Key]()
	}
	keys = keys.Difference(managedfields.OfOthers(live, keys))
	for _, named := range namedByOthers(live, own) {
		keys = keys.Difference(manifest.KeysOf(named))
	}
	for _, owner := range live.GetOwnerReferences() {
		if tracker.IsWork(owner) {
			keys.Delete(manifest.Key{Field: manifest.OwnerReferences, Name: string(owner.UID)})
		}
	}
	return keys
}

// hasSilentOwner reports whether another work owns the object and does not say what it names, as under the strategies CreateOnly and
// ServerSideApply. own is the annotation of this work.
func hasSilentOwner(live *unstructured.Unstructured, own string) bool {
	annotations := live.GetAnnotations()
	return slices.ContainsFunc(live.GetOwnerReferences(), func(owner metav1.OwnerReference) bool {
		key := appliedmanifestwork.FieldsAnnotation(owner.Name)
		_, says := annotations[key]
		return tracker.IsWork(owner) && !says && key != own
	})
}
