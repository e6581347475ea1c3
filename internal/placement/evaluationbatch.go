package placement

import (
	"context"
	"math"
	"slices"
	"time"

	"github.com/capstan-io/capstan/internal/placement/celselector"
)

// batch is a number of clusters of an evaluation, to evaluate without holding the lock.
type batch struct {
	queue      *evaluationQueue
	evaluation *celEvaluation
	items      []batchItem
	now        time.Time
	costs      *celselector.Costs
}

// batchItem is one cluster of a batch, and its result.
type batchItem struct {
	of        *cluster
	cluster   cluster // as it was when the batch was made
	evaluated bool
	matched   bool
	cost      int64
}

// Evaluate evaluates CEL expressions for a batch of clusters. It may take long, and does not hold the lock meanwhile. It returns the
// placements that may be affected, and when to call it again; zero is after the next event or Schedule. Several goroutines may call it:
// they work on different namespaces. It evaluates no more when ctx has ended.
func (s *Scheduler) Evaluate(ctx context.Context, now time.Time) (changed []Key, again time.Time) {
	affected := affected{}
	b, again := s.nextBatch(ctx, now, affected)
	if b != nil {
		b.run(s.framework.timed)
		s.complete(b, affected)
		again = now
	}
	return affected.keys(), again
}

// nextBatch returns a batch of the namespace with the most budget left, out of those that have no running batch. If none has budget left,
// again is when one has.
func (s *Scheduler) nextBatch(ctx context.Context, now time.Time, affected affected) (b *batch, again time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.evaluations.advanceBudget(now)
	for {
		next, left := s.evaluations.nextQueue(affected)
		switch {
		case next == nil:
			s.evaluations.dropIdle()
			return nil, time.Time{}
		case left <= 0:
			return nil, now.Add(time.Duration((1 - left) / celRate * float64(time.Second)))
		}
		if b = s.classes.nextBatchOf(ctx, next, affected); b != nil {
			return b, time.Time{}
		}
	}
}

// nextBatchOf returns a batch of the first evaluation in a queue that has clusters to evaluate; nil if none has.
func (cc *classCache) nextBatchOf(ctx context.Context, q *evaluationQueue, affected affected) *batch {
	for len(q.waiting) > 0 {
		e := q.waiting[0]
		q.waiting = q.waiting[1:]
		if e.current() && !e.overBudget {
			if len(e.waiting) > 0 {
				return cc.snapshot.newBatch(ctx, q, e, batchClusters, math.MaxInt64)
			}
			cc.completeIfEvaluated(e, affected)
		}
		e.queued = false
	}
	return nil
}

// newBatch pops up to n clusters of an evaluation. Once they have cost as much as limit, ctx has ended, or the evaluation is cancelled, no
// other one matches.
func (sn *snapshot) newBatch(ctx context.Context, q *evaluationQueue, e *celEvaluation, n int, limit int64) *batch {
	q.running = true
	ctx, e.interrupt = context.WithCancel(ctx)
	b := &batch{queue: q, evaluation: e, now: sn.now, costs: celselector.NewCosts(ctx, limit)}
	for _, c := range e.pop(n) {
		b.items = append(b.items, batchItem{of: c, cluster: *c})
	}
	return b
}

// run evaluates the clusters of the batch until their cost reaches batchCost.
func (b *batch) run(timed func(PluginType, string) func()) {
	defer timed(PluginFilter, FilterPredicate)()
	defer timed(PluginCEL, "")()
	b.evaluate(func() bool { return b.costs.Spent() >= batchCost || b.costs.Ended() })
}

// evaluate evaluates one cluster after the other until stop returns true.
func (b *batch) evaluate(stop func() bool) {
	for i := range b.items {
		if stop() {
			return
		}
		item, before := &b.items[i], b.costs.Spent()
		item.matched = b.evaluation.class.profile.match(&item.cluster, b.now, b.costs)
		item.evaluated, item.cost = !b.costs.Ended(), b.costs.Spent()-before
	}
}

// complete sets the results of a batch.
func (s *Scheduler) complete(b *batch, affected affected) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.evaluations.done(b)
	e := b.evaluation
	e.queued = false
	if !e.current() {
		return
	}
	var left []*cluster // that the batch did not come to
	for i := range b.items {
		switch item := &b.items[i]; {
		case !item.evaluated:
			left = append(left, item.of)
		case e.class.has(item.of):
			s.classes.applyResult(e, item, affected)
		}
	}
	e.requeue(left)
	s.classes.completeIfEvaluated(e, affected)
	s.evaluations.enqueue(e) // there may be more clusters to evaluate
}

// applyResult sets the result of one member of the cluster sets, and updates the class if it has changed.
func (cc *classCache) applyResult(e *celEvaluation, item *batchItem, affected affected) {
	result := e.result(item.of)
	switch {
	case e.overBudget, result.upToDate: // labels and claims have turned out to be enough
		return
	case !result.evaluated:
		result.cost = uint32(min(item.cost, math.MaxUint32)) //nolint:gosec // nothing costs less than 0
		if e.cost += int64(result.cost); e.cost > cc.evaluations.celBudget && !e.complete {
			e.overBudget = true
			e.class.addAll(affected)
			return
		}
	}
	was := result.matched
	// If the cluster has changed meanwhile, it waits to be evaluated again.
	result.evaluated, result.matched, result.upToDate = true, item.matched, !result.waiting
	if e.complete && was != item.matched {
		cc.updateClass(e.class, clusterChange{cluster: item.of, old: *item.of, celResult: true}, affected)
	}
}

// completeIfEvaluated ends the wait of the pending placements of a class once all members were evaluated.
func (cc *classCache) completeIfEvaluated(e *celEvaluation, affected affected) {
	waits := func(c *cluster) bool { return !e.result(c).evaluated }
	if !e.complete && !e.overBudget && !slices.ContainsFunc(e.waiting, waits) {
		e.complete, e.deferred = true, false
		cc.dropCandidates(e.class) // they were computed without CEL results
		e.class.addAll(affected)
	}
}
