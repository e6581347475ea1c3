package apply

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	workv1 "github.com/capstan-io/capstan/api/work/v1"
	"github.com/capstan-io/capstan/internal/agent/work/appliedmanifestwork"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
	"github.com/capstan-io/capstan/internal/machinery/manifest"
	"github.com/capstan-io/capstan/internal/machinery/patch"
)

// prepare puts the finalizer on the work and ensures its AppliedManifestWork, both at once: the finalizer has to be
// there before any object that it cleans up, but an AppliedManifestWork that owns nothing needs no clean-up. It returns nil while an
// earlier AppliedManifestWork of the work is being deleted: the event of its end requeues the work.
func (c *Controller) prepare(ctx context.Context, work *workv1.ManifestWork, named string) (*workv1.AppliedManifestWork, error) {
	fresh := c.newApplied(work, named)
	var finalizerErr, ensureErr error
	var amw *workv1.AppliedManifestWork
	var both sync.WaitGroup
	if !controllerutil.ContainsFinalizer(work, fleet.FinalizerManifestWorkCleanup) {
		both.Go(func() {
			finalizerErr = c.backlog.observe(patch.AddFinalizer(ctx, c.hub, work, fleet.FinalizerManifestWorkCleanup))
		})
	}
	both.Go(func() { amw, ensureErr = c.ensureApplied(ctx, fresh) })
	both.Wait()
	if finalizerErr == nil {
		return amw, ensureErr
	}
	finalizerErr = fmt.Errorf("add the finalizer to ManifestWork %s: %w", fresh.Spec.ManifestWorkName, finalizerErr)
	if amw == fresh {
		// The work may have gone, and nothing would ever delete its AppliedManifestWork.
		ensureErr = client.IgnoreNotFound(c.managed.Delete(ctx, amw))
	}
	return nil, errors.Join(finalizerErr, ensureErr)
}

// ensureApplied creates the AppliedManifestWork, or takes on the one that exists. It returns fresh if it created that, and nil while an
// earlier one is being deleted. The error is a *conditions.ClaimedError if it belongs to a work of another cluster.
func (c *Controller) ensureApplied(ctx context.Context, fresh *workv1.AppliedManifestWork) (*workv1.AppliedManifestWork, error) {
	name := fresh.Name
	amw := &workv1.AppliedManifestWork{}
	err := c.managed.Get(ctx, types.NamespacedName{Name: name}, amw)
	switch {
	case apierrors.IsNotFound(err):
		if err := c.managed.Create(ctx, fresh); err != nil {
			return nil, fmt.Errorf("create AppliedManifestWork %s: %w", name, err)
		}
		return fresh, nil
	case err != nil:
		return nil, fmt.Errorf("get AppliedManifestWork %s: %w", name, err)
	}
	if claimed := c.claimed(ctx, amw); claimed != nil {
		return nil, claimed
	}
	if !amw.DeletionTimestamp.IsZero() {
		return nil, nil
	}
	return amw, c.updateApplied(ctx, amw, fresh)
}

// updateApplied makes an earlier AppliedManifestWork say what a fresh one would, before anything is applied. What it named
// and its status does not list goes to the status first: it may have been applied, and no annotation will name it.
func (c *Controller) updateApplied(ctx context.Context, amw, fresh *workv1.AppliedManifestWork) error {
	if amw.Annotations[fleet.AnnotationManifests] != fresh.Annotations[fleet.AnnotationManifests] {
		if err := c.recordUnlisted(ctx, amw); err != nil {
			return err
		}
	}
	return appliedmanifestwork.Describe(ctx, c.managed, amw, fresh)
}

// recordUnlisted lists in the status what was named and may have been applied without being listed. Mostly, that is nothing:
// an agent that was not interrupted has listed it all.
func (c *Controller) recordUnlisted(ctx context.Context, amw *workv1.AppliedManifestWork) error {
	all, err := appliedmanifestwork.Inventory(c.managed.RESTMapper(), amw)
	if err != nil {
		return err
	}
	return appliedmanifestwork.WriteInventory(ctx, c.managed, amw, all)
}

func (c *Controller) newApplied(work *workv1.ManifestWork, named string) *workv1.AppliedManifestWork {
	amw := &workv1.AppliedManifestWork{Spec: workv1.AppliedManifestWorkSpec{
		HubHash: c.HubHash, AgentID: c.AgentID, ManifestWorkName: work.Name,
	}}
	amw.Name = c.names.Of(work.Name)
	amw.Labels = maps.Clone(work.Labels)
	amw.Finalizers = []string{fleet.FinalizerAppliedManifestWorkCleanup}
	amw.Annotations = map[string]string{fleet.AnnotationClusterName: c.Namespace}
	if source := work.Annotations[fleet.AnnotationWorkSource]; c.NamesSources && source != "" {
		amw.Annotations[fleet.AnnotationWorkSource] = source
	}
	if named != "" {
		amw.Annotations[fleet.AnnotationManifests] = named
	}
	if manifest.NamesForeground(work.Spec.DeleteOption) {
		amw.Annotations[fleet.AnnotationPropagationPolicy] = string(metav1.DeletePropagationForeground)
	}
	return amw
}

// namedBy is what the work names, as its AppliedManifestWork writes it down.
func namedBy(work *workv1.ManifestWork, last *workResult) string {
	if last != nil && last.work == work.UID && last.generation == work.Generation {
		return last.named
	}
	var named []manifest.Identity
	for _, m := range manifest.Decode(work.Spec.Workload.Manifests) {
		if m.Err == nil {
			named = append(named, manifest.Identify(m.Object))
		}
	}
	return appliedmanifestwork.EncodeNamed(named)
}
