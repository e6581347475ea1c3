package placement

import (
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1beta1 "github.com/capstan-io/capstan/api/cluster/v1beta1"
	scheduler "github.com/capstan-io/capstan/internal/placement"
	"github.com/capstan-io/capstan/internal/placement/decisions"
)

// staleRetry is the pause before another look when what was read is behind what was written.
const staleRetry = 20 * time.Millisecond

// bind writes what a placement selects: first the decisions, which others act on, then the status that says so. again is
// when scores that are held back may be written; zero if there are none. A placement that makes no sense keeps the
// decisions it has (PL-26).
func (c *Controller) bind(ctx context.Context, owner *clusterv1beta1.Placement, result *scheduler.Result) (again time.Time, err error) {
	if result.Misconfigured != nil {
		return time.Time{}, c.writeStatus(ctx, owner, result, nil)
	}
	existing, err := c.decisionsOf(ctx, owner)
	if err != nil {
		return time.Time{}, err
	}
	plan := decisions.New(owner, result, existing, c.clock.Now())
	for i := range plan.Writes {
		if err := c.write(ctx, owner, result, &plan.Writes[i]); err != nil {
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

func (c *Controller) decisionsOf(ctx context.Context, owner *clusterv1beta1.Placement) (existing []*clusterv1beta1.PlacementDecision, err error) {
	list := &clusterv1beta1.PlacementDecisionList{}
	if err := c.client.List(ctx, list, client.InNamespace(owner.Namespace), client.MatchingFields{byPlacement: owner.Name}); err != nil {
		return nil, fmt.Errorf("list the decisions of Placement %s: %w", client.ObjectKeyFromObject(owner), err)
	}
	for i := range list.Items {
		existing = append(existing, &list.Items[i])
	}
	return existing, nil
}

func (c *Controller) write(ctx context.Context, owner *clusterv1beta1.Placement, result *scheduler.Result, w *decisions.Write) error {
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

// writeStatus is PL-17 to PL-19. Without a plan the decisions stayed as they were, and so does what the status says of them.
func (c *Controller) writeStatus(ctx context.Context, owner *clusterv1beta1.Placement, result *scheduler.Result, plan *decisions.Plan) error {
	before := owner.DeepCopy()
	now := metav1.NewTime(c.clock.Now())
	for _, condition := range []metav1.Condition{result.Satisfied, result.ConditionMisconfigured()} {
		condition.ObservedGeneration, condition.LastTransitionTime = owner.Generation, now
		meta.SetStatusCondition(&owner.Status.Conditions, condition)
	}
	if plan != nil {
		owner.Status.NumberOfSelectedClusters = int32(result.Selected)
		owner.Status.DecisionGroups = plan.Groups
		if plan.ScoresWritten {
			owner.Status.LastScoreUpdateTime = &now
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
