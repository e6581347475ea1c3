package deletion

import (
	"context"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/metadata"
	"sigs.k8s.io/controller-runtime/pkg/client"

	workv1 "github.com/capstan-io/capstan/api/work/v1"
	"github.com/capstan-io/capstan/internal/agent/work/appliedmanifestwork"
	"github.com/capstan-io/capstan/internal/agent/work/tracker"
)

// release makes resources not be owned by the AppliedManifestWork any more, and not say which fields it names, without deleting them. It
// returns those that still do, because of the error.
func (c *Cluster) release(ctx context.Context, amw *workv1.AppliedManifestWork,
	resources []workv1.AppliedManifestResourceMeta) (remaining []workv1.AppliedManifestResourceMeta, err error) {
	all := func(workv1.AppliedManifestResourceMeta) bool { return true }
	//nolint:contextcheck // the watch of a kind goes on when the call that started it has ended
	return c.each(amw, "release", resources, all, func(r *workv1.AppliedManifestResourceMeta) (bool, error) {
		resource, live, err := c.find(ctx, r)
		if err != nil || live == nil {
			return err == nil, err
		}
		err = disown(ctx, resource, amw, live)
		return err == nil, err
	})
}

// find returns the object of a recorded resource if it is the one that was recorded, else nil. A version that is not served any more is
// replaced in the record by the one that is preferred now.
func (c *Cluster) find(ctx context.Context, r *workv1.AppliedManifestResourceMeta) (metadata.ResourceInterface,
	*metav1.PartialObjectMetadata, error) {
	o := appliedmanifestwork.Object(*r)
	resource := c.Objects.Resource(o.GroupVersionResource).Namespace(o.Namespace)
	live, err := resource.Get(ctx, o.Name, metav1.GetOptions{})
	if tracker.IsUnserved(err) {
		var served bool
		if served, err = c.another(ctx, r); err != nil || !served {
			return nil, nil, err
		}
		o = appliedmanifestwork.Object(*r)
		resource = c.Objects.Resource(o.GroupVersionResource).Namespace(o.Namespace)
		live, err = resource.Get(ctx, o.Name, metav1.GetOptions{})
	}
	if apierrors.IsNotFound(err) {
		return nil, nil, nil
	}
	if err != nil {
		return nil, nil, err
	}
	if r.UID != "" && string(live.UID) != r.UID {
		return nil, nil, nil
	}
	return resource, live, nil
}

// another makes the record name the version of the group that the API server prefers, of those in which it serves the
// resource, and reports whether there is one: objects of a resource that is served in none are out of reach, or gone.
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

// shared reports whether another work owns the object as well.
func shared(amw *workv1.AppliedManifestWork, live *metav1.PartialObjectMetadata) bool {
	return slices.ContainsFunc(live.OwnerReferences, func(o metav1.OwnerReference) bool { return o.UID != amw.UID && tracker.IsWork(o) })
}

// disown takes the owner off the object, and the annotation that says which fields its work names: that is there also if the work has never
// owned the object.
func disown(ctx context.Context, resource metadata.ResourceInterface, amw *workv1.AppliedManifestWork,
	live *metav1.PartialObjectMetadata) error {
	key := appliedmanifestwork.FieldsAnnotation(amw.Name)
	if _, named := live.Annotations[key]; !named && !owns(amw, live) {
		return nil
	}
	without := live.DeepCopy()
	delete(without.Annotations, key)
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
