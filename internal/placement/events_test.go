package placement

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"

	clusterv1 "github.com/capstan-io/capstan/api/cluster/v1"
	clusterv1beta1 "github.com/capstan-io/capstan/api/cluster/v1beta1"
	clusterv1beta2 "github.com/capstan-io/capstan/api/cluster/v1beta2"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
)

// PL-22, P3, P4: an event names the placements that it can affect, and no other.
func TestAffected(t *testing.T) {
	t.Parallel()
	// Fifty clusters, with more CPU the higher their number, and placements that read different fields.
	s := newFleet()
	for i := range 50 {
		s.SetCluster(numbered(i))
		s.SetScore(usage(fmt.Sprintf("c%02d", i), int32(i), 0))
	}
	s.SetBinding(binding("elsewhere", "other"))
	s.SetClusterSet(set("other"))
	elsewhere := newPlacement(withName("elsewhere"))
	elsewhere.Namespace = "elsewhere"
	schedule(t, s, elsewhere)
	schedule(t, s, newPlacement(withName("all")))
	schedule(t, s, newPlacement(withName("eu"), withPredicates(byLabels(map[string]string{"region": "eu"}))))
	schedule(t, s, newPlacement(withName("cpu"), withLimit(3), withExactWeights(map[string]int32{"ResourceAllocatableCPU": 1})))
	schedule(t, s, newPlacement(withName("score"), withLimit(3), withExactWeights(map[string]int32{"AddOn/usage/cpu": 1})))
	schedule(t, s, newPlacement(withName("cel"), withPredicates(byCEL(`managedCluster.scores("usage").exists(s, s.value > 40)`))))

	for _, test := range []struct {
		name   string
		happen func() []Key
		want   []string
	}{
		{name: "a heartbeat", happen: func() []Key {
			c := numbered(49)
			c.Status.Conditions = []metav1.Condition{{Type: fleet.ConditionClusterAvailable, Status: "True"}}
			return s.SetCluster(c)
		}},
		{name: "a label that no placement reads", happen: func() []Key { return s.SetCluster(numbered(10, "color=red")) }},
		{name: "a label that one asks for", happen: func() []Key { return s.SetCluster(numbered(11, "region=eu")) }, want: []string{"eu"}},
		{name: "some CPU more, not enough", happen: func() []Key { return s.SetCluster(numbered(12, "cpu=30")) }},
		{name: "enough CPU to be among the best", happen: func() []Key { return s.SetCluster(numbered(12, "cpu=48500m")) },
			want: []string{"cpu"}},
		{name: "the most CPU of all", happen: func() []Key { return s.SetCluster(numbered(49, "cpu=200")) }, want: []string{"cpu"}},
		{name: "a low score", happen: func() []Key { return s.SetScore(usage("c03", 5, 0)) }},
		{name: "a score above a threshold", happen: func() []Key { return s.SetScore(usage("c03", 41, 0)) }, want: []string{"cel"}},
		{name: "a high score", happen: func() []Key { return s.SetScore(usage("c03", 99, 0)) }, want: []string{"score"}},
		{name: "a score that is gone", happen: func() []Key { return s.DeleteScore(Key{Namespace: "c03", Name: "usage"}) },
			want: []string{"cel", "score"}},
		{name: "another score", happen: func() []Key {
			other := usage("c49", -1, 0)
			other.Name = "cost"
			return s.SetScore(other)
		}},
		{name: "a taint", happen: func() []Key { return s.SetCluster(numbered(20, "taint:down:NoSelect")) }, want: []string{"all"}},
		{name: "another one", happen: func() []Key { return s.SetCluster(numbered(20, "taint:down:NoSelect", "taint:x:NoSelect")) }},
		{name: "a cluster that goes", happen: func() []Key { return s.DeleteCluster("c21") }, want: []string{"all"}},
		{name: "a cluster that never was", happen: func() []Key { return s.DeleteCluster("c99") }},
		{name: "a cluster that is of another set", happen: func() []Key {
			return s.SetCluster(numbered(22, fleet.LabelClusterSet+"=other"))
		}, want: []string{"all", "elsewhere"}},
		{name: "a binding that was there", happen: func() []Key { return s.SetBinding(binding("ns", "default")) }},
		{name: "a binding that leads nowhere", happen: func() []Key { return s.SetBinding(binding("ns", "nowhere")) }},
		{name: "a set that comes to a binding", happen: func() []Key { return s.SetClusterSet(set("nowhere")) },
			want: []string{"all", "cel", "cpu", "eu", "score"}},
		{name: "a set as it was", happen: func() []Key { return s.SetClusterSet(set("default")) }},
		{name: "a set without a binding", happen: func() []Key { return s.SetClusterSet(set("unbound")) }},
		{name: "a status", happen: func() []Key {
			p := newPlacement(withName("all"))
			p.Status.NumberOfSelectedClusters = 3
			return s.SetPlacement(p)
		}},
		{name: "a spec that says the same in other words", happen: func() []Key {
			p := newPlacement(withName("all"))
			p.Generation, p.Spec.Tolerations = 2, []clusterv1beta1.Toleration{}
			return s.SetPlacement(p)
		}, want: []string{"all"}},
		{name: "a spec", happen: func() []Key { return s.SetPlacement(newPlacement(withName("all"), withLimit(49))) }, want: []string{"all"}},
	} {
		affected := append(test.happen(), evaluateAll(s)...)
		var names []string
		for _, key := range sortedKeys(affected) {
			names = append(names, key.Name)
			s.Schedule(key)
		}
		evaluateAll(s)
		slices.Sort(names)
		if !slices.Equal(names, test.want) {
			t.Errorf("%s affects %q, want %q", test.name, names, test.want)
		}
	}
}

func numbered(i int, properties ...string) *clusterv1.ManagedCluster {
	return newMember(fmt.Sprintf("c%02d", i), append([]string{fmt.Sprintf("cpu=%d", i+1)}, properties...)...)
}

// The scheduler keeps nothing of deleted objects.
func TestMemoryIsReleased(t *testing.T) {
	t.Parallel()
	s := newFleet()
	for i := range 100 {
		name := fmt.Sprintf("c%d", i)
		s.SetCluster(newMember(name, "region=eu", "claim:id="+name))
		s.SetScore(usage(name, 1, 0))
		schedule(t, s, newPlacement())
		s.DeleteCluster(name)
		s.DeleteScore(Key{Namespace: name, Name: "usage"})
		schedule(t, s, newPlacement())
	}
	if len(s.snapshot.clusters.sorted) != 0 || len(s.snapshot.clusters.freeIndexes) > 2 {
		t.Errorf("of no cluster there are %d, and %d indexes", len(s.snapshot.clusters.sorted), len(s.snapshot.clusters.freeIndexes))
	}
	orphan := Key{Namespace: "elsewhere", Name: "orphan"}
	s.Restore(orphan, listed("c1"))
	s.Restore(orphan, nil)
	s.SetPlacement(newPlacement(disabled))
	s.DeletePlacement(keyOf(newPlacement()))
	s.DeleteBinding(Key{Namespace: "ns", Name: "default"})
	for name, left := range map[string]int{
		"clusters":             len(s.snapshot.clusters.byName),
		"placements":           len(s.snapshot.placements) + len(s.snapshot.placementsIn),
		"unmanaged placements": len(s.snapshot.orphans) + len(s.snapshot.unmanaged),
		"bindings":             len(s.snapshot.bindings) + len(s.snapshot.bound),
	} {
		if left > 0 {
			t.Errorf("of no %s there are %d", name, left)
		}
	}
}

// While no placement of a class was scheduled since all were returned, clusters affect none: a hub that starts gets all clusters before
// it schedules the first placement.
func TestPlacementsAreReturnedOnce(t *testing.T) {
	t.Parallel()
	s := newFleet()
	p, like := newPlacement(), newPlacement(withName("like"))
	affects := func(when string, keys []Key, want ...Key) {
		t.Helper()
		if got := sortedKeys(keys); !slices.Equal(got, want) {
			t.Errorf("%s affects %v, want %v", when, got, want)
		}
	}
	affects("a placement", s.SetPlacement(p), keyOf(p))
	affects("another one", s.SetPlacement(like), keyOf(like))
	affects("a cluster before the first schedule", s.SetCluster(newMember("a")))
	for _, name := range []string{"p", "like"} {
		wantClusters(t, schedule(t, s, newPlacement(withName(name))), "a")
	}
	s.classes.dropCandidates(s.snapshot.placements[keyOf(p)].class)
	affects("a cluster after the candidates were discarded", s.SetCluster(newMember("b")), keyOf(like), keyOf(p))
	affects("another one", s.SetCluster(newMember("c")))
	wantClusters(t, schedule(t, s, p), "a", "b", "c")
	affects("one after a schedule", s.SetCluster(newMember("d")), keyOf(like), keyOf(p))
}

// Events of bindings, cluster sets and clusters visit the placements of namespaces with such a binding, and no others: a hub that starts
// gets as many events as it has placements.
func TestNamespacesThatEventsVisit(t *testing.T) {
	t.Parallel()
	s := newFleet()
	s.SetPlacement(newPlacement(withPredicates(byCEL("broken"))))
	elsewhere := newPlacement()
	elsewhere.Namespace = "elsewhere"
	s.SetPlacement(elsewhere)
	// To visit a placement that is nil panics.
	s.snapshot.placements[keyOf(elsewhere)] = nil
	s.snapshot.placementsIn["elsewhere"] = sets.New[*placement](nil)
	other := set("other")
	other.Spec.ClusterSelector = clusterv1beta2.ManagedClusterSelector{SelectorType: clusterv1beta2.LabelSelector,
		LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"region": "eu"}}}
	for _, event := range []struct {
		name   string
		happen func() []Key
	}{
		{"a binding", func() []Key { return s.SetBinding(binding("ns", "other")) }},
		{"a set", func() []Key { return s.SetClusterSet(set("other")) }},
		{"the first cluster of a set", func() []Key { return s.SetCluster(newMember("a", fleet.LabelClusterSet+"=other")) }},
		{"another selector", func() []Key { return s.SetClusterSet(other) }},
		{"no set", func() []Key { return s.DeleteClusterSet("other") }},
		{"no binding", func() []Key { return s.DeleteBinding(Key{Namespace: "ns", Name: "other"}) }},
	} {
		func() {
			defer func() {
				if reason := recover(); reason != nil {
					t.Errorf("%s visits a placement of another namespace: %v", event.name, reason)
				}
			}()
			if keys := event.happen(); len(keys) != 1 {
				t.Errorf("%s affects %v", event.name, keys)
			}
		}()
	}
}

// Any number of workers may schedule concurrently with events. Afterwards, the numbers of decisions are right.
func TestConcurrentUse(t *testing.T) {
	t.Parallel()
	s := newFleet()
	for i := range 20 {
		s.SetCluster(numbered(i))
	}
	var workers sync.WaitGroup
	for worker := range 4 {
		workers.Go(func() {
			for i := range 50 {
				p := newPlacement(withName(fmt.Sprintf("p-%d-%d", worker, i)), withLimit(3))
				s.SetPlacement(p)
				s.Schedule(keyOf(p))
				s.SetCluster(numbered(i%20, fmt.Sprintf("worker=%d", worker)))
				s.Advance(start.Add(time.Duration(i) * time.Second))
				s.Explain(t.Context(), p)
				s.NextAdvance()
			}
		})
	}
	workers.Wait()
	total := 0
	for i := range 20 {
		count := s.snapshot.clusters.get(fmt.Sprintf("c%02d", i)).decisions
		if total += count; count != 30 {
			t.Errorf("c%02d has %d decisions of 600, want 30", i, count)
		}
	}
}

// A selected cluster whose reason changes affects the placement, even when its score does not.
func TestReasonsAreUpdated(t *testing.T) {
	t.Parallel()
	s := newFleet(newMember("a"), newMember("b"))
	p := newPlacement(withLimit(2), withWeights(map[string]int32{"AddOn/usage/cpu": 1}))
	schedule(t, s, p)
	for _, event := range []struct {
		name   string
		happen func() []Key
	}{
		{"a taint that ranks it last", func() []Key { return s.SetCluster(newMember("a", "taint:slow:PreferNoSelect")) }},
		{"another one", func() []Key { return s.SetCluster(newMember("a", "taint:slower:PreferNoSelect")) }},
		{"a taint that holds it", func() []Key { return s.SetCluster(newMember("b", "taint:full:NoSelectIfNew")) }},
		{"another one that does", func() []Key { return s.SetCluster(newMember("b", "taint:fuller:NoSelectIfNew")) }},
		{"a score while it is held", func() []Key { return s.SetScore(usage("b", 9, time.Second)) }},
		{"which expires", func() []Key { return s.Advance(start.Add(time.Second)) }},
		{"a score of 0 that expires", func() []Key {
			s.SetScore(usage("a", 0, 2*time.Second))
			return s.Advance(start.Add(2 * time.Second))
		}},
	} {
		if keys := event.happen(); len(keys) != 1 {
			t.Errorf("%s affects %v", event.name, keys)
		}
		s.Schedule(keyOf(p))
	}
}

// PL-06, P4: one after the other.
func TestExpiries(t *testing.T) {
	t.Parallel()
	s := newFleet(newMember("a"), newMember("b"), newMember("c"))
	schedule(t, s, newPlacement(withLimit(3), withWeights(map[string]int32{"AddOn/usage/cpu": 1})))
	s.SetScore(usage("a", 1, 10*time.Second))
	s.SetScore(usage("b", 1, 20*time.Second))
	s.SetScore(usage("c", 1, 30*time.Second))
	for _, seconds := range []time.Duration{10, 20, 30} {
		due := start.Add(seconds * time.Second)
		if !s.NextAdvance().Equal(due) {
			t.Errorf("the next time is %s, want %s", s.NextAdvance(), due)
		}
		if keys := s.Advance(due); len(keys) != 1 {
			t.Errorf("at %s, %v are affected", due, keys)
		}
	}
}
