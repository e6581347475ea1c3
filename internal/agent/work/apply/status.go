package apply

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	workv1 "github.com/capstan-io/capstan/api/work/v1"
	"github.com/capstan-io/capstan/internal/agent/work/applied"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
	"github.com/capstan-io/capstan/internal/machinery/text"
)

// report writes what became of the manifests to the work's status, in one request, if any of it is news. That a work is
// complete is the last that is said of it, so it waits until everything else is written down.
func (c *Controller) report(ctx context.Context, work *workv1.ManifestWork, outcomes []outcome, recorded func() error) error {
	if !c.updateStatus(work, outcomes) {
		return nil
	}
	if isComplete(work) && recorded() != nil {
		return nil // its error brings the work back
	}
	return c.writeStatus(ctx, work)
}

// reportDeleting says that the work is being deleted, and what delays that, if anything does.
func (c *Controller) reportDeleting(ctx context.Context, work *workv1.ManifestWork, delay *applied.Delay) error {
	before := slices.Clone(work.Status.Conditions)
	c.setCondition(&work.Status.Conditions, metav1.Condition{
		Type: fleet.ConditionDeleting, Status: metav1.ConditionTrue, Reason: fleet.ReasonWorkDeleting,
		Message: deleting(work, delay), ObservedGeneration: work.Generation,
	})
	if equality.Semantic.DeepEqual(before, work.Status.Conditions) {
		return nil
	}
	return c.writeStatus(ctx, work)
}

func deleting(work *workv1.ManifestWork, delay *applied.Delay) string {
	const message = "What the work has applied is being deleted from the managed cluster"
	if delay == nil {
		return message
	}
	var reasons []string
	for _, r := range delay.Reasons {
		reasons = append(reasons, clip(r))
	}
	if more := delay.Left - len(reasons); more > 0 {
		reasons = append(reasons, fmt.Sprintf("and %d more", more))
	}
	explanation := fmt.Sprintf("%s. There is no progress, with %s left: %s", message, text.Count(delay.Left, "object"),
		strings.Join(reasons, "; "))
	if delay.Dependents {
		explanation += fmt.Sprintf(". If the cluster runs no garbage collector, that has no end; to wait for no dependents, run: kubectl -n %s patch manifestwork %s "+
			`--type=merge -p '{"spec":{"deleteOption":null}}'`, work.Namespace, work.Name)
	}
	return explanation
}

// writeStatus sends the status alone: the API server looks at nothing else here, and the manifests may be a megabyte.
func (c *Controller) writeStatus(ctx context.Context, work *workv1.ManifestWork) error {
	status := &workv1.ManifestWork{Status: work.Status}
	status.Namespace, status.Name, status.UID, status.ResourceVersion = work.Namespace, work.Name, work.UID, work.ResourceVersion
	if err := c.backlog.observe(c.hub.Status().Update(ctx, status)); err != nil {
		if apierrors.IsNotFound(err) {
			return nil
		}
		return fmt.Errorf("update the status of ManifestWork %s: %w", work.Name, err)
	}
	work.ResourceVersion, work.Status = status.ResourceVersion, status.Status
	return nil
}

// updateStatus changes the status of the work to what the outcomes say and tells whether that changed anything. What others
// say there stays.
func (c *Controller) updateStatus(work *workv1.ManifestWork, outcomes []outcome) bool {
	before := work.Status.DeepCopy()
	manifests := make([]workv1.ManifestCondition, 0, len(outcomes))
	for i := range outcomes {
		manifests = append(manifests, c.manifestStatus(work, &outcomes[i]))
	}
	work.Status.ResourceStatus.Manifests = manifests
	c.setCondition(&work.Status.Conditions, appliedCondition(work, outcomes))
	c.setCondition(&work.Status.Conditions, availableCondition(work, outcomes))
	c.aggregate(work, outcomes)
	return !equality.Semantic.DeepEqual(before, &work.Status)
}

// setCondition sets a condition. Its time is that of the last change of its status.
func (c *Controller) setCondition(conditions *[]metav1.Condition, cond metav1.Condition) {
	cond.LastTransitionTime = metav1.NewTime(c.Clock.Now())
	meta.SetStatusCondition(conditions, cond)
}

// renewCondition sets a condition that begins anew under a new generation, even if it says the same. So does Applied of a
// manifest, and what is derived from its object: a rollout counts the time from when that was found of what it wrote.
func (c *Controller) renewCondition(conditions *[]metav1.Condition, cond metav1.Condition) {
	now := meta.FindStatusCondition(*conditions, cond.Type)
	if now == nil || now.ObservedGeneration == cond.ObservedGeneration {
		c.setCondition(conditions, cond)
		return
	}
	c.beginCondition(conditions, cond)
}

// beginCondition sets a condition anew, in its place.
func (c *Controller) beginCondition(conditions *[]metav1.Condition, cond metav1.Condition) {
	c.setCondition(conditions, cond)
	meta.FindStatusCondition(*conditions, cond.Type).LastTransitionTime = metav1.NewTime(c.Clock.Now())
}

func (c *Controller) manifestStatus(work *workv1.ManifestWork, o *outcome) workv1.ManifestCondition {
	resource := o.resourceMeta()
	status := workv1.ManifestCondition{ResourceMeta: resource}
	if old := findStatus(work.Status.ResourceStatus.Manifests, resource); old != nil {
		status.StatusFeedbacks = *old.StatusFeedbacks.DeepCopy()
		status.Conditions = append(status.Conditions, old.Conditions...)
	}
	applied, available := o.appliedCondition(), o.availableCondition()
	applied.ObservedGeneration, available.ObservedGeneration = work.Generation, work.Generation
	c.renewCondition(&status.Conditions, applied)
	c.setCondition(&status.Conditions, available)
	c.reportReading(work, o, &status)
	return status
}

// resourceMeta is how the status of a work names the manifest's object.
func (o *outcome) resourceMeta() workv1.ManifestResourceMeta {
	resource := workv1.ManifestResourceMeta{
		Ordinal: int32(o.ordinal), Group: o.identity.Group, Version: o.identity.Version, Kind: o.identity.Kind,
		Name: o.identity.Name, Namespace: o.identity.Namespace,
	}
	if o.resolved {
		resource.Resource = o.mapping.Resource.Resource
	}
	return resource
}

// findStatus finds a manifest's old status even if the manifest has moved within the list.
func findStatus(manifests []workv1.ManifestCondition, resource workv1.ManifestResourceMeta) *workv1.ManifestCondition {
	var moved *workv1.ManifestCondition
	for i := range manifests {
		old := manifests[i].ResourceMeta
		if old == resource {
			return &manifests[i]
		}
		old.Ordinal = resource.Ordinal
		if old == resource && moved == nil {
			moved = &manifests[i]
		}
	}
	return moved
}

func (o *outcome) appliedCondition() metav1.Condition {
	cond := metav1.Condition{Type: fleet.ConditionApplied, Status: metav1.ConditionTrue, Reason: fleet.ReasonAppliedManifestComplete,
		Message: "Apply manifest complete"}
	if o.err != nil {
		cond.Status, cond.Reason, cond.Message = metav1.ConditionFalse, o.failure(), "Failed to apply manifest: "+clip(o.err.Error())
	}
	return cond
}

// availableCondition says whether the object exists; that is all that available means, whether it was applied or not.
func (o *outcome) availableCondition() metav1.Condition {
	cond := metav1.Condition{Type: fleet.ConditionAvailable}
	switch {
	case o.presence == present:
		cond.Status, cond.Reason, cond.Message = metav1.ConditionTrue, fleet.ReasonResourceAvailable, "Resource is available"
	case o.presence == absent:
		cond.Status, cond.Reason, cond.Message = metav1.ConditionFalse, fleet.ReasonResourceNotAvailable, "Resource is not available"
	case o.identity.Name == "":
		cond.Status, cond.Reason, cond.Message = metav1.ConditionUnknown, fleet.ReasonIncompleteResourceMeta,
			"The manifest does not say which resource it is about"
	default:
		cond.Status, cond.Reason, cond.Message = metav1.ConditionUnknown, fleet.ReasonFetchingResourceFailed,
			"It could not be found out whether the resource exists"
	}
	return cond
}

// appliedCondition tells whether all manifests are applied. The message names those that failed, up to its maximum length.
func appliedCondition(work *workv1.ManifestWork, outcomes []outcome) metav1.Condition {
	var failed []string
	for _, o := range outcomes {
		if o.err != nil {
			failed = append(failed, clip(o.err.Error()))
		}
	}
	cond := metav1.Condition{
		Type: fleet.ConditionApplied, Status: metav1.ConditionTrue, Reason: fleet.ReasonAppliedManifestWorkComplete,
		Message: "Apply manifest work complete", ObservedGeneration: work.Generation,
	}
	if len(failed) > 0 {
		cond.Status, cond.Reason = metav1.ConditionFalse, fleet.ReasonAppliedManifestWorkFailed
		cond.Message = fmt.Sprintf("%d of %d manifests failed to apply: %s", len(failed), len(outcomes), summary(failed))
	}
	return cond
}

// maxMessage is how many bytes of an error are reported. An API server may quote all of an object that it refuses; a hub that
// is sent more than a condition holds refuses the whole status, and a thousand such messages have to fit into one object.
const maxMessage = 1024

func clip(message string) string { return clipTo(message, maxMessage) }

func clipTo(message string, limit int) string {
	if len(message) <= limit {
		return message
	}
	return strings.ToValidUTF8(message[:limit], "") + " ..."
}

// maxSummary is how many failures a message spells out; all of them are at their manifests.
const maxSummary = 3

func summary(failed []string) string {
	if more := len(failed) - maxSummary; more > 0 {
		return fmt.Sprintf("%s; and %d more", strings.Join(failed[:maxSummary], "; "), more)
	}
	return strings.Join(failed, "; ")
}

// availableCondition tells whether all objects of the work exist.
func availableCondition(work *workv1.ManifestWork, outcomes []outcome) metav1.Condition {
	count := map[presence]int{}
	for _, o := range outcomes {
		count[o.presence]++
	}
	cond := metav1.Condition{Type: fleet.ConditionAvailable, ObservedGeneration: work.Generation}
	switch {
	case count[absent] > 0:
		cond.Status, cond.Reason = metav1.ConditionFalse, fleet.ReasonResourcesNotAvailable
		cond.Message = fmt.Sprintf("%d of %d resources are not available", count[absent], len(outcomes))
	case count[unknown] > 0:
		cond.Status, cond.Reason = metav1.ConditionUnknown, fleet.ReasonResourcesStatusUnknown
		cond.Message = fmt.Sprintf("%d of %d resources have unknown status", count[unknown], len(outcomes))
	default:
		cond.Status, cond.Reason = metav1.ConditionTrue, fleet.ReasonResourcesAvailable
		cond.Message = "All resources are available"
	}
	return cond
}
