package deletion

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	workv1 "github.com/capstan-io/capstan/api/work/v1"
	"github.com/capstan-io/capstan/internal/agent/work/appliedmanifestwork"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
	"github.com/capstan-io/capstan/internal/machinery/manifest"
)

// DeleteApplied deletes the AppliedManifestWork of a work that is being deleted, by the delete option as it is now, which may be newer than
// the last pass: fresh is the AppliedManifestWork that a pass would make now, with what amw names. If it is being deleted already, objects
// that the option orphans now are released, too, and its propagation policy may change.
func (c *Cluster) DeleteApplied(ctx context.Context, managed client.Client, work *workv1.ManifestWork,
	amw, fresh *workv1.AppliedManifestWork) error {
	err := c.releaseOrphans(ctx, managed, work, amw, fresh)
	if !amw.DeletionTimestamp.IsZero() {
		// How the other objects go does not depend on what cannot be released.
		return errors.Join(err, describeDeleting(ctx, managed, work, amw, fresh))
	}
	if err != nil {
		return err
	}
	if policy, ok := amw.Annotations[fleet.AnnotationPropagationPolicy]; ok && lacksSpec(work) {
		fresh.Annotations[fleet.AnnotationPropagationPolicy] = policy
	}
	if err := appliedmanifestwork.Describe(ctx, managed, amw, fresh); err != nil {
		return err
	}
	if err := managed.Delete(ctx, amw); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("delete AppliedManifestWork %s: %w", amw.Name, err)
	}
	return nil
}

// releaseOrphans releases the objects that the delete option of the work orphans. The status of amw then lists what it still owns, so that
// fresh need not name objects.
func (c *Cluster) releaseOrphans(ctx context.Context, managed client.Client, work *workv1.ManifestWork,
	amw, fresh *workv1.AppliedManifestWork) error {
	owned, orphans, err := divide(managed.RESTMapper(), work, amw)
	if err != nil || len(orphans) == 0 {
		return err
	}
	remaining, err := c.release(ctx, amw, orphans)
	err = errors.Join(err, appliedmanifestwork.WriteInventory(ctx, managed, amw, slices.Concat(owned, remaining)))
	if err == nil {
		delete(fresh.Annotations, fleet.AnnotationManifests)
	}
	return err
}

// divide tells which objects of a work go with it by its delete option, and which are orphaned.
func divide(mapper meta.RESTMapper, work *workv1.ManifestWork, amw *workv1.AppliedManifestWork) (
	owned, orphans []workv1.AppliedManifestResourceMeta, err error) {
	all, err := appliedmanifestwork.Inventory(mapper, amw)
	if err != nil {
		return nil, nil, err
	}
	for _, r := range all {
		strategy := manifest.ConfigFor(work.Spec.ManifestConfigs, r.ResourceIdentifier).UpdateStrategy.Type
		if manifest.IsOwned(work.Spec.DeleteOption, strategy, r.ResourceIdentifier) {
			owned = append(owned, r)
		} else {
			orphans = append(orphans, r)
		}
	}
	return owned, orphans, nil
}

// describeDeleting has an AppliedManifestWork that is being deleted name no objects any more if the status lists all of them, and say by
// which propagation policy they go if that has changed.
func describeDeleting(ctx context.Context, managed client.Client, work *workv1.ManifestWork, amw, fresh *workv1.AppliedManifestWork) error {
	changed := amw.DeepCopy()
	if _, named := fresh.Annotations[fleet.AnnotationManifests]; !named {
		delete(changed.Annotations, fleet.AnnotationManifests)
	}
	if !lacksSpec(work) {
		dropForeground(changed, fresh)
	}
	if maps.Equal(changed.Annotations, amw.Annotations) {
		return nil
	}
	if err := managed.Patch(ctx, changed, client.MergeFrom(amw)); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("change the annotations of AppliedManifestWork %s: %w", amw.Name, err)
	}
	return nil
}

// dropForeground has objects that wait for their dependents deleted at once if the work does not request that any more.
func dropForeground(amw, fresh *workv1.AppliedManifestWork) {
	const key = fleet.AnnotationPropagationPolicy
	if before, now := amw.Annotations[key], fresh.Annotations[key]; before != "" && before != now {
		amw.Annotations[key] = cmp.Or(now, string(metav1.DeletePropagationBackground))
	}
}

// lacksSpec reports whether nothing is known of the spec of a work that is being deleted: brokers send such a work without it, and an agent
// that has just started has not seen it before. What its AppliedManifestWork says of the deletion counts then.
func lacksSpec(work *workv1.ManifestWork) bool { return len(work.Spec.Workload.Manifests) == 0 }
