package placement

import (
	"maps"
	"math"
	"slices"
	"time"

	"golang.org/x/time/rate"
	celconfig "k8s.io/apiserver/pkg/apis/cel"

	"github.com/capstan-io/capstan/internal/placement/celselector"
)

// What CEL expressions may cost, in the units of Kubernetes. One takes between half a microsecond and a microsecond.
const (
	// celBudget is for all clusters together, when a class is evaluated for the first time. For 10,000 clusters it is enough
	// for expressions that look at hundreds of claims each.
	celBudget = 2 * celconfig.RuntimeCELCostBudget
	// celRate is what the placements of one namespace may cost in a second, on average: a quarter of a processor. After
	// celBurst they wait for their turn.
	celRate  = 300_000
	celBurst = 10 * celRate
	// batchCost and batchClusters end a batch, after which it may be the turn of another namespace.
	batchCost     = 100_000
	batchClusters = 512
	// explainCost is for finding out why clusters do not match a placement that somebody has explained.
	explainCost = 100_000
)

// evaluation is what the CEL expressions of a class say of the members of its cluster sets. It outlives the standing of the class.
type evaluation struct {
	known   bitset // those whose verdict is of what they are now
	matched bitset // those that meet the predicates, or did before they changed
	running bitset // those that a batch looks at, and that have not changed since it began
	busy    bool   // whether there is a batch

	complete bool  // whether the verdict on each was known once; placements wait until then
	deferred bool  // whether they were told that they wait for their turn
	spent    int64 // until it was complete
	tooDear  bool  // whether that was more than celBudget: nothing else is known then
}

// pending tells whether nothing can be selected yet.
func (cls *class) pending() bool { return cls.evaluation != nil && !cls.evaluation.complete }

// tooDear tells whether the CEL expressions of the class cost too much.
func (cls *class) tooDear() bool { return cls.evaluation != nil && cls.evaluation.tooDear }

// settle takes over a verdict.
func (e *evaluation) settle(id int32, matched bool) {
	e.known.set(id)
	e.running.clear(id)
	e.matched.put(id, matched)
}

// doubt has a cluster looked at again. Until then, what it was holds.
func (e *evaluation) doubt(id int32) {
	e.known.clear(id)
	e.running.clear(id)
}

// stop has nothing running any more.
func (e *evaluation) stop() { e.busy, e.running = false, nil }

func (e *evaluation) forget(id int32) {
	e.doubt(id)
	e.matched.clear(id)
}

// unknown are the members on which there is no verdict.
func (e *evaluation) unknown(members bitset) bitset {
	unknown := slices.Clone(members)
	unknown.remove(e.known)
	return unknown
}

// recall finds the members that match as far as that is known, and when time changes that. What takes no CEL is found out.
func (s *Scheduler) recall(cls *class, st *standing) (next time.Time) {
	if cls.evaluation == nil {
		cls.evaluation = &evaluation{}
	}
	e, considered := cls.evaluation, s.consider(st, cls.selection)
	for id := range considered.all() {
		c := s.fleet.clusters[id]
		next = earliest(next, cls.selection.deadline(c, s.now))
		if !e.known.has(id) {
			s.glance(cls, c)
		}
	}
	others := slices.Clone(st.inSets)
	others.remove(considered)
	e.known.add(others)
	e.matched.remove(others)
	st.matched = slices.Clone(e.matched)
	st.matched.keep(st.inSets)
	e.complete = e.complete || (!e.tooDear && e.unknown(st.inSets).empty())
	return next
}

// glance looks at a cluster that is new to a class or has changed.
func (s *Scheduler) glance(cls *class, c *cluster) {
	if matched, certain := cls.selection.matchWithoutCEL(c); certain {
		cls.evaluation.settle(c.id, matched)
	} else {
		cls.evaluation.doubt(c.id)
	}
}

// notice takes in that a cluster has changed.
func (s *Scheduler) notice(cls *class, c *cluster) {
	switch {
	case cls.evaluation == nil:
	case !cls.has(c):
		cls.evaluation.forget(c.id)
	default:
		s.glance(cls, c)
		s.unevaluated[cls] = struct{}{}
	}
}

// Evaluate applies CEL expressions to some of the clusters to which they have not been applied as they are now. It takes its
// time, but holds nobody up. It returns the placements whose selection that may change, and when it is to be called again: zero is
// after the next event or Schedule. While one goroutine is in it with the expressions of one namespace, another one may be in it with
// those of another.
func (s *Scheduler) Evaluate(now time.Time) (changed []Key, again time.Time) {
	found := affected{}
	b, again := s.nextBatch(now, found)
	if b != nil {
		b.run(batchCost, s.timed)
		s.finish(b, now, found)
		again = now
	}
	return found.keys(), again
}

// nextBatch chooses a class to evaluate: one of the namespace that has cost least, of those of which nothing is evaluated.
func (s *Scheduler) nextBatch(now time.Time, found affected) (b *batch, again time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var chosen *class
	var payer *rate.Limiter
	most := math.Inf(-1)
	for cls := range s.unevaluated {
		if !s.toEvaluate(cls, found) {
			continue
		}
		if limiter, left := s.payer(cls, now); limiter != nil && left > most {
			chosen, payer, most = cls, limiter, left
		}
	}
	switch {
	case chosen == nil:
		s.forgetCosts(now)
		return nil, time.Time{}
	case most <= 0:
		s.tellDeferred(found)
		return nil, now.Add(time.Duration((1 - most) / celRate * float64(time.Second)))
	}
	b = s.newBatch(chosen, batchClusters)
	b.payer = payer
	s.evaluating[payer] = struct{}{}
	b.evaluation.busy = true
	for i := range b.clusters {
		b.evaluation.running.set(b.clusters[i].id)
	}
	return b, time.Time{}
}

// toEvaluate tells whether there are clusters to evaluate for a class. Where there are none any more, its placements can be scheduled.
func (s *Scheduler) toEvaluate(cls *class, found affected) bool {
	switch {
	case cls.standing == nil || cls.tooDear():
		delete(s.unevaluated, cls) // until it is built again
		return false
	case cls.evaluation.busy:
		return false
	case cls.evaluation.unknown(cls.standing.inSets).empty():
		s.complete(cls, found)
		return false
	}
	return true
}

// tellDeferred has the placements looked at once that wait for their turn.
func (s *Scheduler) tellDeferred(found affected) {
	for cls := range s.unevaluated {
		if cls.pending() && !cls.evaluation.deferred {
			cls.evaluation.deferred = true
			cls.addAll(found)
		}
	}
}

// payer is what may be spent for a class: by the namespace that has most, of those with placements of the class of which nothing is
// evaluated.
func (s *Scheduler) payer(cls *class, now time.Time) (limiter *rate.Limiter, left float64) {
	for key := range cls.placements {
		other := s.costs(key.Namespace)
		if _, busy := s.evaluating[other]; busy {
			continue
		}
		if tokens := other.TokensAt(now); limiter == nil || tokens > left {
			limiter, left = other, tokens
		}
	}
	return limiter, left
}

// costs limits what the placements of a namespace cost.
func (s *Scheduler) costs(namespace string) *rate.Limiter {
	limiter := s.celCosts[namespace]
	if limiter == nil {
		limiter = rate.NewLimiter(celRate, celBurst)
		s.celCosts[namespace] = limiter
	}
	return limiter
}

// forgetCosts forgets the namespaces that owe nothing.
func (s *Scheduler) forgetCosts(now time.Time) {
	maps.DeleteFunc(s.celCosts, func(_ string, limiter *rate.Limiter) bool {
		_, busy := s.evaluating[limiter]
		return !busy && limiter.TokensAt(now) >= celBurst
	})
}

// finish takes over what was found out about clusters that have not changed meanwhile.
func (s *Scheduler) finish(b *batch, now time.Time, found affected) {
	s.mu.Lock()
	defer s.mu.Unlock()
	cost := b.charge(now)
	delete(s.evaluating, b.payer)
	cls, e := b.class, b.evaluation
	defer e.stop()
	if cls.evaluation != e {
		return // it is to be evaluated from the start
	}
	if !e.complete {
		if e.spent += cost; e.spent > s.celBudget {
			e.tooDear = true
			cls.addAll(found)
			return
		}
	}
	for i, matched := range b.matched {
		if id := b.clusters[i].id; e.running.has(id) {
			s.conclude(cls, id, matched, found)
		}
	}
	if cls.standing != nil && e.unknown(cls.standing.inSets).empty() {
		s.complete(cls, found)
	}
}

// conclude takes over a verdict.
func (s *Scheduler) conclude(cls *class, id int32, matched bool, found affected) {
	was := cls.evaluation.matched.has(id)
	cls.evaluation.settle(id, matched)
	if cls.evaluation.complete && was != matched {
		c := s.fleet.clusters[id]
		s.reassess(cls, change{cluster: c, former: *c, evaluated: true}, found)
	}
}

// complete lets the placements of a class be scheduled that waited for it.
func (s *Scheduler) complete(cls *class, found affected) {
	delete(s.unevaluated, cls)
	e := cls.evaluation
	if e.complete {
		return
	}
	e.complete, e.deferred = true, false
	s.drop(cls) // it has been empty until now
	cls.addAll(found)
}

// batch is clusters that expressions are applied to, as they were when it began.
type batch struct {
	class      *class
	evaluation *evaluation
	payer      *rate.Limiter
	now        time.Time
	clusters   []cluster
	matched    []bool // of the first clusters, as many as could be looked at
	costs      celselector.Costs
}

// charge has the namespace pay for what a batch cost.
func (b *batch) charge(now time.Time) (cost int64) {
	cost = b.costs.Spent()
	for left := cost; left > 0; left -= celBurst {
		b.payer.ReserveN(now, int(min(left, celBurst)))
	}
	return cost
}

// newBatch has the clusters of a class to which the expressions have not been applied, up to a number.
func (s *Scheduler) newBatch(cls *class, most int) *batch {
	b := &batch{class: cls, evaluation: cls.evaluation, now: s.now}
	for id := range cls.evaluation.unknown(cls.standing.inSets).all() {
		if len(b.clusters) == most {
			break
		}
		b.clusters = append(b.clusters, *s.fleet.clusters[id])
	}
	return b
}

// run matches until that has cost so much.
func (b *batch) run(limit int64, timed Timer) {
	defer timed(PluginFilter, FilterPredicate)()
	defer timed(PluginCEL, "")()
	for i := range b.clusters {
		if b.costs.Spent() >= limit {
			return
		}
		b.matched = append(b.matched, b.class.selection.match(&b.clusters[i], b.now, &b.costs))
	}
}
