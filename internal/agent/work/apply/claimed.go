package apply

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	ctrl "sigs.k8s.io/controller-runtime"

	workv1 "github.com/capstan-io/capstan/api/work/v1"
	"github.com/capstan-io/capstan/internal/agent/work/predecessor"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
)

// A cluster may have joined one hub twice, under two names. The name of an AppliedManifestWork does not tell them apart, so of two
// works of one name the first has it, and the second is refused: two agents that both take it for theirs would for ever delete what
// the other has applied. A cluster that is not on the hub any more has no agent that would.

// claimedError is that an AppliedManifestWork stands for the work of another cluster of the hub.
type claimedError struct {
	applied, work, cluster, holder string
	// doubt is why it is not known whether the other cluster is still on the hub, if it is not.
	doubt error
}

func (e *claimedError) Error() string {
	text := fmt.Sprintf("this cluster has joined the hub as %[1]s as well, whose ManifestWork %[2]s holds AppliedManifestWork %[3]s here: "+
		"give one of the two works another name, or let one of the clusters leave. ManifestWork %[2]s of %[4]s takes over what was applied "+
		"when %[1]s is not on the hub any more", e.holder, e.work, e.applied, e.cluster)
	if e.doubt != nil {
		text += "; " + clip(e.doubt.Error())
	}
	return text + fmt.Sprintf(". It does so at once if you run on the managed cluster: kubectl annotate appliedmanifestwork %s %s-", e.applied,
		fleet.AnnotationClusterName)
}

// claimed is why the AppliedManifestWork is not this agent's, or nil. The agent's own from when its cluster had another name is, and
// so is that of a cluster which has left the hub, and one that does not say: agents of the original do not. A work agent alone may
// have no ID but the hub's.
func (c *Controller) claimed(ctx context.Context, amw *workv1.AppliedManifestWork) *claimedError {
	holder, said := amw.Annotations[fleet.AnnotationClusterName]
	if !said || holder == c.Namespace || amw.Spec.AgentID == c.AgentID && c.AgentID != c.HubHash {
		return nil
	}
	left, err := c.Clusters.Left(ctx, holder)
	if left {
		return nil
	}
	return &claimedError{applied: amw.Name, work: amw.Spec.ManifestWorkName, cluster: c.Namespace, holder: holder, doubt: err}
}

// refuse reports that the work is not applied. The end of the other's AppliedManifestWork, or a change of it, brings the work
// back; that the other cluster has left the hub is not to be seen, and is asked.
func (c *Controller) refuse(ctx context.Context, work *workv1.ManifestWork, claimed *claimedError) (ctrl.Result, error) {
	again := ctrl.Result{RequeueAfter: predecessor.Recheck}
	c.forget(work.Name)
	before := work.Status.DeepCopy()
	work.Status.ResourceStatus.Manifests = nil
	c.setCondition(&work.Status.Conditions, metav1.Condition{
		Type: fleet.ConditionApplied, Status: metav1.ConditionFalse, Reason: fleet.ReasonAppliedManifestWorkFailed,
		Message: claimed.Error(), ObservedGeneration: work.Generation,
	})
	c.setCondition(&work.Status.Conditions, metav1.Condition{
		Type: fleet.ConditionAvailable, Status: metav1.ConditionUnknown, Reason: fleet.ReasonResourcesStatusUnknown,
		Message: "The work is not applied", ObservedGeneration: work.Generation,
	})
	if equality.Semantic.DeepEqual(before, &work.Status) {
		return again, nil
	}
	if err := c.writeStatus(ctx, work); err != nil {
		return ctrl.Result{}, err
	}
	c.Record(work, corev1.EventTypeWarning, fleet.EventManifestApplyFailed, "Apply", clipTo(claimed.Error(), maxNote))
	return again, nil
}
