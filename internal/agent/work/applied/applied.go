// Package applied knows how an AppliedManifestWork stands for a ManifestWork on the managed cluster, and how what it owns
// is taken away again.
package applied

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"golang.org/x/sync/errgroup"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"

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

// Cluster is where the objects are.
type Cluster struct {
	Objects metadata.Interface
	// Discovery tells which resources are served, and in which version.
	Discovery discovery.DiscoveryInterfaceWithContext
	Tracked   *tracker.Tracker
	// asked has the objects whose deletion was asked for, by UID: of these, the tracker is trusted when it reports that they have
	// gone, or that nothing has happened yet, so that a work of a thousand objects does not ask for each of them again.
	asked  sync.Map
	delays delays
}

// request is a deletion that was asked for.
type request struct {
	// revision is that of the object then.
	revision tracker.Revision
	// finalizers are those that the object has, if it was read since.
	finalizers []string
}

// Remove deletes resources that the AppliedManifestWork owns, and returns those that are still there: being deleted, or
// not deleted because of the error. An object that somebody made anew, or that is not owned any more, is left alone; one
// that other works own as well only loses this owner. The tracker tells the owner when a remaining one has gone.
func (c *Cluster) Remove(ctx context.Context, amw *workv1.AppliedManifestWork,
	resources []workv1.AppliedManifestResourceMeta) (remaining []workv1.AppliedManifestResourceMeta, err error) {
	unasked := func(r workv1.AppliedManifestResourceMeta) bool { return !c.isWaitedFor(amw, r) }
	return c.each(amw, "delete", resources, unasked,
		func(r *workv1.AppliedManifestResourceMeta) (bool, error) { return c.remove(ctx, amw, r) })
}

// Release makes resources not be owned by the AppliedManifestWork any more, without deleting them. It returns those
// that still are, because of the error.
func (c *Cluster) Release(ctx context.Context, amw *workv1.AppliedManifestWork,
	resources []workv1.AppliedManifestResourceMeta) (remaining []workv1.AppliedManifestResourceMeta, err error) {
	all := func(workv1.AppliedManifestResourceMeta) bool { return true }
	return c.each(amw, "release", resources, all, func(r *workv1.AppliedManifestResourceMeta) (bool, error) {
		resource, live, err := c.find(ctx, amw, r)
		if err != nil || live == nil {
			return err == nil, err
		}
		err = disown(ctx, resource, amw, live)
		return err == nil, err
	})
}

// atOnce is how many objects of one AppliedManifestWork are deleted, or released, at a time. The API server writes together what
// comes together; many more would only wait there, and hold up what comes from others.
const atOnce = 16

// each does something with those resources that are due, many at a time. But what takes others with it, on its own terms, comes last,
// and waits for all that come before it: in a namespace that is being deleted the propagation policies of objects have no effect any more.
func (c *Cluster) each(amw *workv1.AppliedManifestWork, verb string, resources []workv1.AppliedManifestResourceMeta,
	due func(workv1.AppliedManifestResourceMeta) bool,
	do func(*workv1.AppliedManifestResourceMeta) (gone bool, err error)) (remaining []workv1.AppliedManifestResourceMeta, err error) {
	after := slices.SortedStableFunc(slices.Values(resources), func(a, b workv1.AppliedManifestResourceMeta) int {
		return cmp.Compare(rank(&a), rank(&b))
	})
	gone, failures := make([]bool, len(after)), make([]error, len(after))
	var group errgroup.Group
	group.SetLimit(atOnce)
	for i := range after {
		if i > 0 && rank(&after[i]) > rank(&after[i-1]) {
			_ = group.Wait() // the errors are in failures
		}
		switch {
		case c.wasSeenToGo(after[i]):
			gone[i] = true
			c.forget(amw, after[i])
		case due(after[i]):
			group.Go(func() error {
				gone[i], failures[i] = c.one(amw, verb, &after[i], do)
				return nil
			})
		}
	}
	_ = group.Wait() // the same
	for i, r := range after {
		if !gone[i] {
			remaining = append(remaining, r)
		}
	}
	return remaining, errors.Join(failures...)
}

// rank is 0 of a resource of which no object takes others with it. Namespaces come after definitions: they may hold objects that
// go with the definition of their kind. It reads nothing that removing an object changes meanwhile.
func rank(r *workv1.AppliedManifestResourceMeta) int {
	switch {
	case r.Group == apiextensionsv1.GroupName && r.Resource == "customresourcedefinitions":
		return 1
	case r.Group == "" && r.Resource == "namespaces":
		return 2
	default:
		return 0
	}
}

// one has the object of a resource tracked as long as it is there. The resource is changed if it is served in another version.
func (c *Cluster) one(amw *workv1.AppliedManifestWork, verb string, r *workv1.AppliedManifestResourceMeta,
	do func(*workv1.AppliedManifestResourceMeta) (gone bool, err error)) (gone bool, err error) {
	recorded := Object(*r)
	c.Tracked.Track(amw.Name, recorded)
	if gone, err = do(r); err != nil {
		err = fmt.Errorf("%s %s %s: %w", verb, r.Resource, recorded.NamespacedName, err)
	}
	if now := Object(*r); now != recorded {
		c.Tracked.Forget(amw.Name, recorded)
		c.Tracked.Track(amw.Name, now)
	}
	if gone {
		c.forget(amw, *r)
	}
	return gone, err
}

func (c *Cluster) forget(amw *workv1.AppliedManifestWork, r workv1.AppliedManifestResourceMeta) {
	c.Tracked.Forget(amw.Name, Object(r))
	c.asked.Delete(r.UID)
}

// wasSeenToGo tells whether an object that was to be deleted is known to be gone.
func (c *Cluster) wasSeenToGo(r workv1.AppliedManifestResourceMeta) bool {
	_, asked := c.asked.Load(r.UID)
	revision, known := c.Tracked.Revision(Object(r))
	return asked && known && revision == ""
}

// isWaitedFor tells whether an object that was to be deleted is known not to have changed since.
func (c *Cluster) isWaitedFor(amw *workv1.AppliedManifestWork, r workv1.AppliedManifestResourceMeta) bool {
	asked, ok := c.asked.Load(r.UID)
	if !ok || insists(amw, asked.(request).finalizers) {
		return false
	}
	revision, known := c.Tracked.Revision(Object(r))
	return known && revision == asked.(request).revision
}

func (c *Cluster) remove(ctx context.Context, amw *workv1.AppliedManifestWork, r *workv1.AppliedManifestResourceMeta) (gone bool,
	err error) {
	if asked, err := c.removeUnread(ctx, amw, r); asked || err != nil {
		return false, err
	}
	// A conflict is somebody else's change: it may have given the object to another work.
	err = retry.RetryOnConflict(retry.DefaultRetry, func() error {
		gone, err = c.tryRemove(ctx, amw, r)
		return err
	})
	return gone, err
}

// removeUnread deletes an object of which the tracker knows that it is the work's alone, and tells whether the API server agreed.
func (c *Cluster) removeUnread(ctx context.Context, amw *workv1.AppliedManifestWork, r *workv1.AppliedManifestResourceMeta) (asked bool,
	err error) {
	o := Object(*r)
	version, revision := c.Tracked.Alone(o, amw.UID)
	if version == "" || r.UID == "" {
		return false, nil
	}
	uid := types.UID(r.UID)
	err = c.Objects.Resource(o.GroupVersionResource).Namespace(o.Namespace).Delete(ctx, o.Name, metav1.DeleteOptions{
		Preconditions:     &metav1.Preconditions{UID: &uid, ResourceVersion: &version},
		PropagationPolicy: new(propagation(amw)),
	})
	if apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
		return false, nil // it is not what it was, or not served in this version any more: reading it tells
	}
	if err == nil {
		c.asked.Store(r.UID, request{revision: revision})
	}
	return err == nil, err
}

// tryRemove fails with a conflict if the object changes before what was decided about it is done.
func (c *Cluster) tryRemove(ctx context.Context, amw *workv1.AppliedManifestWork, r *workv1.AppliedManifestResourceMeta) (gone bool,
	err error) {
	resource, live, err := c.find(ctx, amw, r)
	if err != nil || live == nil {
		return err == nil, err
	}
	if shared(amw, live) {
		err := disown(ctx, resource, amw, live)
		return err == nil, err
	}
	r.UID = string(live.UID)
	if live.DeletionTimestamp != nil && !insists(amw, live.Finalizers) {
		c.ask(*r, live)
		return false, nil
	}
	preconditions := &metav1.Preconditions{UID: &live.UID, ResourceVersion: &live.ResourceVersion}
	if live.DeletionTimestamp != nil {
		// Nobody takes over what is being deleted, and an API server refuses any version for what loses its last finalizer by this.
		preconditions.ResourceVersion = nil
	}
	err = resource.Delete(ctx, r.Name, metav1.DeleteOptions{Preconditions: preconditions, PropagationPolicy: new(propagation(amw))})
	if apierrors.IsNotFound(err) {
		return true, nil // somebody else deleted it
	}
	if err == nil {
		c.ask(*r, live)
	}
	return false, err
}

// ask remembers that an object is to go.
func (c *Cluster) ask(r workv1.AppliedManifestResourceMeta, live *metav1.PartialObjectMetadata) {
	c.Tracked.Saw(Object(r), live)
	c.asked.Store(r.UID, request{revision: tracker.RevisionOf(Object(r).GroupResource(), live), finalizers: live.Finalizers})
}

// propagation is Background unless the work asks for Foreground in so many words: that the objects have dependents to wait
// for costs a round through the garbage collector for each.
func propagation(amw *workv1.AppliedManifestWork) metav1.DeletionPropagation {
	if amw.Annotations[fleet.AnnotationPropagationPolicy] == string(metav1.DeletePropagationForeground) {
		return metav1.DeletePropagationForeground
	}
	return metav1.DeletePropagationBackground
}

// insists tells whether an object with the finalizers, which is being deleted, is not to wait for its dependents any more: the work
// has changed its mind. The API server lets go of it if the same is asked for with another policy.
func insists(amw *workv1.AppliedManifestWork, finalizers []string) bool {
	return amw.Annotations[fleet.AnnotationPropagationPolicy] == string(metav1.DeletePropagationBackground) &&
		slices.Contains(finalizers, metav1.FinalizerDeleteDependents)
}

// find returns the object of a recorded resource if it is the one that was recorded and still owned, else nil. A version that
// is not served any more is replaced in the record by the one that is preferred now.
func (c *Cluster) find(ctx context.Context, amw *workv1.AppliedManifestWork,
	r *workv1.AppliedManifestResourceMeta) (metadata.ResourceInterface, *metav1.PartialObjectMetadata, error) {
	o := Object(*r)
	resource := c.Objects.Resource(o.GroupVersionResource).Namespace(o.Namespace)
	live, err := resource.Get(ctx, o.Name, metav1.GetOptions{})
	if IsUnserved(err) {
		var served bool
		if served, err = c.another(ctx, r); err != nil || !served {
			return nil, nil, err
		}
		o = Object(*r)
		resource = c.Objects.Resource(o.GroupVersionResource).Namespace(o.Namespace)
		live, err = resource.Get(ctx, o.Name, metav1.GetOptions{})
	}
	if apierrors.IsNotFound(err) {
		return nil, nil, nil
	}
	if err != nil {
		return nil, nil, err
	}
	if r.UID != "" && string(live.UID) != r.UID || !owns(amw, live) {
		return nil, nil, nil
	}
	return resource, live, nil
}

// IsUnserved tells a resource that the API server does not know from an object that does not exist.
func IsUnserved(err error) bool {
	return apierrors.IsNotFound(err) && apierrors.HasStatusCause(err, metav1.CauseTypeUnexpectedServerResponse)
}

// another makes the record name the version of the group that the API server prefers, of those in which it serves the
// resource, and tells whether there is one: objects of a resource that is served in none are out of reach, or gone.
func (c *Cluster) another(ctx context.Context, r *workv1.AppliedManifestResourceMeta) (bool, error) {
	lists, err := c.Discovery.ServerPreferredResourcesWithContext(ctx)
	for _, list := range lists {
		gv, parseErr := schema.ParseGroupVersion(list.GroupVersion)
		if parseErr != nil || gv.Group != r.Group {
			continue
		}
		if slices.ContainsFunc(list.APIResources, func(served metav1.APIResource) bool { return served.Name == r.Resource }) {
			r.Version = gv.Version
			return true, nil
		}
	}
	if failed, partly := discovery.GroupDiscoveryFailedErrorGroups(err); partly {
		for gv, groupErr := range failed {
			if gv.Group == r.Group {
				return false, groupErr
			}
		}
		return false, nil
	}
	return false, err
}

func owns(amw *workv1.AppliedManifestWork, live *metav1.PartialObjectMetadata) bool {
	return slices.ContainsFunc(live.OwnerReferences, func(o metav1.OwnerReference) bool { return o.UID == amw.UID })
}

// shared tells whether another work owns the object as well.
func shared(amw *workv1.AppliedManifestWork, live *metav1.PartialObjectMetadata) bool {
	return slices.ContainsFunc(live.OwnerReferences, func(o metav1.OwnerReference) bool { return o.UID != amw.UID && tracker.IsWork(o) })
}

func disown(ctx context.Context, resource metadata.ResourceInterface, amw *workv1.AppliedManifestWork,
	live *metav1.PartialObjectMetadata) error {
	without := live.DeepCopy()
	delete(without.Annotations, FieldsAnnotation(amw.Name))
	without.OwnerReferences = slices.DeleteFunc(without.OwnerReferences, func(o metav1.OwnerReference) bool { return o.UID == amw.UID })
	patch, err := client.MergeFromWithOptions(live, client.MergeFromWithOptimisticLock{}).Data(without)
	if err != nil {
		return err
	}
	_, err = resource.Patch(ctx, live.Name, types.MergePatchType, patch, metav1.PatchOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// WorkName is the ManifestWork that an AppliedManifestWork of this name stands for, if it is of the hub with the hash.
func WorkName(hubHash, appliedName string) (work string, ours bool) {
	return strings.CutPrefix(appliedName, fleet.AppliedManifestWorkName(hubHash, ""))
}
