package placement

import (
	"math"
	"slices"
	"time"

	"github.com/capstan-io/capstan/internal/placement/celselector"
)

// batch is a number of clusters to evaluate without holding the lock, in the state in which they were when it was made.
type batch struct {
	queue       *evaluationQueue
	evaluations []*celEvaluation
	items       []batchItem
	now         time.Time
	costs       *celselector.Costs
}

// batchItem is one cluster of a batch, and its result.
type batchItem struct {
	evaluation *celEvaluation
	of         *cluster
	cluster    cluster // as it was when the batch was made
	done       bool
	matched    bool
	cost       int64
}

// Evaluate evaluates CEL expressions for a batch of clusters. It may take long, and does not hold the lock meanwhile. It returns the
// placements that may be affected, and when to call it again; zero is after the next event or Schedule. Several goroutines may call it:
// they work on different namespaces.
func (s *Scheduler) Evaluate(now time.Time) (changed []Key, again time.Time) {
	affected := affected{}
	b, again := s.nextBatch(now, affected)
	if b != nil {
		b.run(s.framework.timed)
		s.complete(b, affected)
		again = now
	}
	return affected.keys(), again
}

// nextBatch returns a batch of the namespace with the most budget left, out of those that have no running batch. If none has budget left,
// again is when one has.
func (s *Scheduler) nextBatch(now time.Time, affected affected) (b *batch, again time.Time) {
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
		if b = s.classes.newBatch(next, affected); b != nil {
			return b, time.Time{}
		}
	}
}

// newBatch takes evaluations from the front of a queue; it returns nil if none has anything to evaluate.
func (s *classCache) newBatch(q *evaluationQueue, affected affected) *batch {
	b := &batch{queue: q, now: s.snapshot.now, costs: celselector.NewCosts(math.MaxInt64)}
	for len(q.waiting) > 0 && len(b.items) < batchClusters {
		e := q.waiting[0]
		q.waiting = q.waiting[1:]
		if !e.current() || e.overBudget {
			e.queued = false
			continue
		}
		if before := len(b.items); b.addItems(e) == before {
			e.queued = false
			s.completeIfEvaluated(e, affected)
			continue
		}
		b.evaluations = append(b.evaluations, e)
	}
	if len(b.items) == 0 {
		return nil
	}
	q.running = true
	return b
}

// addItems moves waiting clusters of an evaluation to a batch, and returns how many the batch has.
func (b *batch) addItems(e *celEvaluation) int {
	for _, c := range e.pop(batchClusters - len(b.items)) {
		b.items = append(b.items, batchItem{evaluation: e, of: c, cluster: *c})
	}
	return len(b.items)
}

// run evaluates the clusters of the batch until their cost reaches batchCost.
func (b *batch) run(timed func(PluginType, string) func()) {
	defer timed(PluginFilter, FilterPredicate)()
	defer timed(PluginCEL, "")()
	for i := range b.items {
		if b.costs.Spent() >= batchCost {
			return
		}
		if !b.items[i].evaluation.cancelled.Load() {
			b.items[i].match(b.now, b.costs)
		}
	}
}

func (item *batchItem) match(now time.Time, costs *celselector.Costs) {
	before := costs.Spent()
	item.matched = item.evaluation.class.profile.match(&item.cluster, now, costs)
	item.done, item.cost = !costs.Exceeded(), costs.Spent()-before
}

// complete sets the results of a batch.
func (s *Scheduler) complete(b *batch, affected affected) {
	s.mu.Lock()
	defer s.mu.Unlock()
	b.queue.running = false
	s.evaluations.charge(b.queue.limiter, b.costs.Spent())
	for i := range b.items {
		if item := &b.items[i]; item.done && item.evaluation.current() && item.evaluation.class.has(item.of) {
			s.classes.applyResult(item, affected)
		}
	}
	for _, e := range b.evaluations {
		e.queued = false
		if !e.current() {
			continue
		}
		e.requeue(b.undone(e))
		if e.complete || !s.classes.completeIfEvaluated(e, affected) {
			s.evaluations.enqueue(e) // there may be more clusters to evaluate
		}
	}
}

// undone returns the clusters of an evaluation for which the batch was too costly.
func (b *batch) undone(e *celEvaluation) []*cluster {
	var clusters []*cluster
	for i := range b.items {
		if b.items[i].evaluation == e && !b.items[i].done {
			clusters = append(clusters, b.items[i].of)
		}
	}
	return clusters
}

// applyResult sets the result of one member of the cluster sets, and updates the class if it has changed.
func (s *classCache) applyResult(item *batchItem, affected affected) {
	e, result := item.evaluation, item.evaluation.result(item.of)
	switch {
	case e.overBudget, result.upToDate: // labels and claims have turned out to be enough
		return
	case !result.evaluated:
		if e.cost += item.cost; e.cost > s.evaluations.celBudget && !e.complete {
			e.overBudget = true
			e.class.addAll(affected)
			return
		}
	}
	was := result.matched
	// If the cluster has changed meanwhile, it waits to be evaluated again.
	result.evaluated, result.matched, result.upToDate = true, item.matched, !result.waiting
	if e.complete && was != item.matched {
		s.updateClass(e.class, clusterChange{cluster: item.of, old: *item.of, celResult: true}, affected)
	}
}

// completeIfEvaluated ends the wait of the pending placements of a class once all members were evaluated.
func (s *classCache) completeIfEvaluated(e *celEvaluation, affected affected) bool {
	waits := func(c *cluster) bool { return !e.result(c).evaluated }
	if !e.complete && !e.overBudget && !slices.ContainsFunc(e.waiting, waits) {
		e.complete, e.deferred = true, false
		s.dropCandidates(e.class) // they were computed without CEL results
		e.class.addAll(affected)
	}
	return e.complete
}
