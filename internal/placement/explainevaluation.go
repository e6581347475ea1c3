package placement

import (
	"context"
	"maps"
	"slices"
	"time"

	clusterv1beta1 "github.com/capstan-io/capstan/api/cluster/v1beta1"
	"github.com/capstan-io/capstan/internal/placement/celselector"
)

// evaluateForExplain applies the CEL expressions of a placement to all clusters. It returns nil if there is nothing to evaluate, or the
// explanations of the namespace have used up their budget, or ctx has ended.
func (s *Scheduler) evaluateForExplain(ctx context.Context, object *clusterv1beta1.Placement) *celEvaluation {
	b := s.newExplainBatch(ctx, object)
	if b == nil {
		return nil
	}
	b.evaluate(b.costs.Ended)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.evaluations.done(b)
	if ctx.Err() != nil {
		return nil
	}
	e := b.evaluation
	for i := range b.items {
		// The result is good enough for a cluster that has changed in the meantime.
		if item := &b.items[i]; e.class.has(item.of) {
			e.setResult(item.of, item.matched)
		}
	}
	e.complete, e.overBudget = !b.costs.Exceeded(), b.costs.Exceeded()
	return e
}

// newExplainBatch returns a batch of the clusters of a placement for which labels and claims are not enough. It is nil if there is nothing
// to evaluate, or no budget for it.
func (s *Scheduler) newExplainBatch(ctx context.Context, object *clusterv1beta1.Placement) *batch {
	s.mu.Lock()
	defer s.mu.Unlock()
	spec, _ := parseSpec(object)
	sets := s.snapshot.setsOf(object)
	if spec == nil || !spec.profile.cel || len(sets) == 0 {
		return nil
	}
	if class := s.classes.byKey[classKey(object.Namespace, sets, spec.profile)]; class != nil && !class.pending() {
		return nil
	}
	q := queueOf(s.evaluations.explainQueues, object.Namespace)
	if q.running || q.limiter.TokensAt(s.evaluations.budgetTime) <= 0 {
		return nil
	}
	class := &equivalenceClass{namespace: object.Namespace, sets: sets, profile: spec.profile}
	s.snapshot.prepareEvaluation(class)
	return s.snapshot.newBatch(ctx, q, class.evaluation, len(class.evaluation.waiting), s.evaluations.celBudget)
}

// chargeExplanation charges what an explanation has cost to the explanations of the namespace.
func (s *Scheduler) chargeExplanation(namespace string, costs *celselector.Costs) {
	if costs.Spent() == 0 {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.evaluations.charge(queueOf(s.evaluations.explainQueues, namespace).limiter, costs.Spent())
}

// mismatchCost limits the cost of CEL expressions for the reasons why clusters do not match, in one explanation.
const mismatchCost = 500_000

// mismatches are the clusters of an explanation that match no predicate. The reasons are found without holding the lock, as that may
// evaluate CEL expressions.
type mismatches struct {
	profile  *profile
	now      time.Time
	costs    *celselector.Costs
	clusters map[int]cluster // by index in Explanation.Clusters
}

func (m *mismatches) explain(ctx context.Context, e *Explanation) {
	for _, i := range slices.Sorted(maps.Keys(m.clusters)) {
		if ctx.Err() != nil {
			return
		}
		c := m.clusters[i]
		e.Clusters[i].Reason = m.profile.mismatchReason(&c, m.now, m.costs)
	}
}
