package installation

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capstan-io/capstan/addon/internal/workload"
	workv1 "github.com/capstan-io/capstan/api/work/v1"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
	"github.com/capstan-io/capstan/internal/machinery/patch"
)

// worksOf returns the works of an add-on, in the namespace of its cluster and in those of hosting clusters, straight from the cache:
// they must not be changed.
func (c *Controller) worksOf(ctx context.Context, addOn types.NamespacedName) ([]workv1.ManifestWork, error) {
	works := &workv1.ManifestWorkList{}
	if err := c.client.List(ctx, works, client.MatchingFields{indexOwner: addOn.String()}, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("list the works of the add-on %s: %w", addOn, err)
	}
	return works.Items, nil
}

// carryOut writes a plan. The finalizers come first, so that whatever is created later will be cleaned up. It adds created works to
// those of the pass, so that the conditions of this pass match those of the next one.
func (r *reconciliation) carryOut(ctx context.Context, plan workload.Plan) error {
	if err := r.addFinalizers(ctx, plan.Finalizers); err != nil {
		return err
	}
	for _, work := range plan.Create {
		err := r.client.Create(ctx, work)
		if apierrors.HasStatusCause(err, fleet.CauseClusterTakesNoWorks) {
			continue // the cluster is about to be gone, which is an event of the add-on
		}
		if err != nil {
			return &workError{r.explain(err, work), work}
		}
		r.works = append(r.works, *work)
	}
	for _, work := range plan.Update {
		before := r.find(client.ObjectKeyFromObject(work))
		if before == nil {
			return fmt.Errorf("ManifestWork %s/%s is planned to be changed but does not exist", work.Namespace, work.Name)
		}
		if _, err := patch.Object(ctx, r.client, work, before); err != nil {
			return &workError{err, work}
		}
	}
	for _, work := range plan.Delete {
		if err := r.remove(ctx, work); err != nil {
			return &workError{err, work}
		}
	}
	return nil
}

// workError is the error of a work that could not be written or deleted.
type workError struct {
	error
	work *workv1.ManifestWork
}

func (e *workError) Unwrap() error { return e.error }

// explain adds what to do to the error of a work that could not be created.
func (r *reconciliation) explain(err error, work *workv1.ManifestWork) error {
	if apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("ManifestWork %s/%s exists and is not one of this add-on: delete or rename it", work.Namespace, work.Name)
	}
	return fmt.Errorf("create ManifestWork %s/%s: %w", work.Namespace, work.Name, err)
}

func (r *reconciliation) find(key types.NamespacedName) *workv1.ManifestWork {
	for i := range r.works {
		if client.ObjectKeyFromObject(&r.works[i]) == key {
			return r.works[i].DeepCopy()
		}
	}
	return nil
}

// remove deletes this work, and not another one with the same name.
func (r *reconciliation) remove(ctx context.Context, work *workv1.ManifestWork) error {
	if !work.DeletionTimestamp.IsZero() {
		return nil
	}
	err := r.client.Delete(ctx, work.DeepCopy(), client.Preconditions{UID: &work.UID})
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("delete ManifestWork %s/%s: %w", work.Namespace, work.Name, err)
	}
	return nil
}
