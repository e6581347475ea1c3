// Package appliedmanifestwork has the rules by which an AppliedManifestWork represents a ManifestWork on the managed cluster.
package appliedmanifestwork

import (
	"cmp"
	"slices"
	"strings"
	"sync"

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

// Agent is who applies works.
type Agent struct {
	// ID is recorded with what the agent applies, for whatever hub.
	ID string
	// HubHash distinguishes works of its hub from those of others.
	HubHash string
	// Cluster is the name of its cluster on that hub.
	Cluster string
}

// Made reports whether the agent made an AppliedManifestWork, for any hub. The ID of a work agent in its own process may be the hash of
// the hub, which is the same for all agents.
func (a Agent) Made(amw *workv1.AppliedManifestWork) bool {
	return amw.Spec.AgentID == a.ID && a.ID != a.HubHash
}

// OtherCluster is the cluster of the hub that an AppliedManifestWork says it is of, if that is not the cluster of the agent; empty if the
// agent made it, perhaps when its cluster had another name, or if it names no cluster: agents of the original do not write that.
func (a Agent) OtherCluster(amw *workv1.AppliedManifestWork) string {
	if name := amw.Annotations[fleet.AnnotationClusterName]; name != a.Cluster && !a.Made(amw) {
		return name
	}
	return ""
}

// Names knows which AppliedManifestWork stands for which ManifestWork of a hub. Its methods may be called at any time, from anywhere.
type Names struct {
	// HubHash distinguishes works of this hub from those of others.
	HubHash string
	// shortened are the ManifestWorks by the names of their AppliedManifestWorks, where these do not end in theirs.
	shortened sync.Map
}

// Of is the name of the AppliedManifestWork that stands for a ManifestWork.
func (n *Names) Of(work string) string {
	name := fleet.AppliedManifestWorkName(n.HubHash, work)
	if !strings.HasSuffix(name, work) {
		n.shortened.Store(name, work)
	}
	return name
}

// WorkOf is the ManifestWork that an AppliedManifestWork stands for, if it is of this hub. A shortened name is known once Of was called.
func (n *Names) WorkOf(appliedName string) (work string, ours bool) {
	if work, is := n.shortened.Load(appliedName); is {
		return work.(string), true //nolint:forcetypeassert // Of stores strings
	}
	return strings.CutPrefix(appliedName, n.HubHash+"-")
}
