package placement

import (
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1 "github.com/capstan-io/capstan/api/cluster/v1"
	clusterv1alpha1 "github.com/capstan-io/capstan/api/cluster/v1alpha1"
	clusterv1beta1 "github.com/capstan-io/capstan/api/cluster/v1beta1"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
	"github.com/capstan-io/capstan/test/env"
	"github.com/capstan-io/capstan/test/integration/framework"
)

// PL-01 PL-02 PL-16 PL-17 PL-18 PL-19 PL-20: from a placement to decisions, with the reasons why, and what becomes of them
// when clusters and the placement change.
func TestPlacement(t *testing.T) {
	t.Parallel()
	s := framework.NewSite(t, "place", "a", "b", "c")
	s.Place(t, "two", clusterv1beta1.PlacementSpec{NumberOfClusters: ptr.To[int32](2), Tolerations: []clusterv1beta1.Toleration{framework.Tolerant}})
	s.Await(t, "two", "a", "b")
	p := s.AwaitPlacement(t, "two", fleet.ConditionPlacementSatisfied, metav1.ConditionTrue, fleet.ReasonAllDecisionsScheduled)
	if p.Status.NumberOfSelectedClusters != 2 || len(p.Status.DecisionGroups) != 1 ||
		!slices.Equal(p.Status.DecisionGroups[0].Decisions, []string{"two-decision-1"}) {
		t.Errorf("status %+v", p.Status)
	}
	decision := &clusterv1beta1.PlacementDecision{}
	if err := s.C.Get(t.Context(), client.ObjectKey{Namespace: s.Name, Name: "two-decision-1"}, decision); err != nil {
		t.Fatal(err)
	}
	if decision.Labels[fleet.LabelPlacement] != "two" || decision.Labels[fleet.LabelDecisionGroupIndex] != "0" ||
		!metav1.IsControlledBy(decision, p) {
		t.Errorf("decision %+v", decision.ObjectMeta)
	}
	for _, d := range decision.Status.Decisions {
		if d.Reason == "" {
			t.Errorf("nothing says why %s was selected", d.ClusterName)
		}
	}
	for _, reason := range []string{fleet.EventDecisionCreate, fleet.EventScoreUpdate} {
		framework.AwaitEvent(t, s.C, s.Name, reason)
	}

	if err := s.C.Delete(t.Context(), &clusterv1.ManagedCluster{ObjectMeta: metav1.ObjectMeta{Name: "place-a"}}); err != nil {
		t.Fatal(err)
	}
	s.Await(t, "two", "b", "c")
	framework.AwaitEvent(t, s.C, s.Name, fleet.EventDecisionUpdate)
	framework.MergePatch(t, s.C, p, `{"spec":{"numberOfClusters":3}}`)
	s.AwaitPlacement(t, "two", fleet.ConditionPlacementSatisfied, metav1.ConditionFalse, fleet.ReasonNotAllDecisionsScheduled)

	// Who takes decisions away or changes them gets them back.
	if err := s.C.Get(t.Context(), client.ObjectKeyFromObject(decision), decision); err != nil {
		t.Fatal(err)
	}
	decision.Status.Decisions = decision.Status.Decisions[:1]
	if err := s.C.Status().Update(t.Context(), decision); err != nil {
		t.Fatal(err)
	}
	s.Await(t, "two", "b", "c")
	if err := s.C.Delete(t.Context(), decision); err != nil {
		t.Fatal(err)
	}
	s.Await(t, "two", "b", "c")
	if err := s.C.Delete(t.Context(), p); err != nil {
		t.Fatal(err)
	}
	framework.AwaitGone(t, s.C, decision)
}

// PL-18: a placement that finds no set says what to do.
func TestPlacementWithoutSets(t *testing.T) {
	t.Parallel()
	s := framework.NewSite(t, "place-no-sets")
	framework.Create(t, s.C, &clusterv1beta1.Placement{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "unbound-namespace"}})
	s.Place(t, "empty-set", clusterv1beta1.PlacementSpec{})
	s.Place(t, "other-set", clusterv1beta1.PlacementSpec{ClusterSets: []string{"not-bound-here"}})
	s.AwaitPlacement(t, "empty-set", fleet.ConditionPlacementSatisfied, metav1.ConditionFalse, fleet.ReasonAllManagedClusterSetsEmpty)
	s.AwaitPlacement(t, "other-set", fleet.ConditionPlacementSatisfied, metav1.ConditionFalse, fleet.ReasonNoIntersection)
	(&framework.Site{C: s.C, Name: "default"}).AwaitPlacement(t, "unbound-namespace", fleet.ConditionPlacementSatisfied, metav1.ConditionFalse,
		fleet.ReasonNoManagedClusterSetBindings)
	s.Await(t, "empty-set")
}

// PL-26 P11: a placement that comes to make no sense keeps the clusters it has, and says what is wrong.
func TestMisconfiguredPlacementKeepsItsClusters(t *testing.T) {
	t.Parallel()
	s := framework.NewSite(t, "place-broken", "a", "b")
	p := s.Place(t, "all", clusterv1beta1.PlacementSpec{Tolerations: []clusterv1beta1.Toleration{framework.Tolerant}})
	s.Await(t, "all", "a", "b")
	framework.MergePatch(t, s.C, p, `{"spec":{"prioritizerPolicy":{"configurations":[{"scoreCoordinate":{"type":"BuiltIn","builtIn":"Nonsense"},"weight":1}]}}}`)
	p = s.AwaitPlacement(t, "all", fleet.ConditionPlacementMisconfigured, metav1.ConditionTrue, fleet.ReasonMisconfigured)
	if message := meta.FindStatusCondition(p.Status.Conditions, fleet.ConditionPlacementMisconfigured).Message; !strings.Contains(message,
		"Nonsense") {
		t.Errorf("message %q", message)
	}
	s.Await(t, "all", "a", "b")
	framework.MergePatch(t, s.C, p, `{"spec":{"prioritizerPolicy":null,"numberOfClusters":1}}`)
	s.AwaitPlacement(t, "all", fleet.ConditionPlacementMisconfigured, metav1.ConditionFalse, fleet.ReasonSucceedConfigured)
	s.Await(t, "all", "a")
}

// PL-04 PL-06, and the scenarios of migration: a taint moves the decisions at once, or when the toleration is over.
func TestDecisionsMove(t *testing.T) {
	t.Parallel()
	s := framework.NewSite(t, "place-moves", "a", "b")
	one := framework.SteadyOne(framework.Tolerant)
	const delay = 3 * time.Second
	s.Place(t, "at-once", one)
	one.Tolerations = append(slices.Clone(one.Tolerations),
		clusterv1beta1.Toleration{Key: "maintenance", Operator: clusterv1beta1.TolerationOpExists,
			TolerationSeconds: ptr.To(int64(delay.Seconds()))})
	s.Place(t, "later", one)
	s.Await(t, "at-once", "a")
	s.Await(t, "later", "a")
	s.Taint(t, "a", clusterv1.Taint{Key: "maintenance", Value: "today", Effect: clusterv1.TaintEffectNoSelect})
	s.Await(t, "at-once", "b")
	s.Await(t, "later", "b")
	s.ExpectDelay(t, "a", "maintenance", delay)
	// Back in service, it does not take its decisions away from where they are now.
	s.Taint(t, "a")
	s.Place(t, "new", clusterv1beta1.PlacementSpec{NumberOfClusters: ptr.To[int32](1), Tolerations: []clusterv1beta1.Toleration{framework.Tolerant}})
	s.Await(t, "new", "a")
	s.Await(t, "at-once", "b")
}

// PL-12 P4: scores that an add-on gives choose the cluster, until they expire.
func TestScoresExpire(t *testing.T) {
	t.Parallel()
	s := framework.NewSite(t, "place-scores", "a", "b")
	score := func(end string, value int32, validUntil time.Time) *clusterv1alpha1.AddOnPlacementScore {
		t.Helper()
		ns := s.Name + "-" + end
		framework.Namespace(t, s.C, ns)
		o := &clusterv1alpha1.AddOnPlacementScore{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "usage"}}
		framework.Create(t, s.C, o)
		o.Status = clusterv1alpha1.AddOnPlacementScoreStatus{ValidUntil: ptr.To(metav1.NewTime(validUntil)),
			Scores: []clusterv1alpha1.AddOnPlacementScoreItem{{Name: "free", Value: value}}}
		if err := s.C.Status().Update(t.Context(), o); err != nil {
			t.Fatal(err)
		}
		return o
	}
	score("a", 10, time.Now().Add(time.Hour))
	best := score("b", 90, time.Now().Add(time.Hour))
	s.Place(t, "one", clusterv1beta1.PlacementSpec{
		NumberOfClusters: ptr.To[int32](1), Tolerations: []clusterv1beta1.Toleration{framework.Tolerant},
		PrioritizerPolicy: clusterv1beta1.PrioritizerPolicy{Mode: clusterv1beta1.PrioritizerPolicyModeExact,
			Configurations: []clusterv1beta1.PrioritizerConfig{{
				ScoreCoordinate: &clusterv1beta1.ScoreCoordinate{Type: clusterv1beta1.ScoreCoordinateTypeAddOn,
					AddOn: &clusterv1beta1.AddOnScore{ResourceName: "usage", ScoreName: "free"}}, Weight: 1,
			}}},
	})
	s.Await(t, "one", "b")
	best.Status.ValidUntil = ptr.To(metav1.NewTime(time.Now().Add(2 * time.Second)))
	if err := s.C.Status().Update(t.Context(), best); err != nil {
		t.Fatal(err)
	}
	s.Await(t, "one", "a")
}

// PL-09 PL-10: a hub that restarts knows what it decided, and leaves it as it is.
func TestDecisionsOutliveTheHub(t *testing.T) {
	t.Parallel()
	own := env.StartHub(t, "")
	s := framework.NewSiteOn(t, own, "steady")
	s.Add(t, "b", nil)
	s.Place(t, "one", clusterv1beta1.PlacementSpec{NumberOfClusters: ptr.To[int32](1), Tolerations: []clusterv1beta1.Toleration{framework.Tolerant}})
	s.Await(t, "one", "b")
	own.Kill()
	if err := own.Start(); err != nil {
		t.Fatal(err)
	}
	if err := own.AwaitReady(t.Context()); err != nil {
		t.Fatal(err)
	}
	// By name it would come first.
	s.Add(t, "a", nil)
	s.Place(t, "witness", clusterv1beta1.PlacementSpec{Tolerations: []clusterv1beta1.Toleration{framework.Tolerant}})
	s.Await(t, "witness", "a", "b")
	s.Await(t, "one", "b")
}
