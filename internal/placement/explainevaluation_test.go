package placement

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"
)

// Explanations and evaluations do not use up each other's budgets.
func TestExplainWhileEvaluating(t *testing.T) {
	t.Parallel()
	s := newFleetOf(t, 300)
	for i := range 3 {
		p := newPlacement(inNamespace("tenant"), withName(fmt.Sprintf("p%d", i)), withCostlyCEL(i))
		s.SetPlacement(p)
		s.Schedule(keyOf(p))
	}
	p := newPlacement(withPredicates(byCEL(`managedCluster.metadata.name.startsWith("c00")`)))
	s.SetPlacement(p)
	s.Schedule(keyOf(p))
	var group sync.WaitGroup
	group.Go(func() { evaluateAll(s) })
	group.Go(func() {
		for i := range 300 {
			s.SetCluster(newMember(fmt.Sprintf("c%04d", i), "another=label"))
		}
	})
	for range 3 {
		if e := s.Explain(t.Context(), p); e.Result.Selected != 100 || !e.Why("c0099").Selected || e.Why("c0100").Selected {
			t.Errorf("explained as %+v", e.Result)
		}
	}
	group.Wait()
	evaluateAll(s)
	if result, _ := s.Schedule(keyOf(p)); result.Selected != 100 {
		t.Errorf("%+v", result)
	}
}

// Explanations of one namespace do not use up the budget of others, and are charged to their own.
func TestCELShareOfExplanations(t *testing.T) {
	t.Parallel()
	s := newFleetOf(t, 3)
	s.AdvanceBudget(s.snapshot.now)
	p := newPlacement(withCostlyCEL(1))
	s.SetPlacement(p)
	left := func() float64 { return s.evaluations.explainQueues["ns"].limiter.TokensAt(s.evaluations.budgetTime) }
	if e := s.Explain(t.Context(), p); e.Result.Selected != 3 || left() == celBurst {
		t.Errorf("explained as %+v", e.Result)
	}
	s.evaluations.charge(queueOf(s.evaluations.explainQueues, "ns").limiter, celBurst)
	e := s.Explain(t.Context(), p)
	if !e.Result.Pending || e.Why("c0000").Reason != "it was not selected before its CEL expressions had to be evaluated" {
		t.Errorf("explained as %+v, %+v", e.Result, e.Clusters)
	}
	if e := s.Explain(t.Context(), newPlacement(inNamespace("tenant"), withCostlyCEL(1))); e.Result.Selected != 3 {
		t.Errorf("explained as %+v", e.Result)
	}
	s.Schedule(keyOf(p))
	if evaluateAll(s); s.evaluations.queues["ns"].limiter.TokensAt(s.evaluations.budgetTime) <= 0 {
		t.Error("the placement pays for its explanations")
	}
	never := newPlacement(withName("never"), withPredicates(byCEL(`managedCluster.metadata.name == "x"`)))
	schedule(t, s, never)
	if e := s.Explain(t.Context(), never); e.Why("c0000").Reason != "spec.predicates[0]: "+errCEL.Error() {
		t.Errorf("explained as %+v", e.Clusters)
	}
	s.AdvanceBudget(start.Add(time.Hour))
	if e := s.Explain(t.Context(), never); !strings.HasSuffix(e.Why("c0000").Reason, "is false") {
		t.Errorf("explained as %+v", e.Clusters)
	}
}

// An explanation that nobody waits for any more evaluates nothing, and keeps no other one from evaluating.
func TestAbandonedExplanation(t *testing.T) {
	t.Parallel()
	s := newFleetOf(t, 3)
	s.AdvanceBudget(s.snapshot.now)
	p := newPlacement(withCostlyCEL(1))
	abandoned, abandon := context.WithCancel(t.Context())
	abandon()
	left := func() float64 { return s.evaluations.explainQueues["ns"].limiter.TokensAt(s.evaluations.budgetTime) }
	if e := s.Explain(abandoned, p); !e.Result.Pending || left() != celBurst {
		t.Errorf("explained as %+v", e.Result)
	}
	if e := s.Explain(t.Context(), p); e.Result.Selected != 3 {
		t.Errorf("explained as %+v", e.Result)
	}
	s.evaluations.charge(queueOf(s.evaluations.explainQueues, "ns").limiter, celBurst/2)
	s.SetPlacement(p)
	s.Schedule(keyOf(p))
	evaluateAll(s)
	never := newPlacement(withName("never"), withPredicates(byCEL(`managedCluster.metadata.name == "x"`)))
	schedule(t, s, never)
	evaluateAll(s)
	if e := s.Explain(abandoned, never); e.Why("c0000").Reason != "" {
		t.Errorf("explained as %+v", e.Clusters)
	}
}

// Schedulers that exist one after the other may have one budget together. It is kept only while some of it is used up.
func TestSharedExplainBudgets(t *testing.T) {
	t.Parallel()
	budgets := ExplainBudgets{}
	explain := func(now time.Time) *Explanation {
		s := New(Options{ExplainBudgets: budgets})
		s.Advance(now)
		s.AdvanceBudget(now)
		s.SetClusterSet(set("default"))
		s.SetBinding(binding("ns", "default"))
		s.SetCluster(newMember("a"))
		return s.Explain(t.Context(), newPlacement(withCostlyCEL(1)))
	}
	if e := explain(start); e.Result.Selected != 1 || len(budgets) != 1 {
		t.Errorf("explained as %+v", e.Result)
	}
	budgets["ns"].limiter.ReserveN(start, celBurst)
	if e := explain(start); !e.Result.Pending {
		t.Errorf("explained as %+v", e.Result)
	}
	s := New(Options{ExplainBudgets: budgets})
	if s.AdvanceBudget(start.Add(time.Hour)); len(budgets) != 0 {
		t.Errorf("%d budgets are kept", len(budgets))
	}
}
