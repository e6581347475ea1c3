package placement

import (
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	clusterv1beta1 "github.com/capstan-io/capstan/api/cluster/v1beta1"
	clusterv1beta2 "github.com/capstan-io/capstan/api/cluster/v1beta2"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
)

// PL-18
func TestSatisfied(t *testing.T) {
	t.Parallel()
	none := byLabels(map[string]string{"no": "such"})
	wanting := func(sets ...string) option {
		return func(p *clusterv1beta1.Placement) { p.Spec.ClusterSets = sets }
	}
	zones := withSpread(spreadOver("Label", "zone", 1, "DoNotSchedule"))
	elsewhere := func(p *clusterv1beta1.Placement) { p.Namespace = "unbound" }
	for name, test := range map[string]struct {
		placement *clusterv1beta1.Placement
		empty     bool
		reason    string
		message   string
	}{
		"all":         {placement: newPlacement(), reason: "AllDecisionsScheduled"},
		"as many":     {placement: newPlacement(withLimit(2)), reason: "AllDecisionsScheduled"},
		"none wanted": {placement: newPlacement(withLimit(0)), reason: "AllDecisionsScheduled"},
		"no binding": {placement: newPlacement(elsewhere), reason: "NoManagedClusterSetBindings",
			message: "namespace unbound"},
		"no intersection": {placement: newPlacement(wanting("other")), reason: "NoIntersection", message: `"other"`},
		"no intersection, of very many": {placement: newPlacement(wanting(slices.Repeat([]string{strings.Repeat("a", 63)}, 1000)...)),
			reason: "NoIntersection", message: "None of spec.clusterSets"},
		"empty sets":                    {placement: newPlacement(), empty: true, reason: "AllManagedClusterSetsEmpty"},
		"none matches":                  {placement: newPlacement(withPredicates(none)), reason: "NoManagedClusterMatched"},
		"none, of some":                 {placement: newPlacement(withPredicates(none), withLimit(1)), reason: "NoManagedClusterMatched"},
		"none wanted, but none matches": {placement: newPlacement(withPredicates(none), withLimit(0)), reason: "NoManagedClusterMatched"},
		"none has the topology":         {placement: newPlacement(zones), reason: "NotAllDecisionsScheduled", message: "spec.spreadPolicy wants"},
		"nor do some": {placement: newPlacement(zones, withLimit(1)), reason: "NotAllDecisionsScheduled",
			message: "1 cluster decisions unscheduled"},

		"too few": {placement: newPlacement(withLimit(5)), reason: "NotAllDecisionsScheduled", message: "3 cluster decisions unscheduled"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newFleet(newMember("a"), newMember("b"))
			if test.empty {
				s = newFleet()
			}
			got := schedule(t, s, test.placement)
			status := metav1.ConditionFalse
			if test.reason == fleet.ReasonAllDecisionsScheduled {
				status = metav1.ConditionTrue
			}
			if got.Satisfied.Type != "PlacementSatisfied" || got.Satisfied.Status != status || got.Satisfied.Reason != test.reason ||
				!strings.Contains(got.Satisfied.Message, test.message) || len(got.Satisfied.Message) > 32768 { // which is what the API takes
				t.Errorf("%+v, want %s because of %s: %s", got.Satisfied, status, test.reason, test.message)
			}
			if condition := got.ConditionMisconfigured(); condition.Status != "False" || condition.Reason != "Succeedconfigured" {
				t.Errorf("%+v", condition) // PL-19
			}
			if len(got.Groups) == 0 {
				t.Error("there is no decision group")
			}
		})
	}
}

// PL-18: clusters that are added and removed without being selected leave the message as it is, or affect the placement.
func TestSatisfiedIsUpdated(t *testing.T) {
	t.Parallel()
	s := newFleet(newMember("a", "taint:down:NoSelect"))
	p, none := newPlacement(), newPlacement(withName("none"), withLimit(0))
	was := schedule(t, s, p).Satisfied
	schedule(t, s, none)
	if keys := s.SetCluster(newMember("b", "taint:down:NoSelect")); len(keys) != 0 {
		t.Errorf("one more cluster that does not match affects %v", keys)
	}
	if is := schedule(t, s, p).Satisfied; is != was {
		t.Errorf("from %+v it became %+v, and the placement is not affected", was, is)
	}
	if keys := s.SetCluster(newMember("c")); len(keys) != 2 {
		t.Errorf("the first cluster that matches affects %v", keys)
	}
}

// PL-05, PL-07, PL-19, PL-29
func TestMisconfigured(t *testing.T) {
	t.Parallel()
	spec := func(change func(*clusterv1beta1.PlacementSpec)) option {
		return func(p *clusterv1beta1.Placement) { change(&p.Spec) }
	}
	toleration := func(t clusterv1beta1.Toleration) option { return withTolerations(t) }
	coordinate := func(c *clusterv1beta1.ScoreCoordinate) option {
		return spec(func(s *clusterv1beta1.PlacementSpec) {
			s.PrioritizerPolicy.Configurations = []clusterv1beta1.PrioritizerConfig{{ScoreCoordinate: c, Weight: 1}}
		})
	}
	badLabels := byLabels(map[string]string{"a b": "c"})
	badExpression := func(key string) metav1.LabelSelectorRequirement {
		return metav1.LabelSelectorRequirement{Key: key, Operator: "Like"}
	}
	for want, option := range map[string]option{
		"TaintToleration:spec.tolerations[0].operator: must be Exists": toleration(clusterv1beta1.Toleration{Value: "v"}),
		"TaintToleration:spec.tolerations[0].value: \"v\" must be empty": toleration(clusterv1beta1.Toleration{Key: "k", Operator: "Exists",
			Value: "v"}),
		"TaintToleration:spec.tolerations[0].operator: \"In\" is neither": toleration(clusterv1beta1.Toleration{Key: "k", Operator: "In"}),

		"Prioritizer:spec.prioritizerPolicy.configurations[0].scoreCoordinate: must": coordinate(nil),
		"scoreCoordinate.builtIn: \"Spread\" is none of": coordinate(&clusterv1beta1.ScoreCoordinate{
			BuiltIn: "Spread"}),
		"scoreCoordinate.addOn: must name":           coordinate(&clusterv1beta1.ScoreCoordinate{Type: "AddOn"}),
		"scoreCoordinate.type: \"Other\" is neither": coordinate(&clusterv1beta1.ScoreCoordinate{Type: "Other"}),
		"spec.prioritizerPolicy.mode: \"Some\" is neither": spec(func(s *clusterv1beta1.PlacementSpec) {
			s.PrioritizerPolicy.Mode = "Some"
		}),

		"Predicate:spec.predicates: CEL expressions: there are 25000; the limit is 100":                                              withPredicates(byCEL(slices.Repeat([]string{"true"}, 25_000)...)),
		"Predicate:spec.predicates[0].requiredClusterSelector.celSelector.celExpressions[0] has 9000 bytes; the limit is 8192 bytes": withPredicates(byCEL(strings.Repeat("a", 9000))),
		"Predicate:spec.predicates: there are 101; there must be 100 at most": spec(func(s *clusterv1beta1.PlacementSpec) {
			s.Predicates = make([]clusterv1beta1.ClusterPredicate, 101)
		}),
		"Predicate:spec.predicates: entries of matchLabels and matchExpressions: there are 501; the limit is 500": spec(func(s *clusterv1beta1.PlacementSpec) {
			s.Predicates = make([]clusterv1beta1.ClusterPredicate, 3)
			for i := range s.Predicates {
				s.Predicates[i].RequiredClusterSelector.ClaimSelector.MatchExpressions = make([]metav1.LabelSelectorRequirement, 167)
			}
		}),
		"DecisionGroups:spec.decisionStrategy.groupStrategy.decisionGroups: there are 501; there must be 500 at most": spec(func(s *clusterv1beta1.PlacementSpec) {
			s.DecisionStrategy.GroupStrategy.DecisionGroups = make([]clusterv1beta1.DecisionGroup, 501)
		}),

		"Predicate:spec.predicates[0].requiredClusterSelector.labelSelector: ": withPredicates(badLabels),
		"Predicate:spec.predicates[0].requiredClusterSelector.claimSelector: ": withPredicates(byClaim("a",
			"Like")),
		"Predicate:spec.predicates[0].requiredClusterSelector.celSelector.celExpressions[0]: compilation failed": withPredicates(byCEL("1 +")),

		"DecisionGroups:spec.decisionStrategy.groupStrategy.clustersPerDecisionGroup: \"many\"": spec(func(s *clusterv1beta1.PlacementSpec) {
			s.DecisionStrategy.GroupStrategy.ClustersPerDecisionGroup = intstr.FromString("many")
		}),
		"decisionGroups[0].groupClusterSelector.labelSelector: ": spec(func(s *clusterv1beta1.PlacementSpec) {
			s.DecisionStrategy.GroupStrategy.DecisionGroups = []clusterv1beta1.DecisionGroup{{ClusterSelector: clusterv1beta1.GroupClusterSelector{
				LabelSelector: metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{badExpression("a")}}}}}
		}),

		"Spread:spec.spreadPolicy.spreadConstraints[0].topologyKey: must":   withSpread(spreadOver("Label", "", 1, "")),
		"spreadConstraints[0].maxSkew: -1 must":                             withSpread(spreadOver("Label", "a", -1, "")),
		"spreadConstraints[0].topologyKeyType: \"Zone\" is neither":         withSpread(spreadOver("Zone", "a", 1, "")),
		"spreadConstraints[0].whenUnsatisfiable: \"Wait\" is neither":       withSpread(spreadOver("Label", "a", 1, "Wait")),
		"spec.spreadPolicy.spreadConstraints: there are 9; there must be 8": withSpread(make([]clusterv1beta1.SpreadConstraintsTerm, 9)...),
		"Placement:spec.numberOfClusters: -1 must not be negative":          withLimit(-1),
		"Placement:spec.scoreRateLimit: \"often\" is no duration such as 30s": spec(func(s *clusterv1beta1.PlacementSpec) {
			s.ScoreRateLimit = "often"
		}),
		"Placement:metadata.name: ": withName(strings.Repeat("n", 64)),
	} {
		t.Run(want, func(t *testing.T) {
			t.Parallel()
			result := schedule(t, newFleet(newMember("a")), newPlacement(option))
			condition := result.ConditionMisconfigured()
			if condition.Status != "True" || condition.Reason != "Misconfigured" || !strings.Contains(condition.Message, want) {
				t.Errorf("%+v", condition)
			}
		})
	}
}

// PL-18, PL-19: PlacementSatisfied says first why nothing can be selected, also if the placement is misconfigured.
func TestMisconfiguredAndUnbound(t *testing.T) {
	t.Parallel()
	s := newFleet(newMember("a"))
	check := func(p *clusterv1beta1.Placement, reason string) {
		t.Helper()
		result := schedule(t, s, p)
		if result.Satisfied.Status != metav1.ConditionFalse || result.Satisfied.Reason != reason ||
			result.ConditionMisconfigured().Status != metav1.ConditionTrue {
			t.Errorf("%+v, %+v, want %s", result.Satisfied, result.ConditionMisconfigured(), reason)
		}
	}
	broken := withPredicates(byCEL("broken"))
	check(newPlacement(broken), "NotAllDecisionsScheduled")
	check(newPlacement(broken, func(p *clusterv1beta1.Placement) { p.Spec.ClusterSets = []string{"other"} }), "NoIntersection")
	unbound := newPlacement(broken, func(p *clusterv1beta1.Placement) { p.Namespace = "unbound" })
	check(unbound, "NoManagedClusterSetBindings")
	bound := newPlacement().Namespace
	var binding string
	for name := range s.snapshot.bindings[bound] {
		binding = name
	}
	keys := s.SetBinding(&clusterv1beta2.ManagedClusterSetBinding{ObjectMeta: metav1.ObjectMeta{Namespace: "unbound", Name: binding}})
	if len(keys) != 1 || keys[0] != keyOf(unbound) {
		t.Errorf("a binding is about %v", keys)
	}
	check(unbound, "NotAllDecisionsScheduled")
}

// PL-18, PL-19: so it does if the sets have no clusters.
func TestMisconfiguredOnEmptySets(t *testing.T) {
	t.Parallel()
	for what, breaking := range map[string]func(*Scheduler) option{
		"its spec": func(*Scheduler) option { return withPredicates(byCEL("broken")) },
		"its cost": func(s *Scheduler) option {
			s.evaluations.celBudget = 1
			return withPredicates(byCEL(`managedCluster.metadata.name.startsWith("a")`))
		},
	} {
		s := newFleet(newMember("a"))
		p := newPlacement(breaking(s))
		elsewhere := newPlacement(withName("elsewhere"), withPredicates(byCEL("broken")))
		elsewhere.Namespace = "unbound"
		schedule(t, s, elsewhere)
		check := func(when, reason string) {
			t.Helper()
			result := schedule(t, s, p)
			if result.Satisfied.Status != metav1.ConditionFalse || result.Satisfied.Reason != reason || reason == "NotAllDecisionsScheduled" &&
				result.Misconfigured == nil {
				t.Errorf("%s, %s: %+v, %v, want %s", what, when, result.Satisfied, result.Misconfigured, reason)
			}
		}
		check("one cluster", "NotAllDecisionsScheduled")
		affects := func(when string, keys []Key, reason string) {
			t.Helper()
			if !slices.Contains(keys, keyOf(p)) || slices.Contains(keys, keyOf(elsewhere)) {
				t.Errorf("%s, %s: it affects %v", what, when, keys)
			}
			check(when, reason)
		}
		affects("the cluster goes", s.DeleteCluster("a"), "AllManagedClusterSetsEmpty")
		affects("another comes", s.SetCluster(newMember("b")), "NotAllDecisionsScheduled")
		if keys := s.SetCluster(newMember("c")); slices.Contains(keys, keyOf(p)) {
			t.Errorf("%s: one more cluster affects %v", what, keys)
		}
		other := set("default")
		other.Spec.ClusterSelector = clusterv1beta2.ManagedClusterSelector{
			SelectorType: clusterv1beta2.LabelSelector, LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"no": "such"}},
		}
		affects("the set selects none", s.SetClusterSet(other), "AllManagedClusterSetsEmpty")
		if what == "its spec" { // what is known of clusters costs nothing again
			affects("the set selects some", s.SetClusterSet(set("default")), "NotAllDecisionsScheduled")
		}
	}
}

// PL-26, P11
func TestMisconfiguredKeepsDecisions(t *testing.T) {
	t.Parallel()
	s := newFleet(newMember("a"), newMember("b"))
	wantClusters(t, schedule(t, s, newPlacement()), "a", "b")
	result := schedule(t, s, newPlacement(withPredicates(byCEL("broken"))))
	if result.Misconfigured == nil || result.Selected != 2 {
		t.Errorf("%+v", result)
	}
	wantClusters(t, result, "a", "b")
	if result.Satisfied.Reason != "NotAllDecisionsScheduled" ||
		!strings.Contains(result.Satisfied.Message, "the 2 clusters selected before stay") {
		t.Errorf("%+v", result.Satisfied)
	}
	// They still count for others, and the placement has them when it is corrected.
	other := newPlacement(withName("other"), withExactWeights(map[string]int32{"Balance": 1}))
	if score := scoresOf(s, other)["a"]; score != -100 {
		t.Errorf("Balance of a is %d", score)
	}
	wantClusters(t, schedule(t, s, newPlacement(withPredicates(byCEL("true")))), "a", "b")
}

// PL-21
func TestDisabled(t *testing.T) {
	t.Parallel()
	s := newFleet(newMember("a"))
	disabled := newPlacement()
	disabled.Annotations = map[string]string{fleet.AnnotationSchedulingDisable: "true"}
	if result := schedule(t, s, disabled); !result.Disabled || result.Groups != nil {
		t.Errorf("%+v", result)
	}
	if keys := s.SetPlacement(newPlacement()); len(keys) != 1 {
		t.Error("it is to be scheduled again, and is not")
	}
	wantClusters(t, schedule(t, s, newPlacement()), "a")
}

// A placement that was deleted, or is being deleted, has no result, and its decisions do not count.
func TestGone(t *testing.T) {
	t.Parallel()
	s := newFleet(newMember("a"))
	schedule(t, s, newPlacement())
	going := newPlacement()
	going.DeletionTimestamp = &metav1.Time{Time: start}
	s.SetPlacement(going)
	if _, ok := s.Schedule(keyOf(going)); ok {
		t.Error("a placement that is being deleted is scheduled")
	}
	if s.snapshot.decisionCounts.max != 0 || len(s.classes.byKey)+s.classes.cachedCandidates != 0 {
		t.Error("something is left of it")
	}
	schedule(t, s, newPlacement())
	again := newPlacement()
	again.UID = "2"
	s.SetPlacement(again)
	if s.snapshot.decisionCounts.max != 0 {
		t.Error("a new placement of the name has the decisions of the old one")
	}
}
