package workload

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capstan-io/capstan/internal/machinery/fleet"
	"github.com/capstan-io/capstan/internal/machinery/manifest"
)

// id identifies an object, whatever the version of its API.
type id struct {
	schema.GroupKind
	namespace, name string
}

func (i id) String() string {
	if i.namespace == "" {
		return i.Kind + " " + i.name
	}
	return i.Kind + " " + i.namespace + "/" + i.name
}

// object is an object of the add-on as it goes into a work.
type object struct {
	id
	version string
	raw     []byte
	rank    int
	// hook is true for a Job or a Pod that runs before the add-on is removed.
	hook bool
	// orphan is true for an object that stays on the cluster when the add-on is removed.
	orphan bool
	// location is the cluster that the object goes to in hosted mode.
	location string
	// plural and defines are, for a CustomResourceDefinition, the resource and the kind that it defines.
	defines schema.GroupKind
	plural  string
}

// encode returns the objects in their order in works, which does not depend on their given order: first by what the others depend on,
// then by name.
func encode(all []client.Object) ([]*object, error) {
	objects := make([]*object, 0, len(all))
	seen := make(map[id]*object, len(all))
	for i, o := range all {
		e, err := encodeOne(o)
		if err != nil {
			return nil, fmt.Errorf("manifest %d%s: %w", i, naming(o), err)
		}
		if before := seen[e.id]; before != nil {
			if !bytes.Equal(before.raw, e.raw) {
				return nil, fmt.Errorf("manifest %d is another %s that differs from the first: an add-on has each object once", i, e.id)
			}
			continue
		}
		seen[e.id] = e
		objects = append(objects, e)
	}
	slices.SortFunc(objects, func(a, b *object) int {
		return cmp.Or(a.rank-b.rank, cmp.Compare(a.Group, b.Group), cmp.Compare(a.Kind, b.Kind),
			cmp.Compare(a.namespace, b.namespace), cmp.Compare(a.name, b.name))
	})
	return objects, nil
}

// naming describes an object in an error.
func naming(o client.Object) string {
	if o == nil || o.GetName() == "" {
		return ""
	}
	return fmt.Sprintf(" (%T %s)", o, client.ObjectKeyFromObject(o))
}

func encodeOne(o client.Object) (*object, error) {
	u, err := content(o)
	if err != nil {
		return nil, err
	}
	if err := manifest.Clean(u); err != nil {
		return nil, err
	}
	raw, err := json.Marshal(u.Object)
	if err != nil {
		return nil, err
	}
	identity := manifest.Identify(u)
	e := &object{
		id:       id{GroupKind: identity.GroupKind(), namespace: identity.Namespace, name: identity.Name},
		version:  identity.Version,
		raw:      raw,
		rank:     manifest.Manifest{Object: u}.Rank(),
		hook:     isHook(u),
		orphan:   has(u.GetAnnotations(), fleet.AnnotationDeletionOrphan),
		location: location(u),
	}
	if e.GroupKind == definition {
		e.defines.Group, _, _ = unstructured.NestedString(u.Object, "spec", "group")
		e.defines.Kind, _, _ = unstructured.NestedString(u.Object, "spec", "names", "kind")
		e.plural, _, _ = unstructured.NestedString(u.Object, "spec", "names", "plural")
	}
	return e, checkLocation(e.location)
}

// content returns a copy of the object with its type, without its status. It can be changed: the object may be one that the author shares
// between calls.
func content(o client.Object) (*unstructured.Unstructured, error) {
	u := &unstructured.Unstructured{}
	switch o := o.(type) {
	case nil:
		return nil, fmt.Errorf("it is nil")
	case *unstructured.Unstructured:
		u.Object, _ = clone(o.Object).(map[string]any)
	default:
		converted, err := runtime.DefaultUnstructuredConverter.ToUnstructured(o)
		if err != nil {
			return nil, err
		}
		u.Object = converted
	}
	delete(u.Object, "status")
	if u.GetAPIVersion() == "" || u.GetKind() == "" {
		if kind, ok := kindOf(o); ok {
			u.SetGroupVersionKind(kind)
		}
	}
	return u, nil
}

// clone copies the maps and lists of a value. Unlike runtime.DeepCopyJSON, it takes what only becomes JSON when it is encoded, such as
// an int.
func clone(value any) any {
	switch value := value.(type) {
	case map[string]any:
		if value == nil {
			return nil
		}
		copied := make(map[string]any, len(value))
		for name, one := range value {
			copied[name] = clone(one)
		}
		return copied
	case []any:
		if value == nil {
			return nil
		}
		copied := make([]any, len(value))
		for i, one := range value {
			copied[i] = clone(one)
		}
		return copied
	}
	return value
}

// isHook reports whether a Job or Pod runs before the add-on is deleted: by its annotation, by a label of the same key, or by the label
// that older add-ons use.
func isHook(u *unstructured.Unstructured) bool {
	switch u.GroupVersionKind().GroupKind() {
	case job, pod:
		return has(u.GetAnnotations(), fleet.AnnotationAddOnPreDelete) || has(u.GetLabels(), fleet.AnnotationAddOnPreDelete) ||
			has(u.GetLabels(), fleet.LabelAddOnPreDelete)
	}
	return false
}

var (
	job        = schema.GroupKind{Group: "batch", Kind: "Job"}
	pod        = schema.GroupKind{Kind: "Pod"}
	definition = schema.GroupKind{Group: "apiextensions.k8s.io", Kind: "CustomResourceDefinition"}
)

func has(m map[string]string, key string) bool {
	_, ok := m[key]
	return ok
}

// location returns the cluster, managed or hosting, that an object of a hosted add-on goes to: by its annotation, or by the label that
// older add-ons use.
func location(u *unstructured.Unstructured) string {
	return cmp.Or(u.GetAnnotations()[fleet.AnnotationHostedManifestLocation], u.GetLabels()[fleet.LabelHostedManifestLocation],
		fleet.HostedManifestLocationManaged)
}

func checkLocation(location string) error {
	switch location {
	case fleet.HostedManifestLocationManaged, fleet.HostedManifestLocationHosting, fleet.HostedManifestLocationNone:
		return nil
	}
	return fmt.Errorf("%s is %q; it has to be %s, %s or %s", fleet.AnnotationHostedManifestLocation, location,
		fleet.HostedManifestLocationManaged, fleet.HostedManifestLocationHosting, fleet.HostedManifestLocationNone)
}
