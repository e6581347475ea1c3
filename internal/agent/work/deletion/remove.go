package deletion

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"golang.org/x/sync/errgroup"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/retry"

	workv1 "github.com/capstan-io/capstan/api/work/v1"
	"github.com/capstan-io/capstan/internal/agent/work/appliedmanifestwork"
	"github.com/capstan-io/capstan/internal/agent/work/tracker"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
)

// request is a deletion that was requested.
type request struct {
	// revision is that of the object then.
	revision tracker.Revision
	// finalizers are those that the object has, if it was read since.
	finalizers []string
}

// removeAll deletes resources that the AppliedManifestWork owns, and returns those that are still there: being deleted, or
// not deleted because of the error. An object that was created again is left alone; one that is not owned, or that other works own as well,
// only loses this owner, and what says which fields its work names. The tracker notifies the owner when a remaining one has gone.
func (c *Cluster) removeAll(ctx context.Context, amw *workv1.AppliedManifestWork,
	resources []workv1.AppliedManifestResourceMeta) (remaining []workv1.AppliedManifestResourceMeta, err error) {
	notRequested := func(r workv1.AppliedManifestResourceMeta) bool { return !c.isWaitedFor(amw, r) }
	//nolint:contextcheck // the watch of a kind goes on when the call that started it has ended
	return c.each(amw, "delete", resources, notRequested,
		func(r *workv1.AppliedManifestResourceMeta) (bool, error) { return c.remove(ctx, amw, r) })
}

// atOnce is how many objects of one AppliedManifestWork are deleted, or released, at a time. The API server batches concurrent
// writes; many more would only wait there, and delay the requests of other clients.
const atOnce = 16

// each calls do for those resources that are due, many at a time. Objects whose deletion deletes others, namespaces and definitions, come
// last, after all others are done: in a namespace that is being deleted, the propagation policies of objects have no effect any more.
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
		case c.isKnownToBeGone(after[i]):
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

// rank is 0 for a resource whose deletion deletes no others. Namespaces come after definitions: they may hold objects that
// are deleted with the definition of their kind. It reads nothing that removing an object changes meanwhile.
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
	recorded := appliedmanifestwork.Object(*r)
	c.Tracked.Track(amw.Name, recorded)
	if gone, err = do(r); err != nil {
		err = fmt.Errorf("%s %s %s: %w", verb, r.Resource, recorded.NamespacedName, err)
	}
	if now := appliedmanifestwork.Object(*r); now != recorded {
		c.Tracked.Forget(amw.Name, recorded)
		c.Tracked.Track(amw.Name, now)
	}
	if gone {
		c.forget(amw, *r)
	}
	return gone, err
}

func (c *Cluster) forget(amw *workv1.AppliedManifestWork, r workv1.AppliedManifestResourceMeta) {
	c.Tracked.Forget(amw.Name, appliedmanifestwork.Object(r))
	c.requested.Delete(r.UID)
}

// isKnownToBeGone reports whether an object that was to be deleted is known to be gone.
func (c *Cluster) isKnownToBeGone(r workv1.AppliedManifestResourceMeta) bool {
	_, requested := c.requested.Load(r.UID)
	revision, known := c.Tracked.Revision(appliedmanifestwork.Object(r))
	return requested && known && revision == ""
}

// isWaitedFor reports whether an object that was to be deleted is known not to have changed since.
func (c *Cluster) isWaitedFor(amw *workv1.AppliedManifestWork, r workv1.AppliedManifestResourceMeta) bool {
	requested, ok := c.requested.Load(r.UID)
	if !ok || switchedToBackground(amw, requested.(request).finalizers) {
		return false
	}
	revision, known := c.Tracked.Revision(appliedmanifestwork.Object(r))
	return known && revision == requested.(request).revision
}

func (c *Cluster) remove(ctx context.Context, amw *workv1.AppliedManifestWork, r *workv1.AppliedManifestResourceMeta) (gone bool,
	err error) {
	if requested, err := c.removeUnread(ctx, amw, r); requested || err != nil {
		return false, err
	}
	// A conflict is the change of another writer: it may have given the object to another work.
	err = retry.RetryOnConflict(retry.DefaultRetry, func() error {
		gone, err = c.tryRemove(ctx, amw, r)
		return err
	})
	return gone, err
}

// removeUnread deletes an object of which the tracker knows that it is the work's alone, and reports whether the API server agreed.
func (c *Cluster) removeUnread(ctx context.Context, amw *workv1.AppliedManifestWork, r *workv1.AppliedManifestResourceMeta) (requested bool,
	err error) {
	o := appliedmanifestwork.Object(*r)
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
		return false, nil // it is not what it was, or not served in this version any more: reading it shows that
	}
	if err == nil {
		c.requested.Store(r.UID, request{revision: revision})
	}
	return err == nil, err
}

// tryRemove fails with a conflict if the object changes before what was decided about it is done.
func (c *Cluster) tryRemove(ctx context.Context, amw *workv1.AppliedManifestWork, r *workv1.AppliedManifestResourceMeta) (gone bool,
	err error) {
	resource, live, err := c.find(ctx, r)
	if err != nil || live == nil {
		return err == nil, err
	}
	if !owns(amw, live) || shared(amw, live) {
		err := disown(ctx, resource, amw, live)
		return err == nil, err
	}
	r.UID = string(live.UID)
	if live.DeletionTimestamp != nil && !switchedToBackground(amw, live.Finalizers) {
		c.recordRequest(*r, live)
		return false, nil
	}
	preconditions := &metav1.Preconditions{UID: &live.UID, ResourceVersion: &live.ResourceVersion}
	if live.DeletionTimestamp != nil {
		// An object that is being deleted gets no new owner, and an API server refuses any version for one that loses its last finalizer by this.
		preconditions.ResourceVersion = nil
	}
	err = resource.Delete(ctx, r.Name, metav1.DeleteOptions{Preconditions: preconditions, PropagationPolicy: new(propagation(amw))})
	if apierrors.IsNotFound(err) {
		return true, nil // another client deleted it
	}
	if err == nil {
		c.recordRequest(*r, live)
	}
	return false, err
}

// recordRequest remembers that an object is to go.
func (c *Cluster) recordRequest(r workv1.AppliedManifestResourceMeta, live *metav1.PartialObjectMetadata) {
	o := appliedmanifestwork.Object(r)
	c.Tracked.Saw(o, live)
	c.requested.Store(r.UID, request{revision: tracker.RevisionOf(o.GroupResource(), live), finalizers: live.Finalizers})
}

// propagation is Background unless the work requests Foreground explicitly: that the objects have dependents to wait
// for costs a round through the garbage collector for each.
func propagation(amw *workv1.AppliedManifestWork) metav1.DeletionPropagation {
	if amw.Annotations[fleet.AnnotationPropagationPolicy] == string(metav1.DeletePropagationForeground) {
		return metav1.DeletePropagationForeground
	}
	return metav1.DeletePropagationBackground
}

// switchedToBackground reports whether an object with the finalizers, which is being deleted, is not to wait for its dependents any more:
// the delete option of the work has changed. The API server removes the finalizer at another delete request with another policy.
func switchedToBackground(amw *workv1.AppliedManifestWork, finalizers []string) bool {
	return amw.Annotations[fleet.AnnotationPropagationPolicy] == string(metav1.DeletePropagationBackground) &&
		slices.Contains(finalizers, metav1.FinalizerDeleteDependents)
}
