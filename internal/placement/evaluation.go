package placement

import (
	"maps"
	"math"
	"slices"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"
	celconfig "k8s.io/apiserver/pkg/apis/cel"

	"github.com/capstan-io/capstan/internal/placement/celselector"
)

// What CEL expressions may cost, in the units of Kubernetes. One takes between half a microsecond and a microsecond.
const (
	// celBudget is for all clusters together, when each is looked at for the first time. For 10,000 clusters it is enough for
	// expressions that look at hundreds of claims each.
	celBudget = 2 * celconfig.RuntimeCELCostBudget
	// celRate is what the placements of one namespace may cost in a second, on average: a quarter of a processor. After
	// celBurst they wait for their turn.
	celRate  = 300_000
	celBurst = 10 * celRate
	// batchCost and batchClusters end a batch, after which it may be the turn of another namespace.
	batchCost     = 100_000
	batchClusters = 512
)

// celEvaluation is what the CEL expressions of a class say of the members of its cluster sets. It outlives the standing of the class.
type celEvaluation struct {
	class     *equivalenceClass
	upToDate  bitset // those whose verdict is of what they are now
	matched   bitset // those that meet the predicates, or did when they were last looked at
	evaluated bitset // those that were looked at
	inBatch   bitset // those that a batch looks at, and that have not changed since it began
	lastID    int32  // that was looked at
	queued    bool   // whether it waits for its turn, or there is a batch

	complete   bool  // whether each was seen; placements wait until then
	deferred   bool  // whether they were told that they wait for their turn
	cost       int64 // when each was seen first
	overBudget bool  // whether that was more than celBudget: nothing else is known then

	// cancelled tells a batch that has begun that nobody is interested any more.
	cancelled atomic.Bool
}

// pending tells whether nothing can be selected yet.
func (class *equivalenceClass) pending() bool {
	return class.profile.cel && !class.overBudget() && (class.evaluation == nil || !class.evaluation.complete)
}

// overBudget tells whether the CEL expressions of the class cost too much.
func (class *equivalenceClass) overBudget() bool {
	return class.evaluation != nil && class.evaluation.overBudget
}

// members are those of the cluster sets of a class.
func (class *equivalenceClass) members() bitset {
	var members bitset
	for _, set := range class.sets {
		members.union(set.members)
	}
	return members
}

// setResult takes over a verdict on a cluster as it is now.
func (e *celEvaluation) setResult(id int32, matched bool) {
	e.upToDate.set(id)
	e.inBatch.clear(id)
	e.setStaleResult(id, matched)
}

// setStaleResult takes over a verdict on a cluster as it is or was.
func (e *celEvaluation) setStaleResult(id int32, matched bool) {
	e.evaluated.set(id)
	e.matched.setTo(id, matched)
}

// invalidate has a cluster looked at again. Until then, what it was holds.
func (e *celEvaluation) invalidate(id int32) {
	e.upToDate.clear(id)
	e.inBatch.clear(id)
}

// retain forgets all but some clusters.
func (e *celEvaluation) retain(members bitset) {
	for _, b := range []bitset{e.upToDate, e.matched, e.evaluated, e.inBatch} {
		b.intersect(members)
	}
}

// remove forgets a cluster.
func (e *celEvaluation) remove(id int32) {
	for _, b := range []bitset{e.upToDate, e.matched, e.evaluated, e.inBatch} {
		b.clear(id)
	}
}

// difference are the members that are not in a set.
func difference(members, others bitset) bitset {
	left := slices.Clone(members)
	left.subtract(others)
	return left
}

// filterPredicatesCEL finds the members that match as far as that is known, and when time changes that. What takes no CEL is found out.
func (s *Scheduler) filterPredicatesCEL(class *equivalenceClass, cs *candidateSet) (next time.Time) {
	if class.evaluation == nil {
		class.evaluation = &celEvaluation{class: class}
	}
	e, considered := class.evaluation, s.preFilter(cs, class.profile)
	e.retain(cs.inClusterSets)
	for id := range considered.all() {
		c := s.clusters.byID[id]
		next = earliest(next, class.profile.nextExpiry(c, s.now))
		if !e.upToDate.has(id) {
			s.matchWithoutCEL(e, c)
		}
	}
	others := difference(cs.inClusterSets, considered)
	e.upToDate.union(others)
	e.evaluated.union(others)
	e.matched.subtract(others)
	cs.matched = slices.Clone(e.matched)
	e.complete = e.complete || (!e.overBudget && difference(cs.inClusterSets, e.evaluated).empty())
	return next
}

// matchWithoutCEL looks at a cluster that is new to a class or has changed.
func (s *Scheduler) matchWithoutCEL(e *celEvaluation, c *cluster) {
	if matched, certain := e.class.profile.matchWithoutCEL(c); certain {
		e.setResult(c.id, matched)
	} else {
		e.invalidate(c.id)
	}
}

// updateEvaluation takes in that a cluster has changed.
func (s *Scheduler) updateEvaluation(class *equivalenceClass, c *cluster) {
	e := class.evaluation
	switch {
	case e == nil:
	case !class.has(c):
		e.remove(c.id)
	default:
		s.matchWithoutCEL(e, c)
		class.nextChange = earliest(class.nextChange, class.profile.nextExpiry(c, s.now))
		s.scheduleAdvance(class.nextChange)
		s.enqueue(e)
	}
}

// cancelEvaluation has nothing of a class evaluated any more, neither what waits for its turn nor what a batch has yet to come to.
func (s *Scheduler) cancelEvaluation(class *equivalenceClass) {
	e := class.evaluation
	if e == nil {
		return
	}
	class.evaluation = nil
	e.cancelled.Store(true)
	if t := s.queues[class.namespace]; t != nil {
		t.waiting = slices.DeleteFunc(t.waiting, func(other *celEvaluation) bool { return other == e })
	}
}

// evaluationQueue are the evaluations of the placements of one namespace that wait to go on.
type evaluationQueue struct {
	limiter *rate.Limiter
	waiting []*celEvaluation
	running bool
}

func newEvaluationQueue() *evaluationQueue {
	return &evaluationQueue{limiter: rate.NewLimiter(celRate, celBurst)}
}

// idle turns need not be remembered.
func (t *evaluationQueue) idle(now time.Time) bool {
	return !t.running && len(t.waiting) == 0 && t.limiter.TokensAt(now) >= celBurst
}

// enqueue has an evaluation go on when it is its turn.
func (s *Scheduler) enqueue(e *celEvaluation) {
	if e == nil || e.queued || e.overBudget {
		return
	}
	e.queued = true
	t := s.queues[e.class.namespace]
	if t == nil {
		t = newEvaluationQueue()
		s.queues[e.class.namespace] = t
	}
	t.waiting = append(t.waiting, e)
}

// batch is clusters that expressions are applied to, as they were when it began.
type batch struct {
	queue       *evaluationQueue
	evaluations []*celEvaluation
	items       []batchItem
	now         time.Time
	costs       *celselector.Costs
}

// batchItem is what a batch does about one cluster.
type batchItem struct {
	evaluation *celEvaluation
	cluster    cluster
	done       bool
	matched    bool
	cost       int64
}

// Evaluate applies CEL expressions to some of the clusters to which they have not been applied as they are now. It takes its
// time, but holds nobody up. It returns the placements whose selection that may change, and when it is to be called again: zero is
// after the next event or Schedule. While one goroutine is in it with the expressions of one namespace, another one may be in it with
// those of another.
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

// nextBatch is one of the namespace that has cost least, of those of which nothing is evaluated.
func (s *Scheduler) nextBatch(now time.Time, affected affected) (b *batch, again time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.advanceBudget(now)
	for {
		next, left := s.nextQueue(affected)
		switch {
		case next == nil:
			for _, all := range []map[string]*evaluationQueue{s.queues, s.explainQueues} {
				maps.DeleteFunc(all, func(_ string, t *evaluationQueue) bool { return t.idle(s.budgetTime) })
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

// nextQueue are those of the namespace that has most left to spend. Those that have nothing left are told to wait.
func (s *Scheduler) nextQueue(affected affected) (next *evaluationQueue, most float64) {
	most = math.Inf(-1)
	for _, t := range s.queues {
		if t.running || len(t.waiting) == 0 {
			continue
		}
		left := t.limiter.TokensAt(s.budgetTime)
		if left <= 0 {
			t.markDeferred(affected)
		}
		if left > most {
			next, most = t, left
		}
	}
	return next, most
}

// markDeferred has placements looked at that do not know yet that they wait for their turn.
func (t *evaluationQueue) markDeferred(affected affected) {
	for _, e := range t.waiting {
		if e.current() && e.class.pending() && !e.deferred {
			e.deferred = true
			e.class.addAll(affected)
		}
	}
}

// current tells whether anybody is interested in an evaluation.
func (e *celEvaluation) current() bool { return e.class.evaluation == e }

// newBatch takes the evaluations that have waited for longest; nil if there is nothing to evaluate for any.
func (s *Scheduler) newBatch(t *evaluationQueue, affected affected) *batch {
	b := &batch{queue: t, now: s.now, costs: celselector.NewCosts(math.MaxInt64)}
	for len(t.waiting) > 0 && len(b.items) < batchClusters {
		e := t.waiting[0]
		t.waiting = t.waiting[1:]
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
	t.running = true
	return b
}

// addItems adds clusters of an evaluation to a batch, from the last one that was looked at, and returns how many the batch has.
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

// run matches until that has cost as much as a batch may.
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

func (l *batchItem) match(now time.Time, costs *celselector.Costs) {
	before := costs.Spent()
	l.matched = l.evaluation.class.profile.match(&l.cluster, now, costs)
	l.done, l.cost = !costs.Exceeded(), costs.Spent()-before
}

// finish takes over what was found out.
func (s *Scheduler) finish(b *batch, affected affected) {
	s.mu.Lock()
	defer s.mu.Unlock()
	b.queue.running = false
	s.charge(b.queue.limiter, b.costs.Spent())
	for i := range b.items {
		if l := &b.items[i]; l.done && l.evaluation.current() {
			s.applyResult(l, affected)
		}
	}
	for _, e := range b.evaluations {
		e.queued, e.inBatch = false, nil
		if !e.current() {
			continue
		}
		if e.complete || !s.completeIfEvaluated(e, affected) {
			s.enqueue(e) // there may be more
		}
	}
}

// AdvanceBudget refills the CEL budgets of evaluations and explanations up to now. Evaluate does so, too; callers of Explain call it
// first, as Evaluate is not called while there is nothing to evaluate.
func (s *Scheduler) AdvanceBudget(now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.advanceBudget(now)
}

func (s *Scheduler) advanceBudget(now time.Time) {
	if now.After(s.budgetTime) {
		s.budgetTime = now
	}
}

// charge has somebody pay.
func (s *Scheduler) charge(costs *rate.Limiter, units int64) {
	for ; units > 0; units -= celBurst {
		costs.ReserveN(s.budgetTime, int(min(units, celBurst)))
	}
}

// applyResult takes over a verdict.
func (s *Scheduler) applyResult(l *batchItem, affected affected) {
	e, id := l.evaluation, l.cluster.id
	c := s.clusters.byID[id]
	if e.overBudget || c == nil || c.name != l.cluster.name || !e.class.has(c) {
		return // it is gone
	}
	if !e.evaluated.has(id) {
		if e.cost += l.cost; e.cost > s.celBudget && !e.complete {
			e.overBudget = true
			e.class.addAll(affected)
			return
		}
	}
	was := e.matched.has(id)
	if e.inBatch.has(id) {
		e.setResult(id, l.matched)
	} else {
		e.setStaleResult(id, l.matched) // it has changed meanwhile, and is looked at again
	}
	e.lastID = id
	if e.complete && was != l.matched {
		s.updateClass(e.class, clusterChange{cluster: c, old: *c, celResult: true}, affected)
	}
}

// completeIfEvaluated lets the placements of a class be scheduled that waited for it, when all members were seen.
func (s *Scheduler) completeIfEvaluated(e *celEvaluation, affected affected) bool {
	if !e.complete && !e.overBudget && difference(e.class.members(), e.evaluated).empty() {
		e.complete, e.deferred = true, false
		s.dropCandidates(e.class) // it has been empty until now
		e.class.addAll(affected)
	}
	return e.complete
}
