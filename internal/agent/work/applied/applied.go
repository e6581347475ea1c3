// Package applied knows how an AppliedManifestWork stands for a ManifestWork on the managed cluster, and how what it owns
// is taken away again.
package applied

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/metadata"
	"sigs.k8s.io/controller-runtime/pkg/client"

	workv1 "github.com/capstan-io/capstan/api/work/v1"
	"github.com/capstan-io/capstan/internal/agent/work/tracker"
	"github.com/capstan-io/capstan/internal/fleet"
)

const kind = "AppliedManifestWork"

// OwnerReference is what every object of the work carries (WK-11).
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

// Remove deletes resources that the AppliedManifestWork owns, and returns those that are still there: being deleted, or
// not deleted because of the error. An object that somebody made anew, or that is not owned any more, is left alone; one
// that other works own as well only loses this owner (WK-13). The tracker tells the owner when a remaining one has gone.
func Remove(ctx context.Context, objects metadata.Interface, tracked *tracker.Tracker, amw *workv1.AppliedManifestWork,
	resources []workv1.AppliedManifestResourceMeta) (remaining []workv1.AppliedManifestResourceMeta, err error) {
	var failures []error
	for _, r := range resources {
		tracked.Track(amw.Name, Object(r))
		gone, err := remove(ctx, objects, amw, r)
		if err != nil {
			failures = append(failures, fmt.Errorf("delete %s %s: %w", r.Resource, Object(r).NamespacedName, err))
		}
		if gone {
			tracked.Forget(amw.Name, Object(r))
		} else {
			remaining = append(remaining, r)
		}
	}
	return remaining, errors.Join(failures...)
}

func remove(ctx context.Context, objects metadata.Interface, amw *workv1.AppliedManifestWork, r workv1.AppliedManifestResourceMeta) (gone bool, err error) {
	o := Object(r)
	resource := objects.Resource(o.GroupVersionResource).Namespace(o.Namespace)
	live, err := resource.Get(ctx, o.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return true, nil
	}
	if err != nil {
		return false, err
	}
	if string(live.UID) != r.UID || !owns(amw, live) {
		return true, nil
	}
	if shared(amw, live) {
		return true, disown(ctx, resource, amw, live)
	}
	if live.DeletionTimestamp != nil {
		return false, nil
	}
	err = resource.Delete(ctx, o.Name, metav1.DeleteOptions{
		Preconditions:     &metav1.Preconditions{UID: &live.UID},
		PropagationPolicy: new(metav1.DeletePropagationBackground),
	})
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return true, nil // somebody else deleted it, and perhaps made another
	}
	return false, err
}

func owns(amw *workv1.AppliedManifestWork, live *metav1.PartialObjectMetadata) bool {
	return slices.ContainsFunc(live.OwnerReferences, func(o metav1.OwnerReference) bool { return o.UID == amw.UID })
}

// shared tells whether another work owns the object as well.
func shared(amw *workv1.AppliedManifestWork, live *metav1.PartialObjectMetadata) bool {
	return slices.ContainsFunc(live.OwnerReferences, func(o metav1.OwnerReference) bool {
		gv, err := schema.ParseGroupVersion(o.APIVersion)
		return err == nil && gv.Group == workv1.GroupVersion.Group && o.Kind == kind && o.UID != amw.UID
	})
}

func disown(ctx context.Context, resource metadata.ResourceInterface, amw *workv1.AppliedManifestWork, live *metav1.PartialObjectMetadata) error {
	without := live.DeepCopy()
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
