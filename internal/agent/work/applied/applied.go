// Package applied has the rules by which an AppliedManifestWork represents a ManifestWork on the managed cluster, and deletes the objects
// that it owns.
package applied

import (
	"cmp"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	workv1 "github.com/capstan-io/capstan/api/work/v1"
	"github.com/capstan-io/capstan/internal/agent/work/tracker"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
)

const kind = "AppliedManifestWork"

// OwnerReference is what every object of the work carries.
func OwnerReference(amw *workv1.AppliedManifestWork) metav1.OwnerReference {
	return metav1.OwnerReference{APIVersion: workv1.GroupVersion.String(), Kind: kind, Name: amw.Name, UID: amw.UID}
}

// Object is the tracked object that a recorded resource stands for.
func Object(r workv1.AppliedManifestResourceMeta) tracker.Object {
	return tracker.Object{
		GroupVersionResource: schema.GroupVersionResource{Group: r.Group, Version: r.Version, Resource: r.Resource},
		NamespacedName:       types.NamespacedName{Namespace: r.Namespace, Name: r.Name},
	}
}

// Sorted returns resources in the order in which an AppliedManifestWork lists them.
func Sorted(resources []workv1.AppliedManifestResourceMeta) []workv1.AppliedManifestResourceMeta {
	return slices.SortedStableFunc(slices.Values(resources), func(a, b workv1.AppliedManifestResourceMeta) int {
		return cmp.Or(strings.Compare(a.Group, b.Group), strings.Compare(a.Version, b.Version), strings.Compare(a.Resource, b.Resource),
			strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.Name, b.Name))
	})
}

// WorkName is the ManifestWork that an AppliedManifestWork of this name stands for, if it is of the hub with the hash.
func WorkName(hubHash, appliedName string) (work string, ours bool) {
	return strings.CutPrefix(appliedName, fleet.AppliedManifestWorkName(hubHash, ""))
}
