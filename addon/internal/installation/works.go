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

// worksOf are the works of an add-on, in the namespace of its cluster and in those of hosting clusters. They are the cache's
// own and must not be changed.
func (c *Controller) worksOf(ctx context.Context, addOn types.NamespacedName) ([]workv1.ManifestWork, error) {
	works := &workv1.ManifestWorkList{}
	if err := c.client.List(ctx, works, client.MatchingFields{indexOwner: addOn.String()}, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("list the works of the add-on %s: %w", addOn, err)
	}
	return works.Items, nil
}

// carryOut writes what was planned. The finalizers come first: from the moment there is something to clean up, it will be. New works
// are among those of the add-on from now on, so that this pass says of them what the next one would.
func (p *pass) carryOut(ctx context.Context, plan workload.Plan) error {
	if err := p.hold(ctx, plan.Finalizers); err != nil {
		return err
	}
	for _, work := range plan.Create {
		err := p.client.Create(ctx, work)
		if apierrors.HasStatusCause(err, fleet.CauseClusterTakesNoWorks) {
			continue // the cluster goes, and is about to bring the add-on back for that
		}
		if err != nil {
			return &workError{p.explain(err, work), work}
		}
		p.works = append(p.works, *work)
	}
	for _, work := range plan.Update {
		before := p.find(client.ObjectKeyFromObject(work))
		if before == nil {
			return fmt.Errorf("ManifestWork %s/%s is planned to be changed but does not exist", work.Namespace, work.Name)
		}
		if _, err := patch.Object(ctx, p.client, work, before); err != nil {
			return &workError{err, work}
		}
	}
	for _, work := range plan.Delete {
		if err := p.remove(ctx, work); err != nil {
			return &workError{err, work}
		}
	}
	return nil
}

// workError is that a work could not be written or deleted.
type workError struct {
	error
	work *workv1.ManifestWork
}

func (e *workError) Unwrap() error { return e.error }

// explain says what to do about a work that cannot be created.
func (p *pass) explain(err error, work *workv1.ManifestWork) error {
	if apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("ManifestWork %s/%s exists and is not one of this add-on: delete or rename it", work.Namespace, work.Name)
	}
	return fmt.Errorf("create ManifestWork %s/%s: %w", work.Namespace, work.Name, err)
}

func (p *pass) find(key types.NamespacedName) *workv1.ManifestWork {
	for i := range p.works {
		if client.ObjectKeyFromObject(&p.works[i]) == key {
			return p.works[i].DeepCopy()
		}
	}
	return nil
}

// remove deletes exactly this work, not another one of its name.
func (p *pass) remove(ctx context.Context, work *workv1.ManifestWork) error {
	if !work.DeletionTimestamp.IsZero() {
		return nil
	}
	err := p.client.Delete(ctx, work.DeepCopy(), client.Preconditions{UID: &work.UID})
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("delete ManifestWork %s/%s: %w", work.Namespace, work.Name, err)
	}
	return nil
}
