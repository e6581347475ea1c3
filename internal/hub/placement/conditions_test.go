package placement

import (
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	clusterv1beta1 "github.com/capstan-io/capstan/api/cluster/v1beta1"
	scheduler "github.com/capstan-io/capstan/internal/placement"
)

// PL-17 to PL-19: each reason of PlacementSatisfied and PlacementMisconfigured, as it is written: with the generation,
// with the time at which the status changed, and in that order.
func TestConditions(t *testing.T) {
	t.Parallel()
	earlier := metav1.NewTime(start.Add(-time.Hour).Local())
	selecting := func(key string) clusterv1beta1.PlacementSpec {
		return clusterv1beta1.PlacementSpec{
			Predicates: []clusterv1beta1.ClusterPredicate{{RequiredClusterSelector: clusterv1beta1.ClusterSelector{
				LabelSelector: metav1.LabelSelector{MatchLabels: map[string]string{key: "x"}}}}}}
	}
	broken := clusterv1beta1.PlacementSpec{Tolerations: []clusterv1beta1.Toleration{{Operator: "Nonsense"}}}
	with := func(spec clusterv1beta1.PlacementSpec, change func(*clusterv1beta1.PlacementSpec)) clusterv1beta1.PlacementSpec {
		change(&spec)
		return spec
	}
	inOther := func(s *clusterv1beta1.PlacementSpec) { s.ClusterSets = []string{"other"} }
	unbound := func(s *scheduler.Scheduler) { s.DeleteBinding(scheduler.Key{Namespace: "team-a", Name: "set"}) }
	empty := func(s *scheduler.Scheduler) { s.DeleteCluster("a"); s.DeleteCluster("b") }
	for name, test := range map[string]struct {
		spec     clusterv1beta1.PlacementSpec
		fleet    func(*scheduler.Scheduler) // nil for two clusters in a set that is bound
		reason   string                     // of PlacementSatisfied
		message  string
		problem  string // in the message of PlacementMisconfigured; empty if it is False
		selected int32
	}{
		"all":             {clusterv1beta1.PlacementSpec{}, nil, "AllDecisionsScheduled", "All", "", 2},
		"no binding":      {clusterv1beta1.PlacementSpec{}, unbound, "NoManagedClusterSetBindings", "namespace team-a", "", 0},
		"no intersection": {with(clusterv1beta1.PlacementSpec{}, inOther), nil, "NoIntersection", `"other"`, "", 0},
		"empty sets":      {clusterv1beta1.PlacementSpec{}, empty, "AllManagedClusterSetsEmpty", "no clusters", "", 0},
		"none matches":    {selecting("no"), nil, "NoManagedClusterMatched", "spec.predicates", "", 0},
		"too few": {clusterv1beta1.PlacementSpec{NumberOfClusters: ptr.To[int32](3)}, nil, "NotAllDecisionsScheduled",
			"1 cluster decisions unscheduled", "", 2},
		"misconfigured": {broken, nil, "NotAllDecisionsScheduled", "misconfigured", "TaintToleration:spec.tolerations[0].operator",
			0},
		"misconfigured selectors":      {selecting("a b"), nil, "NotAllDecisionsScheduled", "misconfigured", "Predicate:spec.predicates[0]", 0},
		"misconfigured on empty sets":  {broken, empty, "AllManagedClusterSetsEmpty", "no clusters", "TaintToleration:", 0},
		"misconfigured without sets":   {broken, unbound, "NoManagedClusterSetBindings", "namespace team-a", "TaintToleration:", 0},
		"misconfigured for other sets": {with(broken, inOther), nil, "NoIntersection", `"other"`, "TaintToleration:", 0},
	} {
		for _, before := range []metav1.ConditionStatus{"", metav1.ConditionTrue, metav1.ConditionFalse} {
			t.Run(name+"/"+string(before), func(t *testing.T) {
				t.Parallel()
				p := newPlacement(test.spec)
				p.Generation = 7
				if before != "" {
					p.Status.Conditions = []metav1.Condition{
						{Type: "PlacementSatisfied", Status: before, Reason: "Before", LastTransitionTime: earlier, ObservedGeneration: 6},
						{Type: "PlacementMisconfigured", Status: before, Reason: "Before", LastTransitionTime: earlier, ObservedGeneration: 6},
					}
				}
				b := newControllerTest(t, interceptor.Funcs{}, p)
				if test.fleet != nil {
					test.fleet(b.scheduler)
				}
				b.scheduler.SetPlacement(p.DeepCopy())
				b.reconcile(t)
				if err := b.client.Get(t.Context(), web, p); err != nil {
					t.Fatal(err)
				}
				satisfied, misconfigured := metav1.ConditionFalse, metav1.ConditionFalse
				if test.reason == "AllDecisionsScheduled" {
					satisfied = metav1.ConditionTrue
				}
				configuration := "Succeedconfigured"
				if test.problem != "" {
					misconfigured, configuration = metav1.ConditionTrue, "Misconfigured"
				}
				expect := func(kind string, status metav1.ConditionStatus, reason, message string) {
					t.Helper()
					at := start
					if status == before {
						at = earlier.Time
					}
					got := meta.FindStatusCondition(p.Status.Conditions, kind)
					if got == nil || got.Status != status || got.Reason != reason || !strings.Contains(got.Message, message) ||
						got.ObservedGeneration != 7 || !got.LastTransitionTime.Time.Equal(at) {
						t.Errorf("got %+v, want %s %s %q at %s", got, status, reason, message, at)
					}
				}
				expect("PlacementSatisfied", satisfied, test.reason, test.message)
				expect("PlacementMisconfigured", misconfigured, configuration, test.problem)
				if order := slices.IndexFunc(p.Status.Conditions,
					func(c metav1.Condition) bool { return c.Type == "PlacementSatisfied" }); order != 0 || len(p.Status.Conditions) != 2 {
					t.Errorf("conditions %+v", p.Status.Conditions)
				}
				if p.Status.NumberOfSelectedClusters != test.selected || len(p.Status.DecisionGroups) != 1 ||
					p.Status.DecisionGroups[0].ClustersCount != test.selected {
					t.Errorf("status %+v", p.Status)
				}
			})
		}
	}
}
