package admission

import (
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apimachinery/pkg/util/validation/field"

	workv1 "github.com/capstan-io/capstan/api/work/v1"
	workv1alpha1 "github.com/capstan-io/capstan/api/work/v1alpha1"
	"github.com/capstan-io/capstan/internal/machinery/manifest"
)

// mostWarnings is how many manifests, or rules, are warned of: an API server sends a client no more than 4 KiB of warnings.
const mostWarnings = 10

// ManifestWorkWarnings returns warnings for the user who creates a valid ManifestWork (old is nil) or changes its spec: what agents leave
// out of its manifests, because it is another cluster's, and which rules are about none of them.
func ManifestWorkWarnings(work, old *workv1.ManifestWork) []string {
	var oldSpec *workv1.ManifestWorkSpec
	if old != nil {
		oldSpec = &old.Spec
	}
	return specWarnings(field.NewPath("spec"), &work.Spec, oldSpec)
}

// ManifestWorkReplicaSetWarnings returns those of the works that a valid ManifestWorkReplicaSet makes of its template.
func ManifestWorkReplicaSetWarnings(set, old *workv1alpha1.ManifestWorkReplicaSet) []string {
	var oldSpec *workv1.ManifestWorkSpec
	if old != nil {
		oldSpec = &old.Spec.ManifestWorkTemplate
	}
	return specWarnings(field.NewPath("spec", "manifestWorkTemplate"), &set.Spec.ManifestWorkTemplate, oldSpec)
}

func specWarnings(at *field.Path, spec, old *workv1.ManifestWorkSpec) (warnings []string) {
	if old != nil && equality.Semantic.DeepEqual(spec, old) {
		return nil
	}
	objects := make([]*unstructured.Unstructured, 0, len(spec.Workload.Manifests))
	for _, m := range spec.Workload.Manifests {
		object := &unstructured.Unstructured{}
		if json.Unmarshal(m.Raw, &object.Object) != nil {
			return nil // the rules refuse it
		}
		objects = append(objects, object)
	}
	if old == nil || !equality.Semantic.DeepEqual(spec.Workload, old.Workload) {
		warnings = atMostWarnings(ofManifests(at.Child("workload", "manifests"), objects), "manifests")
	}
	return append(warnings, atMostWarnings(manifest.Unmatched(at, spec, usualResources(objects)), "rules")...)
}

// atMostWarnings replaces warnings that are too many by how many there are.
func atMostWarnings(warnings []string, of string) []string {
	if more := len(warnings) - mostWarnings; more > 0 {
		return append(warnings[:mostWarnings], fmt.Sprintf("the same holds for %d more %s", more, of))
	}
	return warnings
}

// ofManifests are about manifests that were exported from a cluster, and those that name owners: the hub does not know which objects the
// cluster of the work has. It drops from the objects what the cluster of the export has set.
func ofManifests(at *field.Path, objects []*unstructured.Unstructured) (warnings []string) {
	warn := func(i int, object *unstructured.Unstructured, what string) {
		warnings = append(warnings, fmt.Sprintf("%s, %s: %s", at.Index(i), manifest.Identify(object), what))
	}
	for i, object := range objects {
		if dropped := manifest.DropExported(object); len(dropped) > 0 {
			warn(i, object, "not applied, because the cluster that it was exported from has set it: "+strings.Join(dropped, ", "))
		}
		if len(object.GetOwnerReferences()) > 0 {
			warn(i, object, "metadata.ownerReferences: owners that do not exist on the cluster under their uid are not applied")
		}
	}
	return warnings
}

// usualResources are what the objects are about. Which resource a kind has is for the cluster to know; the hub goes by how resources are
// usually named, and leaves kinds of custom resources open.
func usualResources(objects []*unstructured.Unstructured) []workv1.ManifestResourceMeta {
	resources := make([]workv1.ManifestResourceMeta, len(objects))
	for i, object := range objects {
		gvk := object.GroupVersionKind()
		resources[i] = workv1.ManifestResourceMeta{Group: gvk.Group, Version: gvk.Version, Kind: gvk.Kind, Namespace: object.GetNamespace(),
			Name: object.GetName()}
		if !isCustomGroup(gvk.Group) {
			plural, _ := meta.UnsafeGuessKindToResource(gvk)
			resources[i].Resource = plural.Resource
		}
	}
	return resources
}

// isCustomGroup reports whether a group may have kinds with resources of any name.
func isCustomGroup(group string) bool {
	return strings.Contains(group, ".") && !strings.HasSuffix(group, ".k8s.io")
}
