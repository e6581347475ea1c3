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

// evaluation is what the CEL expressions of a class say of the members of its cluster sets. It outlives the standing of the class.
type evaluation struct {
	class   *class
	known   bitset // those whose verdict is of what they are now
	matched bitset // those that meet the predicates, or did when they were last looked at
	seen    bitset // those that were looked at
	running bitset // those that a batch looks at, and that have not changed since it began
	last    int32  // that was looked at
	queued  bool   // whether it waits for its turn, or there is a batch

	complete bool  // whether each was seen; placements wait until then
	deferred bool  // whether they were told that they wait for their turn
	spent    int64 // when each was seen first
	tooDear  bool  // whether that was more than celBudget: nothing else is known then

	// dropped tells a batch that has begun that nobody is interested any more.
	dropped atomic.Bool
}

// pending tells whether nothing can be selected yet.
func (cls *class) pending() bool {
	return cls.selection.cel && !cls.tooDear() && (cls.evaluation == nil || !cls.evaluation.complete)
}

// tooDear tells whether the CEL expressions of the class cost too much.
func (cls *class) tooDear() bool { return cls.evaluation != nil && cls.evaluation.tooDear }

// members are those of the cluster sets of a class.
func (cls *class) members() bitset {
	var members bitset
	for _, set := range cls.sets {
		members.add(set.members)
	}
	return members
}

// settle takes over a verdict on a cluster as it is now.
func (e *evaluation) settle(id int32, matched bool) {
	e.known.set(id)
	e.running.clear(id)
	e.see(id, matched)
}

// see takes over a verdict on a cluster as it is or was.
func (e *evaluation) see(id int32, matched bool) {
	e.seen.set(id)
	e.matched.put(id, matched)
}

// doubt has a cluster looked at again. Until then, what it was holds.
func (e *evaluation) doubt(id int32) {
	e.known.clear(id)
	e.running.clear(id)
}

// keep forgets all but some clusters.
func (e *evaluation) keep(members bitset) {
	for _, b := range []bitset{e.known, e.matched, e.seen, e.running} {
		b.keep(members)
	}
}

// forget forgets a cluster.
func (e *evaluation) forget(id int32) {
	for _, b := range []bitset{e.known, e.matched, e.seen, e.running} {
		b.clear(id)
	}
}

// without are the members that are not in a set.
func without(members, others bitset) bitset {
	left := slices.Clone(members)
	left.remove(others)
	return left
}

// recall finds the members that match as far as that is known, and when time changes that. What takes no CEL is found out.
func (s *Scheduler) recall(cls *class, st *standing) (next time.Time) {
	if cls.evaluation == nil {
		cls.evaluation = &evaluation{class: cls}
	}
	e, considered := cls.evaluation, s.consider(st, cls.selection)
	e.keep(st.inSets)
	for id := range considered.all() {
		c := s.fleet.clusters[id]
		next = earliest(next, cls.selection.deadline(c, s.now))
		if !e.known.has(id) {
			s.glance(e, c)
		}
	}
	others := without(st.inSets, considered)
	e.known.add(others)
	e.seen.add(others)
	e.matched.remove(others)
	st.matched = slices.Clone(e.matched)
	e.complete = e.complete || (!e.tooDear && without(st.inSets, e.seen).empty())
	return next
}

// glance looks at a cluster that is new to a class or has changed.
func (s *Scheduler) glance(e *evaluation, c *cluster) {
	if matched, certain := e.class.selection.matchWithoutCEL(c); certain {
		e.settle(c.id, matched)
	} else {
		e.doubt(c.id)
	}
}

// notice takes in that a cluster has changed.
func (s *Scheduler) notice(cls *class, c *cluster) {
	e := cls.evaluation
	switch {
	case e == nil:
	case !cls.has(c):
		e.forget(c.id)
	default:
		s.glance(e, c)
		cls.next = earliest(cls.next, cls.selection.deadline(c, s.now))
		s.wake(cls.next)
		s.queue(e)
	}
}

// dropEvaluation has nothing of a class evaluated any more, neither what waits for its turn nor what a batch has yet to come to.
func (s *Scheduler) dropEvaluation(cls *class) {
	e := cls.evaluation
	if e == nil {
		return
	}
	cls.evaluation = nil
	e.dropped.Store(true)
	if t := s.turns[cls.namespace]; t != nil {
		t.waiting = slices.DeleteFunc(t.waiting, func(other *evaluation) bool { return other == e })
	}
}

// turns are the evaluations of the placements of one namespace that wait to go on.
type turns struct {
	costs   *rate.Limiter
	waiting []*evaluation
	running bool
}

func newTurns() *turns { return &turns{costs: rate.NewLimiter(celRate, celBurst)} }

// idle turns need not be remembered.
func (t *turns) idle(now time.Time) bool {
	return !t.running && len(t.waiting) == 0 && t.costs.TokensAt(now) >= celBurst
}

// queue has an evaluation go on when it is its turn.
func (s *Scheduler) queue(e *evaluation) {
	if e == nil || e.queued || e.tooDear {
		return
	}
	e.queued = true
	t := s.turns[e.class.namespace]
	if t == nil {
		t = newTurns()
		s.turns[e.class.namespace] = t
	}
	t.waiting = append(t.waiting, e)
}

// batch is clusters that expressions are applied to, as they were when it began.
type batch struct {
	turns       *turns
	evaluations []*evaluation
	looks       []look
	now         time.Time
	costs       *celselector.Costs
}

// look is what a batch does about one cluster.
type look struct {
	evaluation *evaluation
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
	found := affected{}
	b, again := s.nextBatch(now, found)
	if b != nil {
		b.run(s.timed)
		s.finish(b, found)
		again = now
	}
	return found.keys(), again
}

// nextBatch is one of the namespace that has cost least, of those of which nothing is evaluated.
func (s *Scheduler) nextBatch(now time.Time, found affected) (b *batch, again time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.refill(now)
	for {
		next, left := s.nextTurns(found)
		switch {
		case next == nil:
			for _, all := range []map[string]*turns{s.turns, s.explanations} {
				maps.DeleteFunc(all, func(_ string, t *turns) bool { return t.idle(s.charged) })
			}
			return nil, time.Time{}
		case left <= 0:
			return nil, now.Add(time.Duration((1 - left) / celRate * float64(time.Second)))
		}
		if b = s.newBatch(next, found); b != nil {
			return b, time.Time{}
		}
	}
}

// nextTurns are those of the namespace that has most left to spend. Those that have nothing left are told to wait.
func (s *Scheduler) nextTurns(found affected) (next *turns, most float64) {
	most = math.Inf(-1)
	for _, t := range s.turns {
		if t.running || len(t.waiting) == 0 {
			continue
		}
		left := t.costs.TokensAt(s.charged)
		if left <= 0 {
			t.postpone(found)
		}
		if left > most {
			next, most = t, left
		}
	}
	return next, most
}

// postpone has placements looked at that do not know yet that they wait for their turn.
func (t *turns) postpone(found affected) {
	for _, e := range t.waiting {
		if e.current() && e.class.pending() && !e.deferred {
			e.deferred = true
			e.class.addAll(found)
		}
	}
}

// current tells whether anybody is interested in an evaluation.
func (e *evaluation) current() bool { return e.class.evaluation == e }

// newBatch takes the evaluations that have waited for longest; nil if there is nothing to evaluate for any.
func (s *Scheduler) newBatch(t *turns, found affected) *batch {
	b := &batch{turns: t, now: s.now, costs: celselector.NewCosts(math.MaxInt64)}
	for len(t.waiting) > 0 && len(b.looks) < batchClusters {
		e := t.waiting[0]
		t.waiting = t.waiting[1:]
		if !e.current() || e.tooDear {
			e.queued = false
			continue
		}
		if before := len(b.looks); s.lookAt(e, b) == before {
			e.queued = false
			s.complete(e, found)
			continue
		}
		b.evaluations = append(b.evaluations, e)
	}
	if len(b.looks) == 0 {
		return nil
	}
	t.running = true
	return b
}

// lookAt adds clusters of an evaluation to a batch, from the last one that was looked at, and returns how many the batch has.
func (s *Scheduler) lookAt(e *evaluation, b *batch) int {
	unknown := slices.Collect(without(e.class.members(), e.known).all())
	first, _ := slices.BinarySearch(unknown, e.last+1)
	for i := range unknown {
		if len(b.looks) == batchClusters {
			break
		}
		id := unknown[(first+i)%len(unknown)]
		b.looks = append(b.looks, look{evaluation: e, cluster: *s.fleet.clusters[id]})
		e.running.set(id)
	}
	return len(b.looks)
}

// run matches until that has cost as much as a batch may.
func (b *batch) run(timed func(PluginType, string) func()) {
	defer timed(PluginFilter, FilterPredicate)()
	defer timed(PluginCEL, "")()
	for i := range b.looks {
		if b.costs.Spent() >= batchCost {
			return
		}
		if !b.looks[i].evaluation.dropped.Load() {
			b.looks[i].match(b.now, b.costs)
		}
	}
}

func (l *look) match(now time.Time, costs *celselector.Costs) {
	before := costs.Spent()
	l.matched = l.evaluation.class.selection.match(&l.cluster, now, costs)
	l.done, l.cost = !costs.Exceeded(), costs.Spent()-before
}

// finish takes over what was found out.
func (s *Scheduler) finish(b *batch, found affected) {
	s.mu.Lock()
	defer s.mu.Unlock()
	b.turns.running = false
	s.charge(b.turns.costs, b.costs.Spent())
	for i := range b.looks {
		if l := &b.looks[i]; l.done && l.evaluation.current() {
			s.conclude(l, found)
		}
	}
	for _, e := range b.evaluations {
		e.queued, e.running = false, nil
		if !e.current() {
			continue
		}
		if e.complete || !s.complete(e, found) {
			s.queue(e) // there may be more
		}
	}
}

// Refill lets time go on to now for what evaluations and explanations may cost. Evaluate does so, too; who has something explained while
// nothing is to be evaluated calls it before.
func (s *Scheduler) Refill(now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.refill(now)
}

func (s *Scheduler) refill(now time.Time) {
	if now.After(s.charged) {
		s.charged = now
	}
}

// charge has somebody pay.
func (s *Scheduler) charge(costs *rate.Limiter, units int64) {
	for ; units > 0; units -= celBurst {
		costs.ReserveN(s.charged, int(min(units, celBurst)))
	}
}

// conclude takes over a verdict.
func (s *Scheduler) conclude(l *look, found affected) {
	e, id := l.evaluation, l.cluster.id
	c := s.fleet.clusters[id]
	if e.tooDear || c == nil || c.name != l.cluster.name || !e.class.has(c) {
		return // it is gone
	}
	if !e.seen.has(id) {
		if e.spent += l.cost; e.spent > s.celBudget && !e.complete {
			e.tooDear = true
			e.class.addAll(found)
			return
		}
	}
	was := e.matched.has(id)
	if e.running.has(id) {
		e.settle(id, l.matched)
	} else {
		e.see(id, l.matched) // it has changed meanwhile, and is looked at again
	}
	e.last = id
	if e.complete && was != l.matched {
		s.reassess(e.class, change{cluster: c, former: *c, evaluated: true}, found)
	}
}

// complete lets the placements of a class be scheduled that waited for it, when all members were seen.
func (s *Scheduler) complete(e *evaluation, found affected) bool {
	if !e.complete && !e.tooDear && without(e.class.members(), e.seen).empty() {
		e.complete, e.deferred = true, false
		s.drop(e.class) // it has been empty until now
		e.class.addAll(found)
	}
	return e.complete
}
