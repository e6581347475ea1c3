package placement

import (
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1beta1 "github.com/capstan-io/capstan/api/cluster/v1beta1"
	scheduler "github.com/capstan-io/capstan/internal/placement"
	"github.com/capstan-io/capstan/internal/placement/decisions"
)

// bind writes what a placement selects: first the decisions, which others act on, then the status that says so. again is
// when scores that are held back may be written; zero if there are none. A placement that makes no sense keeps the
// decisions it has: whoever changes them does so in vain.
func (c *Controller) bind(ctx context.Context, owner *clusterv1beta1.Placement, result *scheduler.Result) (again time.Time, err error) {
	if len(validation.IsValidLabelValue(owner.Name)) > 0 { // it is misconfigured, and no PlacementDecision can be found by it
		return time.Time{}, c.writeStatus(ctx, owner, result, nil)
	}
	existing, taken, err := decisionsOf(ctx, c.client, client.ObjectKeyFromObject(owner))
	if err != nil {
		return time.Time{}, err
	}
	plan := decisions.New(owner, result, existing, taken, c.clock.Now())
	for i := range plan.Writes {
		if err := c.write(ctx, owner, result, plan, &plan.Writes[i]); err != nil {
			return time.Time{}, err
		}
	}
	for _, name := range plan.Deletes {
		if err := c.remove(ctx, owner, name); err != nil {
			return time.Time{}, err
		}
	}
	return plan.ScoresDue, c.writeStatus(ctx, owner, result, plan)
}

func (c *Controller) write(ctx context.Context, owner *clusterv1beta1.Placement, result *scheduler.Result, plan *decisions.Plan,
	w *decisions.Write) error {
	selected := w.Decision.Status.DeepCopy()
	switch {
	case w.Create:
		if err := c.client.Create(ctx, w.Decision); err != nil {
			return fmt.Errorf("create PlacementDecision %s: %w", client.ObjectKeyFromObject(w.Decision), err)
		}
	case w.Metadata:
		if err := c.client.Update(ctx, w.Decision); err != nil {
			return fmt.Errorf("update PlacementDecision %s: %w", client.ObjectKeyFromObject(w.Decision), err)
		}
	}
	if w.Status {
		w.Decision.Status = *selected
		if err := c.client.Status().Update(ctx, w.Decision); err != nil {
			return fmt.Errorf("update the status of PlacementDecision %s: %w", client.ObjectKeyFromObject(w.Decision), err)
		}
		// What the API server notes is what the next look will find stored.
		if plan.ScoresWritten = decisions.WrittenAt(w.Decision); plan.ScoresWritten.IsZero() {
			plan.ScoresWritten = c.clock.Now()
		}
		c.tellWritten(owner, result, w)
	}
	return nil
}

func (c *Controller) remove(ctx context.Context, owner *clusterv1beta1.Placement, name string) error {
	decision := &clusterv1beta1.PlacementDecision{ObjectMeta: metav1.ObjectMeta{Namespace: owner.Namespace, Name: name}}
	if err := c.client.Delete(ctx, decision); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("delete PlacementDecision %s: %w", client.ObjectKeyFromObject(decision), err)
	}
	c.tellRemoved(owner, decision)
	return nil
}

// writeStatus writes the conditions, the number of selected clusters and the decision groups of a Placement. Without a plan there are no
// decisions, and that part of the status is left out.
func (c *Controller) writeStatus(ctx context.Context, owner *clusterv1beta1.Placement, result *scheduler.Result,
	plan *decisions.Plan) error {
	before := owner.DeepCopy()
	now := metav1.NewTime(c.clock.Now())
	for _, condition := range []metav1.Condition{result.Satisfied, result.ConditionMisconfigured()} {
		condition.ObservedGeneration, condition.LastTransitionTime = owner.Generation, now
		meta.SetStatusCondition(&owner.Status.Conditions, condition)
	}
	if plan != nil {
		owner.Status.NumberOfSelectedClusters = int32(result.Selected)
		owner.Status.DecisionGroups = plan.Groups
		if noted := owner.Status.LastScoreUpdateTime; noted == nil || plan.ScoresWritten.After(noted.Time) {
			owner.Status.LastScoreUpdateTime = ptr.To(metav1.NewTime(plan.ScoresWritten))
		}
	}
	if equality.Semantic.DeepEqual(before.Status, owner.Status) {
		return nil
	}
	// A whole object costs the API server less than a patch, and it is the same lock.
	if err := c.client.Status().Update(ctx, owner); err != nil {
		return fmt.Errorf("update the status of Placement %s: %w", client.ObjectKeyFromObject(owner), err)
	}
	return nil
}
