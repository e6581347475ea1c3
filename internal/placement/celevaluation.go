package placement

import (
	"slices"
	"sync/atomic"
	"time"

	celconfig "k8s.io/apiserver/pkg/apis/cel"
)

// Budgets of CEL expressions, in the cost units of Kubernetes. A unit takes between half a microsecond and a microsecond.
const (
	// celBudget is for the first evaluation of all clusters of a class together. For 10,000 clusters it is enough for expressions
	// that read hundreds of claims each.
	celBudget = 2 * celconfig.RuntimeCELCostBudget
	// celRate is what the placements of one namespace may cost per second on average, about a quarter of a processor, and celBurst
	// what they may cost at once.
	celRate  = 300_000
	celBurst = 10 * celRate
	// batchCost and batchClusters limit a batch, so that the namespaces take turns.
	batchCost     = 100_000
	batchClusters = 512
)

// celEvaluation has the results of the CEL expressions of a class for the members of its cluster sets. They are kept when the candidates
// of the class are discarded.
type celEvaluation struct {
	class     *equivalenceClass
	upToDate  bitset // clusters whose result is of their present state
	matched   bitset // clusters that matched when they were last evaluated
	evaluated bitset // clusters that were evaluated at least once
	inBatch   bitset // clusters of the running batch that have not changed since it began
	lastID    int32  // the cluster that was evaluated last
	queued    bool   // whether it is in a queue or in a batch

	complete   bool  // whether all clusters were evaluated once; placements are pending until then
	deferred   bool  // whether placements were scheduled to report that the namespace has no budget left
	cost       int64 // of the first evaluations of all clusters
	overBudget bool  // whether cost exceeds celBudget: the placements are misconfigured

	// cancelled makes a running batch skip the clusters of this evaluation.
	cancelled atomic.Bool
}

// pending tells whether clusters are still to be evaluated before anything can be selected.
func (class *equivalenceClass) pending() bool {
	return class.profile.cel && !class.overBudget() && (class.evaluation == nil || !class.evaluation.complete)
}

// overBudget tells whether the CEL expressions of the class exceed celBudget.
func (class *equivalenceClass) overBudget() bool {
	return class.evaluation != nil && class.evaluation.overBudget
}

// members returns the union of the cluster sets of the class.
func (class *equivalenceClass) members() bitset {
	var members bitset
	for _, set := range class.sets {
		members.union(set.members)
	}
	return members
}

// setResult sets the result for the present state of a cluster.
func (e *celEvaluation) setResult(id int32, matched bool) {
	e.upToDate.set(id)
	e.inBatch.clear(id)
	e.setStaleResult(id, matched)
}

// setStaleResult sets a result for a state of a cluster that may have changed.
func (e *celEvaluation) setStaleResult(id int32, matched bool) {
	e.evaluated.set(id)
	e.matched.setTo(id, matched)
}

// invalidate marks a cluster to be evaluated again. Its last result holds until then.
func (e *celEvaluation) invalidate(id int32) {
	e.upToDate.clear(id)
	e.inBatch.clear(id)
}

// retain removes all clusters that are not in members.
func (e *celEvaluation) retain(members bitset) {
	for _, b := range []bitset{e.upToDate, e.matched, e.evaluated, e.inBatch} {
		b.intersect(members)
	}
}

// remove removes a cluster.
func (e *celEvaluation) remove(id int32) {
	for _, b := range []bitset{e.upToDate, e.matched, e.evaluated, e.inBatch} {
		b.clear(id)
	}
}

// filterPredicatesCEL is filterPredicates for classes with CEL expressions. It uses the results that are known, and evaluates predicates
// for which labels and claims are enough.
func (s *Scheduler) filterPredicatesCEL(class *equivalenceClass, cs *candidateSet) (next time.Time) {
	if class.evaluation == nil {
		class.evaluation = &celEvaluation{class: class}
	}
	e := class.evaluation
	e.retain(cs.inClusterSets)
	for id := range cs.inClusterSets.all() {
		c := s.clusters.byID[id]
		next = earliest(next, class.profile.nextExpiry(c, s.now))
		if !e.upToDate.has(id) {
			s.matchWithoutCEL(e, c)
		}
	}
	cs.matched = slices.Clone(e.matched)
	e.complete = e.complete || (!e.overBudget && difference(cs.inClusterSets, e.evaluated).empty())
	return next
}

// matchWithoutCEL sets the result for a cluster that is new or has changed if labels and claims are enough; otherwise it marks the
// cluster to be evaluated.
func (s *Scheduler) matchWithoutCEL(e *celEvaluation, c *cluster) {
	if matched, certain := e.class.profile.matchWithoutCEL(c); certain {
		e.setResult(c.id, matched)
	} else {
		e.invalidate(c.id)
	}
}

// updateEvaluation updates the evaluation of a class after a cluster has changed.
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

// cancelEvaluation discards the evaluation of a class, also while it is queued or in a batch.
func (s *Scheduler) cancelEvaluation(class *equivalenceClass) {
	e := class.evaluation
	if e == nil {
		return
	}
	class.evaluation = nil
	e.cancelled.Store(true)
	if q := s.queues[class.namespace]; q != nil {
		q.waiting = slices.DeleteFunc(q.waiting, func(other *celEvaluation) bool { return other == e })
	}
}

// current tells whether the evaluation was not discarded.
func (e *celEvaluation) current() bool { return e.class.evaluation == e }
