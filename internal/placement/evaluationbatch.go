package placement

import (
	"maps"
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
	cluster    cluster
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
		b.run(s.timed)
		s.finish(b, affected)
		again = now
	}
	return affected.keys(), again
}

// nextBatch returns a batch of the namespace with the most budget left, out of those that have no running batch. If none has budget left,
// again is when one has.
func (s *Scheduler) nextBatch(now time.Time, affected affected) (b *batch, again time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.advanceBudget(now)
	for {
		next, left := s.nextQueue(affected)
		switch {
		case next == nil:
			for _, all := range []map[string]*evaluationQueue{s.queues, s.explainQueues} {
				maps.DeleteFunc(all, func(_ string, q *evaluationQueue) bool { return q.idle(s.budgetTime) })
			}
			return nil, time.Time{}
		case left <= 0:
			return nil, now.Add(time.Duration((1 - left) / celRate * float64(time.Second)))
		}
		if b = s.newBatch(next, affected); b != nil {
			return b, time.Time{}
		}
	}
}

// newBatch takes evaluations from the front of a queue; it returns nil if none has anything to evaluate.
func (s *Scheduler) newBatch(q *evaluationQueue, affected affected) *batch {
	b := &batch{queue: q, now: s.now, costs: celselector.NewCosts(math.MaxInt64)}
	for len(q.waiting) > 0 && len(b.items) < batchClusters {
		e := q.waiting[0]
		q.waiting = q.waiting[1:]
		if !e.current() || e.overBudget {
			e.queued = false
			continue
		}
		if before := len(b.items); s.addItems(e, b) == before {
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

// addItems adds clusters of an evaluation to a batch, beginning behind the last evaluated one, and returns how many the batch has.
func (s *Scheduler) addItems(e *celEvaluation, b *batch) int {
	unknown := slices.Collect(difference(e.class.members(), e.upToDate).all())
	first, _ := slices.BinarySearch(unknown, e.lastID+1)
	for i := range unknown {
		if len(b.items) == batchClusters {
			break
		}
		id := unknown[(first+i)%len(unknown)]
		b.items = append(b.items, batchItem{evaluation: e, cluster: *s.clusters.byID[id]})
		e.inBatch.set(id)
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

// finish sets the results of a batch.
func (s *Scheduler) finish(b *batch, affected affected) {
	s.mu.Lock()
	defer s.mu.Unlock()
	b.queue.running = false
	s.charge(b.queue.limiter, b.costs.Spent())
	for i := range b.items {
		if item := &b.items[i]; item.done && item.evaluation.current() {
			s.applyResult(item, affected)
		}
	}
	for _, e := range b.evaluations {
		e.queued, e.inBatch = false, nil
		if !e.current() {
			continue
		}
		if e.complete || !s.completeIfEvaluated(e, affected) {
			s.enqueue(e) // there may be more clusters to evaluate
		}
	}
}

// applyResult sets one result, and updates the class if it has changed.
func (s *Scheduler) applyResult(item *batchItem, affected affected) {
	e, id := item.evaluation, item.cluster.id
	c := s.clusters.byID[id]
	if e.overBudget || c == nil || c.name != item.cluster.name || !e.class.has(c) {
		return // the cluster is not a member any more
	}
	if !e.evaluated.has(id) {
		if e.cost += item.cost; e.cost > s.celBudget && !e.complete {
			e.overBudget = true
			e.class.addAll(affected)
			return
		}
	}
	was := e.matched.has(id)
	if e.inBatch.has(id) {
		e.setResult(id, item.matched)
	} else {
		e.setStaleResult(id, item.matched) // the cluster has changed meanwhile, and is evaluated again
	}
	e.lastID = id
	if e.complete && was != item.matched {
		s.updateClass(e.class, clusterChange{cluster: c, old: *c, celResult: true}, affected)
	}
}

// completeIfEvaluated ends the wait of the pending placements of a class once all members were evaluated.
func (s *Scheduler) completeIfEvaluated(e *celEvaluation, affected affected) bool {
	if !e.complete && !e.overBudget && difference(e.class.members(), e.evaluated).empty() {
		e.complete, e.deferred = true, false
		s.dropCandidates(e.class) // they were computed without CEL results
		e.class.addAll(affected)
	}
	return e.complete
}
