package placement

import (
	"context"
	"fmt"
	"slices"
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

// bind writes a result: first the PlacementDecisions, which other controllers act on, then the status of the Placement. again is when
// scores that were delayed because of scoreRateLimit may be written; zero if there are none. For a misconfigured placement, bind
// restores the decisions that it has, in case another writer has changed them. For a pending one, it writes nothing but that it lost some.
func (c *Controller) bind(ctx context.Context, owner *clusterv1beta1.Placement, result *scheduler.Result) (again time.Time, err error) {
	if len(validation.IsValidLabelValue(owner.Name)) > 0 { // it is misconfigured, and cannot have PlacementDecisions with its label
		return time.Time{}, c.writeStatus(ctx, owner, result, nil)
	}
	existing, taken, err := decisionsOf(ctx, c.client, client.ObjectKeyFromObject(owner))
	if err != nil {
		return time.Time{}, err
	}
	if result.Pending && !withdraw(result, ofPlacement(slices.Clone(existing), owner.UID)) {
		return time.Time{}, nil
	}
	plan := decisions.New(owner, result, existing, taken, c.clock.Now())
	for i := range plan.Writes {
		if err := c.writeDecision(ctx, owner, result, plan, &plan.Writes[i]); err != nil {
			return time.Time{}, err
		}
	}
	for _, name := range plan.Deletes {
		if err := c.deleteDecision(ctx, owner, name); err != nil {
			return time.Time{}, err
		}
	}
	return plan.ScoresDue, c.writeStatus(ctx, owner, result, plan)
}

// withdraw turns the result of a pending placement into what it has stored, with its reasons and scores, without the clusters that the
// placement may not keep. It reports whether such a cluster is stored. Clusters that another writer has removed come back once the CEL
// expressions are evaluated.
func withdraw(result *scheduler.Result, stored []*clusterv1beta1.PlacementDecision) bool {
	keeps := map[string]bool{}
	for _, group := range result.Groups {
		for _, decision := range group.Decisions {
			keeps[decision.ClusterName] = true
		}
	}
	before := 0
	result.Groups, result.Selected = decisions.GroupsOf(stored), 0
	for i := range result.Groups {
		group := &result.Groups[i]
		before += len(group.Decisions)
		group.Decisions = slices.DeleteFunc(group.Decisions, func(d clusterv1beta1.ClusterDecision) bool { return !keeps[d.ClusterName] })
		result.Selected += len(group.Decisions)
	}
	return result.Selected < before
}

func (c *Controller) writeDecision(ctx context.Context, owner *clusterv1beta1.Placement, result *scheduler.Result, plan *decisions.Plan,
	w *decisions.Write) error {
	status := w.Decision.Status.DeepCopy()
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
	if !w.Status {
		return nil
	}
	w.Decision.Status = *status
	if err := c.client.Status().Update(ctx, w.Decision); err != nil {
		return fmt.Errorf("update the status of PlacementDecision %s: %w", client.ObjectKeyFromObject(w.Decision), err)
	}
	// The time that the API server has recorded is the one that the next reconcile reads.
	if plan.ScoresWritten = decisions.WrittenAt(w.Decision); plan.ScoresWritten.IsZero() {
		plan.ScoresWritten = c.clock.Now()
	}
	c.recordWritten(owner, result, w)
	return nil
}

func (c *Controller) deleteDecision(ctx context.Context, owner *clusterv1beta1.Placement, name string) error {
	decision := &clusterv1beta1.PlacementDecision{ObjectMeta: metav1.ObjectMeta{Namespace: owner.Namespace, Name: name}}
	if err := c.client.Delete(ctx, decision); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("delete PlacementDecision %s: %w", client.ObjectKeyFromObject(decision), err)
	}
	c.recordDeleted(owner, decision)
	return nil
}

// writeStatus writes the conditions, the number of selected clusters and the decision groups of a Placement. Without a plan, only the
// conditions. While a placement is pending, its conditions are those of before.
func (c *Controller) writeStatus(ctx context.Context, owner *clusterv1beta1.Placement, result *scheduler.Result,
	plan *decisions.Plan) error {
	before := owner.DeepCopy()
	now := metav1.NewTime(c.clock.Now())
	conditions := []metav1.Condition{result.Satisfied, result.ConditionMisconfigured()}
	if result.Pending {
		conditions = nil
	}
	for _, condition := range conditions {
		condition.ObservedGeneration, condition.LastTransitionTime = owner.Generation, now
		meta.SetStatusCondition(&owner.Status.Conditions, condition)
	}
	if plan != nil {
		owner.Status.NumberOfSelectedClusters = int32(result.Selected) //nolint:gosec // the number of clusters is far below the limit
		owner.Status.DecisionGroups = plan.Groups
		if last := owner.Status.LastScoreUpdateTime; last == nil || plan.ScoresWritten.After(last.Time) {
			owner.Status.LastScoreUpdateTime = ptr.To(metav1.NewTime(plan.ScoresWritten))
		}
	}
	if equality.Semantic.DeepEqual(before.Status, owner.Status) {
		return nil
	}
	// An update costs the API server less than a patch, and has the same optimistic lock.
	if err := c.client.Status().Update(ctx, owner); err != nil {
		return fmt.Errorf("update the status of Placement %s: %w", client.ObjectKeyFromObject(owner), err)
	}
	return nil
}
