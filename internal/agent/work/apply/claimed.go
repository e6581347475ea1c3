package apply

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	ctrl "sigs.k8s.io/controller-runtime"

	workv1 "github.com/capstan-io/capstan/api/work/v1"
	"github.com/capstan-io/capstan/internal/agent/work/appliedmanifestwork"
	"github.com/capstan-io/capstan/internal/agent/work/conditions"
	"github.com/capstan-io/capstan/internal/agent/work/predecessor"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
)

// A cluster may have joined one hub twice, under two names. The name of an AppliedManifestWork is the same for both, so of two
// works of one name the first has it, and the second is refused: two agents that both take it for theirs would keep deleting what
// the other has applied. A cluster that is not on the hub any more has no agent that does.

// claimed is why the AppliedManifestWork is not this agent's; nil if it is, or if its cluster has left the hub.
func (c *Controller) claimed(ctx context.Context, amw *workv1.AppliedManifestWork) *conditions.ClaimedError {
	owner := appliedmanifestwork.Agent{ID: c.AgentID, HubHash: c.HubHash, Cluster: c.Namespace}.OtherCluster(amw)
	if owner == "" {
		return nil
	}
	left, err := c.Clusters.Left(ctx, owner)
	if left {
		return nil
	}
	return &conditions.ClaimedError{Applied: amw.Name, Work: amw.Spec.ManifestWorkName, Cluster: c.Namespace, Owner: owner, Doubt: err}
}

// refuse reports that the work is not applied. The end of the other's AppliedManifestWork, or a change of it, requeues the work.
// There is no event when the other cluster leaves the hub, so the hub is checked again after a while.
func (c *Controller) refuse(ctx context.Context, work *workv1.ManifestWork, claimed *conditions.ClaimedError) (ctrl.Result, error) {
	again := ctrl.Result{RequeueAfter: predecessor.PollInterval}
	c.forget(work.Name)
	if !conditions.Refuse(work, claimed, c.Clock.Now()) {
		return again, nil
	}
	if err := c.writeStatus(ctx, work); err != nil {
		return ctrl.Result{}, err
	}
	c.Record(work, corev1.EventTypeWarning, fleet.EventManifestApplyFailed, "Apply", conditions.Clip(claimed.Error(), maxNote))
	return again, nil
}
