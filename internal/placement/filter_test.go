package placement

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	clusterv1alpha1 "github.com/capstan-io/capstan/api/cluster/v1alpha1"
	clusterv1beta1 "github.com/capstan-io/capstan/api/cluster/v1beta1"
)

// PL-03: a class with CEL expressions has the clusters that match, and its next time is the earliest expiry.
func TestMatchTogether(t *testing.T) {
	t.Parallel()
	s := newFleet()
	var want []string
	for i := range 1000 {
		name := fmt.Sprintf("c%04d", i)
		s.SetCluster(newMember(name, fmt.Sprintf("half=%d", i%2)))
		s.SetScore(usage(name, 1, time.Duration(2000-i)*time.Second))
		if i%3 == 0 {
			want = append(want, name)
		}
	}
	all := newPlacement(withPredicates(byCEL(`managedCluster.scores("usage").size() == 1 && int(managedCluster.metadata.name.substring(1)) % 3 == 0`)))
	if diff := cmp.Diff(want, clusters(schedule(t, s, all))); diff != "" {
		t.Error(diff)
	}
	if next := start.Add(1001 * time.Second); !s.NextAdvance().Equal(next) {
		t.Errorf("the next time is %s, want %s", s.NextAdvance(), next)
	}
	half := byCEL(`int(managedCluster.metadata.name.substring(1)) % 3 == 0`)
	half.LabelSelector.MatchLabels = map[string]string{"half": "1"}
	odd := slices.DeleteFunc(want, func(name string) bool { return (name[len(name)-1]-'0')%2 == 0 })
	if diff := cmp.Diff(odd, clusters(schedule(t, s, newPlacement(withName("half"), withPredicates(half))))); diff != "" {
		t.Error(diff)
	}
}

// PL-03: all predicates together may cost as much for a cluster as Kubernetes allows for one object. Beyond it, no predicate matches.
func TestPredicatesShareLimitOfCluster(t *testing.T) {
	t.Parallel()
	s := newFleet(newMember("c1"), newMember("c2"))
	many := usage("c2", 1, 0)
	many.Status.Scores = make([]clusterv1alpha1.AddOnPlacementScoreItem, 100_000)
	s.SetScore(many)
	s.SetScore(usage("c1", 1, 0))
	var selectors []clusterv1beta1.ClusterSelector
	for range 12 { // each costs 900,000 for c2, and little for c1
		selectors = append(selectors, byCEL(`[1, 2, 3, 4, 5, 6, 7, 8, 9].exists(x, managedCluster.scores("usage").size() == 0)`))
	}
	wantClusters(t, schedule(t, s, newPlacement(withPredicates(append(selectors[:3:3], byCEL("true"))...))), "c1", "c2")
	result := schedule(t, s, newPlacement(withPredicates(append(selectors, byCEL("true"))...)))
	if result.Misconfigured != nil {
		t.Fatal(result.Misconfigured)
	}
	wantClusters(t, result, "c1")
}

// PL-03, PL-26: expressions that exceed the budget make the placement misconfigured, and take no cluster away.
func TestExpressionsThatCostTooMuch(t *testing.T) {
	t.Parallel()
	s := newFleet()
	for i := range 1000 {
		s.SetCluster(newMember(fmt.Sprintf("c%04d", i)))
	}
	s.evaluations.celBudget = 100_000
	p := newPlacement(withLimit(1), withPredicates(byCEL(`managedCluster.metadata.name.startsWith("c0003")`)))
	wantClusters(t, schedule(t, s, p), "c0003")
	costly := newPlacement(withLimit(1), withPredicates(byCEL(`[`+strings.Repeat("1,", 100)+`1].all(x, x == 1)`)))
	for range 2 {
		result := schedule(t, s, costly)
		if result.Misconfigured == nil ||
			!strings.HasPrefix(result.Misconfigured.Error(), "Predicate:spec.predicates: the celExpressions cost more than 100000") {
			t.Fatalf("%+v", result)
		}
		if result.Selected != 1 || !slices.Equal(clusters(result), []string{"c0003"}) || !s.Selects(keyOf(costly), "c0003") {
			t.Errorf("it does not keep what it has: %+v", result)
		}
		if keys := s.SetCluster(newMember("c0003", "another=label")); len(keys) != 0 {
			t.Errorf("a cluster affects %v", keys)
		}
	}
	if explanation := s.Explain(t.Context(), costly); explanation.Result.Misconfigured == nil || !explanation.Why("c0003").Selected {
		t.Errorf("explained as %+v", explanation.Result)
	}
	wantClusters(t, schedule(t, s, p), "c0003")
}

// PL-03, PL-26: expressions that exceed the budget are evaluated again when the spec changes, even if they stay; and then for all
// placements of the class.
func TestOverBudgetIsRetried(t *testing.T) {
	t.Parallel()
	s := newFleet()
	for i := range 1000 {
		s.SetCluster(newMember(fmt.Sprintf("c%04d", i)))
	}
	s.evaluations.celBudget = 100_000
	costly := withPredicates(byCEL(`[` + strings.Repeat("1,", 100) + `1].all(x, x == 1)`))
	schedule(t, s, newPlacement(withLimit(1), costly))
	if schedule(t, s, newPlacement(withName("alike"), withLimit(1), costly)).Misconfigured == nil {
		t.Fatal("it does not cost too much")
	}
	for i := 1; i < 1000; i++ {
		s.DeleteCluster(fmt.Sprintf("c%04d", i))
	}
	if schedule(t, s, newPlacement(withLimit(1), costly)).Misconfigured == nil {
		t.Error("it is evaluated again although nothing has changed")
	}
	changed := newPlacement(withLimit(2), costly)
	keys := s.SetPlacement(changed)
	slices.SortFunc(keys, func(a, b Key) int { return strings.Compare(a.Name, b.Name) })
	if diff := cmp.Diff([]Key{{Namespace: "ns", Name: "alike"}, keyOf(changed)}, keys); diff != "" {
		t.Error(diff)
	}
	for _, key := range keys {
		if result, _ := s.Schedule(key); !result.Pending {
			t.Errorf("%s is decided before the expressions are evaluated: %+v", key, result)
		}
	}
	evaluateAll(s)
	for _, key := range keys {
		result, _ := s.Schedule(key)
		wantClusters(t, result, "c0000")
	}
}
