package placement

import (
	"maps"
	"math"
	"time"

	"golang.org/x/time/rate"
)

// evaluations are the CEL evaluations of all namespaces.
type evaluations struct {
	celBudget     int64
	queues        map[string]*evaluationQueue
	explainQueues ExplainBudgets // of explanations, which have a budget of their own
	budgetTime    time.Time      // up to which budgets were refilled
}

// ExplainBudgets are the CEL budgets of explanations, by namespace.
type ExplainBudgets map[string]*evaluationQueue

// evaluationQueue has the evaluations of the placements of one namespace that have clusters to evaluate, and the budget of the namespace.
type evaluationQueue struct {
	limiter *rate.Limiter
	waiting []*celEvaluation
	running bool
}

// queueOf returns the queue of a namespace, which it adds if it is new.
func queueOf(queues map[string]*evaluationQueue, namespace string) *evaluationQueue {
	q := queues[namespace]
	if q == nil {
		q = &evaluationQueue{limiter: rate.NewLimiter(celRate, celBurst)}
		queues[namespace] = q
	}
	return q
}

// idle reports whether the queue is empty and its budget full, so that it need not be kept.
func (q *evaluationQueue) idle(now time.Time) bool {
	return !q.running && len(q.waiting) == 0 && q.limiter.TokensAt(now) >= celBurst
}

// enqueue adds an evaluation to the queue of its namespace.
func (ev *evaluations) enqueue(e *celEvaluation) {
	if e == nil || e.queued || e.overBudget {
		return
	}
	e.queued = true
	q := queueOf(ev.queues, e.class.namespace)
	q.waiting = append(q.waiting, e)
}

// nextQueue returns the queue with the most budget left, and how much that is. Placements of queues without budget are marked as
// deferred.
func (ev *evaluations) nextQueue(affected affected) (next *evaluationQueue, most float64) {
	most = math.Inf(-1)
	for _, q := range ev.queues {
		if q.running || len(q.waiting) == 0 {
			continue
		}
		left := q.limiter.TokensAt(ev.budgetTime)
		if left <= 0 {
			q.markDeferred(affected)
		}
		if left > most {
			next, most = q, left
		}
	}
	return next, most
}

// markDeferred adds pending placements to affected once, so that they report that they are deferred.
func (q *evaluationQueue) markDeferred(affected affected) {
	for _, e := range q.waiting {
		if e.current() && e.class.pending() && !e.deferred {
			e.deferred = true
			e.class.addAll(affected)
		}
	}
}

// AdvanceBudget refills the CEL budgets of evaluations and explanations up to now. Evaluate does so, too; callers of Explain call it
// first, as Evaluate is not called while there is nothing to evaluate.
func (s *Scheduler) AdvanceBudget(now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.evaluations.advanceBudget(now)
	s.evaluations.dropIdle()
}

func (ev *evaluations) advanceBudget(now time.Time) {
	if now.After(ev.budgetTime) {
		ev.budgetTime = now
	}
}

// dropIdle drops the queues of both kinds that need not be kept.
func (ev *evaluations) dropIdle() {
	for _, queues := range []map[string]*evaluationQueue{ev.queues, ev.explainQueues} {
		maps.DeleteFunc(queues, func(_ string, q *evaluationQueue) bool { return q.idle(ev.budgetTime) })
	}
}

// done lets the next batch of a queue run, and charges the costs of this one.
func (ev *evaluations) done(b *batch) {
	b.evaluation.interrupt() // which has nothing left to end
	b.queue.running = false
	ev.charge(b.queue.limiter, b.costs.Spent())
}

// charge subtracts units from a budget, which may become negative.
func (ev *evaluations) charge(costs *rate.Limiter, units int64) {
	for ; units > 0; units -= celBurst {
		costs.ReserveN(ev.budgetTime, int(min(units, celBurst)))
	}
}
