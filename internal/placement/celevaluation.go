package placement

import (
	"context"
	"slices"

	celconfig "k8s.io/apiserver/pkg/apis/cel"
)

// Budgets of CEL expressions, in the cost units of Kubernetes. A unit takes between half a microsecond and a microsecond.
const (
	// celBudget is for the first evaluation of all members of the cluster sets of a class together. For 10,000 clusters it is enough for
	// expressions that read hundreds of claims each.
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
	class   *equivalenceClass
	results []celResult // by index of the cluster
	waiting []*cluster  // clusters to evaluate, those that have waited longest first
	queued  bool        // whether it is in a queue or in a batch

	complete   bool  // whether all clusters were evaluated once; placements are pending until then
	deferred   bool  // whether placements were scheduled to report that the namespace has no budget left
	cost       int64 // of the first evaluations of all members
	overBudget bool  // whether cost exceeds celBudget: the placements are misconfigured

	interrupt context.CancelFunc // ends the last batch, also within an expression; nil before the first one
}

// celResult is the result for one cluster. The zero value is that of a cluster that was never evaluated. It is small, as each class has one
// for each cluster.
type celResult struct {
	evaluated bool   // at least once
	matched   bool   // when it was last evaluated
	upToDate  bool   // whether that was in its present state
	waiting   bool   // whether it is in celEvaluation.waiting, which it is not while it is in a batch
	cost      uint32 // of the first evaluation, which has a limit for a cluster
}

// result returns the result for a cluster, to read or to set.
func (e *celEvaluation) result(c *cluster) *celResult {
	if missing := c.index + 1 - len(e.results); missing > 0 {
		e.results = append(e.results, make([]celResult, missing)...)
	}
	return &e.results[c.index]
}

// pending reports whether clusters are still to be evaluated before anything can be selected.
func (class *equivalenceClass) pending() bool {
	return class.profile.cel && !class.overBudget() && (class.evaluation == nil || !class.evaluation.complete)
}

// overBudget reports whether the CEL expressions of the class exceed celBudget.
func (class *equivalenceClass) overBudget() bool {
	return class.evaluation != nil && class.evaluation.overBudget
}

// setResult sets the result for the present state of a cluster.
func (e *celEvaluation) setResult(c *cluster, matched bool) {
	e.remove(c)
	*e.result(c) = celResult{evaluated: true, matched: matched, upToDate: true}
}

// invalidate marks a cluster to be evaluated again. Its last result holds until then.
func (e *celEvaluation) invalidate(c *cluster) {
	result := e.result(c)
	result.upToDate = false
	if !result.waiting {
		result.waiting = true
		e.waiting = append(e.waiting, c)
	}
}

// pop removes up to n clusters from waiting and returns them.
func (e *celEvaluation) pop(n int) []*cluster {
	n = min(n, len(e.waiting))
	popped := e.waiting[:n]
	e.waiting = e.waiting[n:]
	for _, c := range popped {
		e.result(c).waiting = false
	}
	return popped
}

// requeue puts clusters that were popped before all others in waiting again.
func (e *celEvaluation) requeue(clusters []*cluster) {
	clusters = slices.DeleteFunc(clusters, func(c *cluster) bool {
		return !e.class.has(c) || e.result(c).waiting || e.result(c).upToDate
	})
	for _, c := range clusters {
		e.result(c).waiting = true
	}
	e.waiting = slices.Concat(clusters, e.waiting)
}

// remove removes the result for a cluster.
func (e *celEvaluation) remove(c *cluster) {
	if e.result(c).waiting {
		e.waiting = slices.DeleteFunc(e.waiting, func(other *cluster) bool { return other == c })
	}
	e.reset(c)
}

// reset makes a cluster one that was never evaluated, which costs nothing.
func (e *celEvaluation) reset(c *cluster) {
	result := e.result(c)
	e.cost -= int64(result.cost)
	*result = celResult{}
}

// retainMembers removes the results for clusters that are no members any more, and reports whether all members were evaluated.
func (sn *snapshot) retainMembers(e *celEvaluation) (evaluated bool) {
	evaluated = true
	e.waiting = slices.DeleteFunc(e.waiting, func(c *cluster) bool { return !e.class.has(c) })
	for _, c := range sn.clusters.sorted {
		if e.class.has(c) {
			evaluated = evaluated && e.result(c).evaluated
		} else {
			e.reset(c)
		}
	}
	return evaluated
}

// prepareEvaluation evaluates predicates for which labels and claims are enough, and marks the other clusters to be evaluated.
func (sn *snapshot) prepareEvaluation(class *equivalenceClass) {
	if class.evaluation == nil {
		class.evaluation = &celEvaluation{class: class, results: make([]celResult, 0, len(sn.clusters.sorted))}
	}
	e := class.evaluation
	for c := range sn.members(class) {
		if !e.result(c).upToDate {
			e.matchWithoutCEL(c)
		}
	}
	evaluated := sn.retainMembers(e)
	e.complete = e.complete || (!e.overBudget && evaluated)
}

// matchWithoutCEL sets the result for a cluster that is new or has changed if labels and claims are enough; otherwise it marks the
// cluster to be evaluated.
func (e *celEvaluation) matchWithoutCEL(c *cluster) {
	if matched, certain := e.class.profile.matchWithoutCEL(c); certain {
		e.setResult(c, matched)
	} else {
		e.invalidate(c)
	}
}

// updateEvaluation updates the evaluation of a class after a cluster has changed.
func (cc *classCache) updateEvaluation(class *equivalenceClass, c *cluster) {
	e := class.evaluation
	switch {
	case e == nil:
	case !class.has(c):
		e.remove(c)
	default:
		e.matchWithoutCEL(c)
		class.nextChange = earliest(class.nextChange, class.profile.nextExpiry(c, cc.snapshot.now))
		cc.snapshot.scheduleAdvance(class.nextChange)
		cc.evaluations.enqueue(e)
	}
}

// cancel discards the evaluation of a class, also while it is queued or in a batch.
func (ev *evaluations) cancel(class *equivalenceClass) {
	e := class.evaluation
	if e == nil {
		return
	}
	class.evaluation = nil
	if e.interrupt != nil {
		e.interrupt()
	}
	if q := ev.queues[class.namespace]; q != nil {
		q.waiting = slices.DeleteFunc(q.waiting, func(other *celEvaluation) bool { return other == e })
	}
}

// current reports whether the evaluation was not discarded.
func (e *celEvaluation) current() bool { return e.class.evaluation == e }
