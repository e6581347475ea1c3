package appliedmanifestwork

import (
	"fmt"
	"hash/fnv"
	"slices"
	"strconv"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"

	workv1 "github.com/capstan-io/capstan/api/work/v1"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
	"github.com/capstan-io/capstan/internal/machinery/manifest"
)

// What a work names is written down in an annotation of its AppliedManifestWork before any of it is applied. The status says
// what was applied, but only afterwards: an agent that is killed in between leaves objects that no status lists, and if the
// work names them no more when the agent is back, the annotation is all there is to find them by.

// maxNamed is how long the annotation may be. All annotations of an object have 256 KiB; names that do not fit even when
// they are compressed are not written down.
const maxNamed = 200 << 10

// FieldsAnnotation is the key of the annotation on an object that says which of its fields the AppliedManifestWork names.
// Works that share an object have one each.
func FieldsAnnotation(appliedName string) string {
	h := fnv.New64a()
	_, _ = h.Write([]byte(appliedName)) // It never fails.
	return fleet.AnnotationAppliedFieldsPrefix + strconv.FormatUint(h.Sum64(), 36)
}

// EncodeNamed writes down the objects that a work names, packed and in one order, whatever the order of the work.
func EncodeNamed(named []manifest.Identity) string {
	lines := make([][4]string, 0, len(named))
	for _, id := range named {
		lines = append(lines, [4]string{id.GroupVersion().String(), id.Kind, id.Namespace, id.Name})
	}
	slices.SortFunc(lines, func(a, b [4]string) int { return slices.Compare(a[:], b[:]) })
	if text := pack(slices.Compact(lines)); len(text) <= maxNamed {
		return text
	}
	return ""
}

// Named reads what EncodeNamed wrote from the annotation. What cannot be read names nothing.
func Named(amw *workv1.AppliedManifestWork) []manifest.Identity {
	var lines [][4]string
	if unpack(amw.Annotations[fleet.AnnotationManifests], &lines) != nil {
		return nil
	}
	named := make([]manifest.Identity, 0, len(lines))
	for _, l := range lines {
		if gv, err := schema.ParseGroupVersion(l[0]); err == nil {
			named = append(named, manifest.Identity{GroupVersionKind: gv.WithKind(l[1]), Namespace: l[2], Name: l[3]})
		}
	}
	return named
}

// Inventory is all that an AppliedManifestWork may own: the objects that its status lists, and those that the work named once and that the
// status does not list, because an agent was killed. The latter may never have come to be, and have no UID; kinds that the cluster does
// not serve have no objects.
func Inventory(mapper meta.RESTMapper, amw *workv1.AppliedManifestWork) ([]workv1.AppliedManifestResourceMeta, error) {
	recorded := make(map[workv1.ResourceIdentifier]bool, len(amw.Status.AppliedResources))
	for _, r := range amw.Status.AppliedResources {
		recorded[r.ResourceIdentifier] = true
	}
	all := slices.Clone(amw.Status.AppliedResources)
	for _, id := range Named(amw) {
		mapping, err := mapping(mapper, id)
		if meta.IsNoMatchError(err) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("find the resource of %s: %w", id, err)
		}
		if mapping.Scope.Name() == meta.RESTScopeNameRoot {
			id.Namespace = ""
		}
		r := Resource(mapping, id)
		if !recorded[r.ResourceIdentifier] {
			all = append(all, r)
		}
	}
	return all, nil
}

// mapping finds another version of the kind if its own is not served any more.
func mapping(mapper meta.RESTMapper, id manifest.Identity) (*meta.RESTMapping, error) {
	found, err := mapper.RESTMapping(id.GroupKind(), id.Version)
	if meta.IsNoMatchError(err) {
		return mapper.RESTMapping(id.GroupKind())
	}
	return found, err
}

// Resource is how an AppliedManifestWork records an object, but for its UID.
func Resource(mapping *meta.RESTMapping, id manifest.Identity) workv1.AppliedManifestResourceMeta {
	return workv1.AppliedManifestResourceMeta{
		ResourceIdentifier: workv1.ResourceIdentifier{Group: mapping.Resource.Group, Resource: mapping.Resource.Resource, Namespace: id.Namespace,
			Name: id.Name},
		Version: mapping.Resource.Version,
	}
}
