package placement

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	clusterv1beta1 "github.com/capstan-io/capstan/api/cluster/v1beta1"
	clusterv1beta2 "github.com/capstan-io/capstan/api/cluster/v1beta2"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
)

// withCostlyCEL is an expression that takes a thousand units a cluster, and is the same only for the same number.
func withCostlyCEL(i int) option {
	return withPredicates(byCEL(fmt.Sprintf(`[%[1]s1].all(x, [%[1]s1].all(y, x + y + %[2]d > 0))`, strings.Repeat("1,", 9), i)))
}

func inNamespace(namespace string) option {
	return func(p *clusterv1beta1.Placement) { p.Namespace = namespace }
}

func newFleetOf(t *testing.T, n int) *Scheduler {
	t.Helper()
	s := newFleet()
	s.SetBinding(binding("tenant", "default"))
	for i := range n {
		s.SetCluster(newMember(fmt.Sprintf("c%04d", i)))
	}
	return s
}

// Costly expressions of one namespace delay neither the decisions nor the expressions of others, and are evaluated when the budget of
// the namespace is refilled.
func TestCELShareOfNamespace(t *testing.T) {
	t.Parallel()
	s, now := newFleetOf(t, 100), start
	s.AdvanceBudget(now)
	s.evaluations.charge(queueOf(s.evaluations.queues, "tenant").limiter, celBurst-batchCost) // lately
	const many = 5
	tenant := func(i int) *clusterv1beta1.Placement {
		return newPlacement(inNamespace("tenant"), withName(fmt.Sprintf("p%d", i)), withCostlyCEL(i))
	}
	for i := range many {
		s.SetPlacement(tenant(i))
		if result, _ := s.Schedule(keyOf(tenant(i))); !result.Pending || result.Deferred {
			t.Fatalf("placement %d: %+v", i, result)
		}
	}
	affected := affected{}
	running, _ := s.nextBatch(t.Context(), now, affected)
	wantClusters(t, schedule(t, s, newPlacement(withLimit(1))), "c0000")
	wantClusters(t, schedule(t, s,
		newPlacement(withName("cel"), withLimit(1), withPredicates(byCEL(`managedCluster.metadata.name == "c0003"`)))), "c0003")
	running.run(s.framework.timed)
	s.complete(running, affected)

	changed, again := s.Evaluate(t.Context(), now)
	for again.Equal(now) {
		var more []Key
		more, again = s.Evaluate(t.Context(), now)
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
		_, again = s.Evaluate(t.Context(), now)
	}
	if now.Sub(start) > 3*time.Second {
		t.Errorf("it is all done at %s, want it soon after %s", now, start)
	}
	for i := range many {
		if result, _ := s.Schedule(keyOf(tenant(i))); result.Selected != 100 {
			t.Errorf("placement %d: %+v", i, result)
		}
	}
	s.Evaluate(t.Context(), now.Add(time.Hour))
	if len(s.evaluations.queues) > 0 {
		t.Errorf("what cost nothing lately is remembered: %v", s.evaluations.queues)
	}
}

// A cluster that changes while it is evaluated is evaluated again, and the result for one that was deleted is dropped, even if
// another one has its index.
func TestChangesDuringEvaluation(t *testing.T) {
	t.Parallel()
	s := newFleet(newMember("c1", "region=eu"), newMember("c2", "region=eu"), newMember("c3", "region=eu"))
	p := newPlacement(withPredicates(byCEL(`managedCluster.metadata.labels.region == "eu"`)))
	s.SetPlacement(p)
	s.Schedule(keyOf(p))
	affected := affected{}
	b, _ := s.nextBatch(t.Context(), s.snapshot.now, affected)
	b.run(s.framework.timed)
	s.SetCluster(newMember("c1", "region=us"))
	s.DeleteCluster("c2")
	s.SetCluster(newMember("c4", "region=us"))
	s.complete(b, affected)
	if len(affected) > 0 {
		t.Errorf("changes %v", affected)
	}
	evaluateAll(s)
	result, _ := s.Schedule(keyOf(p))
	wantClusters(t, result, "c3")

	s.SetCluster(newMember("c3", "region=us"))
	if result, _ = s.Schedule(keyOf(p)); !slices.Equal(clusters(result), []string{"c3"}) {
		t.Errorf("a cluster that is not evaluated yet is dropped: %+v", result)
	}
	if changed := evaluateAll(s); !slices.Equal(changed, []Key{keyOf(p)}) {
		t.Errorf("changes %v", changed)
	}
	result, _ = s.Schedule(keyOf(p))
	wantClusters(t, result)
}

// A cluster whose labels change while its expressions are evaluated is decided by its labels.
func TestLabelsDecideDuringEvaluation(t *testing.T) {
	t.Parallel()
	s := newFleet(newMember("c1", "region=eu"), newMember("c2", "region=eu"))
	selector := byCEL("true")
	selector.LabelSelector.MatchLabels = map[string]string{"region": "eu"}
	p := newPlacement(withPredicates(selector))
	s.SetPlacement(p)
	s.Schedule(keyOf(p))
	b, _ := s.nextBatch(t.Context(), s.snapshot.now, affected{})
	b.run(s.framework.timed)
	s.SetCluster(newMember("c1", "region=us"))
	s.complete(b, affected{})
	evaluateAll(s)
	result, _ := s.Schedule(keyOf(p))
	wantClusters(t, result, "c2")
}

// setTimedTaint is a cluster with a score that expires.
func setTimedTaint(s *Scheduler, name string, after time.Duration) {
	s.SetCluster(newMember(name))
	s.SetScore(usage(name, 1, after))
}

var withUsage = withPredicates(byCEL(`managedCluster.scores("usage").size() == 1`))

// Expiries are handled for a placement whose expressions exceed the budget, and for clusters that were deleted.
func TestExpiryWhileOverBudget(t *testing.T) {
	t.Parallel()
	s := newFleet()
	for i := range 3 {
		setTimedTaint(s, fmt.Sprintf("c%d", i), time.Minute)
	}
	s.evaluations.celBudget = 10
	if schedule(t, s, newPlacement(withCostlyCEL(1))).Misconfigured == nil {
		t.Fatal("it does not cost too much")
	}
	s.DeleteCluster("c1")
	s.DeleteScore(Key{Namespace: "c1", Name: "usage"})
	s.Advance(start.Add(2 * time.Minute))
	if e := s.Explain(t.Context(), newPlacement(withCostlyCEL(1))); e.Result.Misconfigured == nil || len(s.evaluations.explainQueues) > 0 {
		t.Errorf("explained as %+v, at a cost", e.Result)
	}
}

// A class whose candidates were evicted is evaluated all the same.
func TestEvaluationAfterEviction(t *testing.T) {
	t.Parallel()
	s := newFleet(newMember("c1"), newMember("c2"))
	p := newPlacement(withPredicates(byCEL(`managedCluster.metadata.?labels["a"].orValue("") == "b"`)))
	s.SetPlacement(p)
	s.Schedule(keyOf(p))
	s.classes.dropCandidates(s.snapshot.placements[keyOf(p)].class)
	if changed := evaluateAll(s); !slices.Equal(changed, []Key{keyOf(p)}) {
		t.Errorf("changes %v", changed)
	}
	result, _ := s.Schedule(keyOf(p))
	wantClusters(t, result)
	s.classes.dropCandidates(s.snapshot.placements[keyOf(p)].class)
	s.SetCluster(newMember("c2", "a=b"))
	evaluateAll(s)
	result, _ = s.Schedule(keyOf(p))
	wantClusters(t, result, "c2")
}

// A score that is set while a placement is pending, or whose class is evicted, expires in time.
func TestExpiryDuringEvaluation(t *testing.T) {
	t.Parallel()
	s := newFleet(newMember("c1"), newMember("c2"))
	p := newPlacement(withUsage)
	s.SetPlacement(p)
	s.Schedule(keyOf(p))
	s.SetScore(usage("c1", 1, time.Minute))
	s.SetScore(usage("c2", 1, 2*time.Minute))
	evaluateAll(s)
	result, _ := s.Schedule(keyOf(p))
	wantClusters(t, result, "c1", "c2")
	s.classes.dropCandidates(s.snapshot.placements[keyOf(p)].class)
	for after, want := range []string{"c2", ""} {
		now := start.Add(time.Duration(after+1) * time.Minute)
		if changed := s.Advance(now); len(changed) == 0 {
			t.Errorf("at %s nothing changes", now)
		}
		if after == 0 {
			continue // it is not scheduled before the second one has expired, too
		}
		evaluateAll(s)
		result, _ = s.Schedule(keyOf(p))
		wantClusters(t, result, strings.Fields(want)...)
	}
}

// A cluster that changes all the time delays neither the evaluation of others nor the placements that select it.
func TestOftenChangingCluster(t *testing.T) {
	t.Parallel()
	s := newFleetOf(t, 5)
	p := newPlacement(withCostlyCEL(1))
	s.SetPlacement(p)
	s.Schedule(keyOf(p))
	for range 5 {
		b, _ := s.nextBatch(t.Context(), s.snapshot.now, affected{})
		if b == nil {
			break
		}
		b.evaluate(func() bool { return b.costs.Spent() > 0 }) // one cluster, as much as a batch may cost
		s.SetCluster(newMember("c0000", "another=label"))
		s.complete(b, affected{})
	}
	if result, _ := s.Schedule(keyOf(p)); result.Pending || result.Selected != 5 {
		t.Errorf("%+v", result)
	}
}

// Expressions of deleted placements are not evaluated, whether they are queued or in a running batch: placements that are created
// and deleted cost nothing afterwards.
func TestDeletedPlacementsAreNotEvaluated(t *testing.T) {
	t.Parallel()
	begun := func(t *testing.T) (*Scheduler, *clusterv1beta1.Placement) {
		t.Helper()
		s, p := newFleetOf(t, 5), newPlacement(withCostlyCEL(1))
		s.SetPlacement(p)
		s.Schedule(keyOf(p))
		return s, p
	}
	s, p := begun(t)
	if waiting := len(s.evaluations.queues[p.Namespace].waiting); waiting != 1 {
		t.Fatalf("%d evaluations wait", waiting)
	}
	s.DeletePlacement(keyOf(p))
	if waiting := len(s.evaluations.queues[p.Namespace].waiting); waiting != 0 {
		t.Errorf("%d evaluations of no placement wait", waiting)
	}
	for _, deleted := range []bool{false, true} {
		s, p := begun(t)
		b, _ := s.nextBatch(t.Context(), s.snapshot.now, affected{})
		if b == nil || len(b.items) == 0 {
			t.Fatal("nothing is to be evaluated")
		}
		if deleted {
			s.DeletePlacement(keyOf(p))
		}
		b.run(s.framework.timed)
		if evaluated := b.costs.Spent() > 0; evaluated == deleted {
			t.Errorf("deleted %t, evaluated %t", deleted, evaluated)
		}
		s.complete(b, affected{})
	}
}

// New members of a cluster set are evaluated before the placement gives up the clusters that it has and that are still members. Those that
// are not it gives up at once.
func TestNewMembersOfASet(t *testing.T) {
	t.Parallel()
	s := newFleet(newMember("c1", "phase=next"), newMember("c2", fleet.LabelClusterSet+"=other", "phase=next"), newMember("c3"))
	p := newPlacement(withPredicates(byCEL(`managedCluster.metadata.name.startsWith("c")`)))
	wantClusters(t, schedule(t, s, p), "c1", "c3")
	other := set("default")
	other.Spec.ClusterSelector = clusterv1beta2.ManagedClusterSelector{SelectorType: clusterv1beta2.LabelSelector,
		LabelSelector: &metav1.LabelSelector{
			MatchLabels: map[string]string{"phase": "next"},
		}}
	s.SetClusterSet(other)
	if result, _ := s.Schedule(keyOf(p)); !result.Pending || !slices.Equal(clusters(result), []string{"c1"}) {
		t.Errorf("it does not wait with what it has: %+v", result)
	}
	evaluateAll(s)
	result, _ := s.Schedule(keyOf(p))
	wantClusters(t, result, "c1", "c2")
}

// What the expressions cost for clusters that have left counts no more, however they left, and once for those that return.
func TestCostOfFormerMembers(t *testing.T) {
	t.Parallel()
	other := set("default")
	other.Spec.ClusterSelector = clusterv1beta2.ManagedClusterSelector{SelectorType: clusterv1beta2.LabelSelector,
		LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{fleet.LabelClusterSet: "other"}}}
	for name, leave := range map[string]func(*Scheduler){
		"deleted":         func(s *Scheduler) { s.DeleteCluster("c1") },
		"in another set":  func(s *Scheduler) { s.SetCluster(newMember("c1", fleet.LabelClusterSet+"=other")) },
		"by the selector": func(s *Scheduler) { s.SetClusterSet(other) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, p := newFleet(newMember("c1"), newMember("c2", fleet.LabelClusterSet+"=other")), newPlacement(withCostlyCEL(1))
			wantClusters(t, schedule(t, s, p), "c1")
			s.evaluations.celBudget = 2 * s.snapshot.placements[keyOf(p)].class.evaluation.cost
			for range 3 {
				leave(s)
				schedule(t, s, p)
				s.SetClusterSet(set("default"))
				s.SetCluster(newMember("c1"))
				schedule(t, s, p)
				evaluateAll(s)
				wantClusters(t, schedule(t, s, p), "c1")
			}
			s.SetClusterSet(other)
			result := schedule(t, s, p)
			if result.Misconfigured != nil {
				t.Errorf("one cluster costs too much: %v", result.Misconfigured)
			}
			wantClusters(t, result, "c2")
		})
	}
}

// Each class keeps 8 bytes for each cluster, once all are evaluated.
func TestMemoryOfResults(t *testing.T) {
	t.Parallel()
	const many = 1100 // more than a batch
	s, p := newFleetOf(t, many), newPlacement(withPredicates(byCEL(`managedCluster.metadata.name != "x"`)))
	if result := schedule(t, s, p); result.Selected != many {
		t.Fatalf("%+v", result)
	}
	e := s.snapshot.placements[keyOf(p)].class.evaluation
	if size := reflect.TypeFor[celResult]().Size(); size != 8 || cap(e.results) > many+many/10 || cap(e.waiting) != 0 {
		t.Errorf("%d results of %d bytes are kept, and a queue of %d", cap(e.results), size, cap(e.waiting))
	}
}

// Each class of placements is evaluated in a batch of its own, and once.
func TestBatchesOfManyPlacements(t *testing.T) {
	t.Parallel()
	const many = 300
	s := newFleet(newMember("c1"))
	for i := range many {
		p := newPlacement(withName(fmt.Sprintf("p%d", i)), withPredicates(byCEL(fmt.Sprintf(`managedCluster.metadata.name != "%d"`, i))))
		s.SetPlacement(p)
		s.Schedule(keyOf(p))
	}
	batches := 0
	for {
		_, again := s.Evaluate(t.Context(), s.snapshot.now)
		if !again.Equal(s.snapshot.now) {
			break
		}
		batches++
	}
	if batches != many {
		t.Errorf("%d batches for %d placements", batches, many)
	}
}
