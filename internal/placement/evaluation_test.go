package placement

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	clusterv1beta1 "github.com/capstan-io/capstan/api/cluster/v1beta1"
)

// costly is an expression that takes a thousand units a cluster, and is the same only for the same number.
func costly(i int) option {
	return matching(byCEL(fmt.Sprintf(`[%[1]s1].all(x, [%[1]s1].all(y, x + y + %[2]d > 0))`, strings.Repeat("1,", 9), i)))
}

func in(namespace string) option {
	return func(p *clusterv1beta1.Placement) { p.Namespace = namespace }
}

func ofClusters(t *testing.T, n int) *Scheduler {
	t.Helper()
	s := newFleet()
	s.SetBinding(binding("tenant", "default"))
	for i := range n {
		s.SetCluster(member(fmt.Sprintf("c%04d", i)))
	}
	return s
}

// What the expressions of one namespace cost holds up neither the decisions of others nor, when that was too much, their expressions;
// and it is their turn again when time has passed.
func TestCostsOfANamespace(t *testing.T) {
	t.Parallel()
	s, now := ofClusters(t, 100), start
	s.costs("tenant").ReserveN(now, celBurst-batchCost) // lately
	const many = 5
	tenant := func(i int) *clusterv1beta1.Placement {
		return asking(in("tenant"), named(fmt.Sprintf("p%d", i)), costly(i))
	}
	for i := range many {
		s.SetPlacement(tenant(i))
		if result, _ := s.Schedule(keyOf(tenant(i))); !result.Pending || result.Deferred {
			t.Fatalf("placement %d: %+v", i, result)
		}
	}
	found := affected{}
	running, _ := s.nextBatch(now, found)
	wantClusters(t, schedule(t, s, asking(limit(1))), "c0000")
	wantClusters(t, schedule(t, s, asking(named("cel"), limit(1), matching(byCEL(`managedCluster.metadata.name == "c0003"`)))), "c0003")
	running.run(batchCost, s.timed)
	s.finish(running, now, found)

	changed, again := s.Evaluate(now)
	for again.Equal(now) {
		var more []Key
		more, again = s.Evaluate(now)
		changed = append(changed, more...)
	}
	if again.Before(now) || again.After(now.Add(time.Second)) {
		t.Errorf("the next turn is at %s, want it soon after %s", again, now)
	}
	deferred := 0
	for _, key := range changed {
		if result, _ := s.Schedule(key); result.Deferred {
			deferred++
		}
	}
	if deferred == 0 || deferred == many {
		t.Errorf("%d of %d placements know that they wait for their turn", deferred, many)
	}
	for !again.IsZero() {
		now = again
		_, again = s.Evaluate(now)
	}
	if now.Sub(start) > 3*time.Second {
		t.Errorf("it is all done at %s, want it soon after %s", now, start)
	}
	for i := range many {
		if result, _ := s.Schedule(keyOf(tenant(i))); result.Selected != 100 {
			t.Errorf("placement %d: %+v", i, result)
		}
	}
	s.Evaluate(now.Add(time.Hour))
	if len(s.celCosts) > 0 {
		t.Errorf("what cost nothing lately is remembered: %v", s.celCosts)
	}
}

// A cluster that changes while expressions are applied to it is looked at again, and one that is gone is forgotten, even where
// another one has its place.
func TestChangesDuringEvaluation(t *testing.T) {
	t.Parallel()
	s := newFleet(member("c1", "region=eu"), member("c2", "region=eu"), member("c3", "region=eu"))
	p := asking(matching(byCEL(`managedCluster.metadata.labels.region == "eu"`)))
	s.SetPlacement(p)
	s.Schedule(keyOf(p))
	found := affected{}
	b, _ := s.nextBatch(s.now, found)
	b.run(batchCost, s.timed)
	s.SetCluster(member("c1", "region=us"))
	s.DeleteCluster("c2")
	s.SetCluster(member("c4", "region=us"))
	s.finish(b, s.now, found)
	if len(found) > 0 {
		t.Errorf("changes %v", found)
	}
	evaluateAll(s)
	result, _ := s.Schedule(keyOf(p))
	wantClusters(t, result, "c3")

	s.SetCluster(member("c3", "region=us"))
	if result, _ = s.Schedule(keyOf(p)); !slices.Equal(clusters(result), []string{"c3"}) {
		t.Errorf("a cluster that is not evaluated yet is dropped: %+v", result)
	}
	if changed := evaluateAll(s); !slices.Equal(changed, []Key{keyOf(p)}) {
		t.Errorf("changes %v", changed)
	}
	result, _ = s.Schedule(keyOf(p))
	wantClusters(t, result)
}

// Who explains a placement, and what the expressions of others cost, do not get into each other's way.
func TestExplainWhileEvaluating(t *testing.T) {
	t.Parallel()
	s := ofClusters(t, 300)
	for i := range 3 {
		p := asking(in("tenant"), named(fmt.Sprintf("p%d", i)), costly(i))
		s.SetPlacement(p)
		s.Schedule(keyOf(p))
	}
	p := asking(matching(byCEL(`managedCluster.metadata.name.startsWith("c00")`)))
	s.SetPlacement(p)
	s.Schedule(keyOf(p))
	var group sync.WaitGroup
	group.Go(func() { evaluateAll(s) })
	group.Go(func() {
		for i := range 300 {
			s.SetCluster(member(fmt.Sprintf("c%04d", i), "another=label"))
		}
	})
	for range 3 {
		if e := s.Explain(p); e.Result.Selected != 100 || !e.Why("c0099").Selected || e.Why("c0100").Selected {
			t.Errorf("explained as %+v", e.Result)
		}
	}
	group.Wait()
	evaluateAll(s)
	if result, _ := s.Schedule(keyOf(p)); result.Selected != 100 {
		t.Errorf("%+v", result)
	}
}
