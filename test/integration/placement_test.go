package integration

import (
	"context"
	"fmt"
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
	clusterv1beta2 "github.com/capstan-io/capstan/api/cluster/v1beta2"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
	"github.com/capstan-io/capstan/test/env"
)

// site is a set of clusters, bound to a namespace, that no other test knows.
type site struct {
	c    client.WithWatch
	name string // of the set, of the namespace, and what the names of the clusters begin with
}

// newSite makes a site with clusters by the ends of their names.
func newSite(t *testing.T, name string, clusters ...string) *site {
	t.Helper()
	return newSiteOn(t, hub, name, clusters...)
}

func newSiteOn(t *testing.T, on *env.Server, name string, clusters ...string) *site {
	t.Helper()
	s := &site{c: on.Client(t), name: name}
	namespace(t, s.c, name)
	create(t, s.c,
		&clusterv1beta2.ManagedClusterSet{ObjectMeta: metav1.ObjectMeta{Name: name}},
		&clusterv1beta2.ManagedClusterSetBinding{ObjectMeta: metav1.ObjectMeta{Namespace: name, Name: name},
			Spec: clusterv1beta2.ManagedClusterSetBindingSpec{ClusterSet: name}})
	for _, end := range clusters {
		s.add(t, end, nil)
	}
	return s
}

// add makes a cluster that tells the hub nothing. Its unreachable taint is tolerated by the placements here.
func (s *site) add(t *testing.T, end string, labels map[string]string) *clusterv1.ManagedCluster {
	t.Helper()
	mc := &clusterv1.ManagedCluster{ObjectMeta: metav1.ObjectMeta{Name: s.name + "-" + end,
		Labels: map[string]string{fleet.LabelClusterSet: s.name}}}
	for key, value := range labels {
		mc.Labels[key] = value
	}
	create(t, s.c, mc)
	return mc
}

// tolerant tolerates that a cluster does not report.
var tolerant = clusterv1beta1.Toleration{Key: fleet.TaintUnreachable, Operator: clusterv1beta1.TolerationOpExists}

func (s *site) place(t *testing.T, name string, spec clusterv1beta1.PlacementSpec) *clusterv1beta1.Placement {
	t.Helper()
	p := &clusterv1beta1.Placement{ObjectMeta: metav1.ObjectMeta{Namespace: s.name, Name: name}, Spec: spec}
	create(t, s.c, p)
	return p
}

// selected reads the decisions of a placement exactly as the ApplicationSet generator of Argo CD does (AR-01): by the label
// with the name of the placement.
func (s *site) selected(ctx context.Context, name string) (ends []string, err error) {
	list := &clusterv1beta1.PlacementDecisionList{}
	if err := s.c.List(ctx, list, client.InNamespace(s.name),
		client.MatchingLabels{"cluster.open-cluster-management.io/placement": name}); err != nil {
		return nil, err
	}
	if len(list.Items) == 0 {
		return nil, fmt.Errorf("placement %s has no decision object", name)
	}
	for _, d := range list.Items {
		for _, one := range d.Status.Decisions {
			ends = append(ends, strings.TrimPrefix(one.ClusterName, s.name+"-"))
		}
	}
	slices.Sort(ends)
	return ends, nil
}

func (s *site) await(t *testing.T, name string, want ...string) {
	t.Helper()
	env.Eventually(t, func(ctx context.Context) error {
		got, err := s.selected(ctx, name)
		if err != nil {
			return err
		}
		if !slices.Equal(got, want) {
			return fmt.Errorf("placement %s selected %v, want %v", name, got, want)
		}
		return nil
	})
}

func (s *site) awaitPlacement(t *testing.T, name, kind string, status metav1.ConditionStatus, reason string) *clusterv1beta1.Placement {
	t.Helper()
	p := &clusterv1beta1.Placement{}
	env.Eventually(t, func(ctx context.Context) error {
		if err := s.c.Get(ctx, client.ObjectKey{Namespace: s.name, Name: name}, p); err != nil {
			return err
		}
		cond := meta.FindStatusCondition(p.Status.Conditions, kind)
		if cond == nil || cond.Status != status || cond.Reason != reason || cond.ObservedGeneration != p.Generation {
			return fmt.Errorf("want %s=%s (%s), have %+v", kind, status, reason, cond)
		}
		return nil
	})
	return p
}

func (s *site) taint(t *testing.T, end string, taints ...clusterv1.Taint) {
	t.Helper()
	env.Eventually(t, func(ctx context.Context) error {
		mc := &clusterv1.ManagedCluster{}
		if err := s.c.Get(ctx, client.ObjectKey{Name: s.name + "-" + end}, mc); err != nil {
			return err
		}
		mc.Spec.Taints = append(slices.DeleteFunc(mc.Spec.Taints,
			func(taint clusterv1.Taint) bool { return !strings.Contains(taint.Key, "open-cluster-management.io") }), taints...)
		return s.c.Update(ctx, mc)
	})
}

// PL-01 PL-02 PL-16 PL-17 PL-18 PL-19 PL-20: from a placement to decisions, with the reasons why, and what becomes of them
// when clusters and the placement change.
func TestPlacement(t *testing.T) {
	t.Parallel()
	s := newSite(t, "place", "a", "b", "c")
	s.place(t, "two", clusterv1beta1.PlacementSpec{NumberOfClusters: ptr.To[int32](2), Tolerations: []clusterv1beta1.Toleration{tolerant}})
	s.await(t, "two", "a", "b")
	p := s.awaitPlacement(t, "two", fleet.ConditionPlacementSatisfied, metav1.ConditionTrue, fleet.ReasonAllDecisionsScheduled)
	if p.Status.NumberOfSelectedClusters != 2 || len(p.Status.DecisionGroups) != 1 ||
		!slices.Equal(p.Status.DecisionGroups[0].Decisions, []string{"two-decision-1"}) {
		t.Errorf("status %+v", p.Status)
	}
	decision := &clusterv1beta1.PlacementDecision{}
	if err := s.c.Get(t.Context(), client.ObjectKey{Namespace: s.name, Name: "two-decision-1"}, decision); err != nil {
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
		awaitEvent(t, s.c, s.name, reason)
	}

	if err := s.c.Delete(t.Context(), &clusterv1.ManagedCluster{ObjectMeta: metav1.ObjectMeta{Name: "place-a"}}); err != nil {
		t.Fatal(err)
	}
	s.await(t, "two", "b", "c")
	awaitEvent(t, s.c, s.name, fleet.EventDecisionUpdate)
	mergePatch(t, s.c, p, `{"spec":{"numberOfClusters":3}}`)
	s.awaitPlacement(t, "two", fleet.ConditionPlacementSatisfied, metav1.ConditionFalse, fleet.ReasonNotAllDecisionsScheduled)

	// Who takes decisions away or changes them gets them back.
	if err := s.c.Get(t.Context(), client.ObjectKeyFromObject(decision), decision); err != nil {
		t.Fatal(err)
	}
	decision.Status.Decisions = decision.Status.Decisions[:1]
	if err := s.c.Status().Update(t.Context(), decision); err != nil {
		t.Fatal(err)
	}
	s.await(t, "two", "b", "c")
	if err := s.c.Delete(t.Context(), decision); err != nil {
		t.Fatal(err)
	}
	s.await(t, "two", "b", "c")
	if err := s.c.Delete(t.Context(), p); err != nil {
		t.Fatal(err)
	}
	awaitGone(t, s.c, decision)
}

// PL-18: a placement that finds no set says what to do.
func TestPlacementWithoutSets(t *testing.T) {
	t.Parallel()
	s := newSite(t, "place-no-sets")
	create(t, s.c, &clusterv1beta1.Placement{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "unbound-namespace"}})
	s.place(t, "empty-set", clusterv1beta1.PlacementSpec{})
	s.place(t, "other-set", clusterv1beta1.PlacementSpec{ClusterSets: []string{"not-bound-here"}})
	s.awaitPlacement(t, "empty-set", fleet.ConditionPlacementSatisfied, metav1.ConditionFalse, fleet.ReasonAllManagedClusterSetsEmpty)
	s.awaitPlacement(t, "other-set", fleet.ConditionPlacementSatisfied, metav1.ConditionFalse, fleet.ReasonNoIntersection)
	(&site{c: s.c, name: "default"}).awaitPlacement(t, "unbound-namespace", fleet.ConditionPlacementSatisfied, metav1.ConditionFalse,
		fleet.ReasonNoManagedClusterSetBindings)
	s.await(t, "empty-set")
}

// PL-26 P11: a placement that comes to make no sense keeps the clusters it has, and says what is wrong.
func TestMisconfiguredPlacementKeepsItsClusters(t *testing.T) {
	t.Parallel()
	s := newSite(t, "place-broken", "a", "b")
	p := s.place(t, "all", clusterv1beta1.PlacementSpec{Tolerations: []clusterv1beta1.Toleration{tolerant}})
	s.await(t, "all", "a", "b")
	mergePatch(t, s.c, p, `{"spec":{"prioritizerPolicy":{"configurations":[{"scoreCoordinate":{"type":"BuiltIn","builtIn":"Nonsense"},"weight":1}]}}}`)
	p = s.awaitPlacement(t, "all", fleet.ConditionPlacementMisconfigured, metav1.ConditionTrue, fleet.ReasonMisconfigured)
	if message := meta.FindStatusCondition(p.Status.Conditions, fleet.ConditionPlacementMisconfigured).Message; !strings.Contains(message,
		"Nonsense") {
		t.Errorf("message %q", message)
	}
	s.await(t, "all", "a", "b")
	mergePatch(t, s.c, p, `{"spec":{"prioritizerPolicy":null,"numberOfClusters":1}}`)
	s.awaitPlacement(t, "all", fleet.ConditionPlacementMisconfigured, metav1.ConditionFalse, fleet.ReasonSucceedConfigured)
	s.await(t, "all", "a")
}

// steadyOne selects one cluster. It has no Balance, which would give each placement a cluster of its own.
func steadyOne(tolerations ...clusterv1beta1.Toleration) clusterv1beta1.PlacementSpec {
	return clusterv1beta1.PlacementSpec{
		NumberOfClusters: ptr.To[int32](1), Tolerations: tolerations,
		PrioritizerPolicy: clusterv1beta1.PrioritizerPolicy{Mode: clusterv1beta1.PrioritizerPolicyModeExact,
			Configurations: []clusterv1beta1.PrioritizerConfig{{
				ScoreCoordinate: &clusterv1beta1.ScoreCoordinate{Type: clusterv1beta1.ScoreCoordinateTypeBuiltIn,
					BuiltIn: clusterv1beta1.PrioritizerSteady}, Weight: 1,
			}}},
	}
}

// PL-04 PL-06, and the scenarios of migration: a taint moves the decisions at once, or when the toleration is over.
func TestDecisionsMove(t *testing.T) {
	t.Parallel()
	s := newSite(t, "place-moves", "a", "b")
	one := steadyOne(tolerant)
	const delay = 3 * time.Second
	s.place(t, "at-once", one)
	one.Tolerations = append(slices.Clone(one.Tolerations),
		clusterv1beta1.Toleration{Key: "maintenance", Operator: clusterv1beta1.TolerationOpExists,
			TolerationSeconds: ptr.To(int64(delay.Seconds()))})
	s.place(t, "later", one)
	s.await(t, "at-once", "a")
	s.await(t, "later", "a")
	s.taint(t, "a", clusterv1.Taint{Key: "maintenance", Value: "today", Effect: clusterv1.TaintEffectNoSelect})
	s.await(t, "at-once", "b")
	s.await(t, "later", "b")
	s.expectDelay(t, "a", "maintenance", delay)
	// Back in service, it does not take its decisions away from where they are now.
	s.taint(t, "a")
	s.place(t, "new", clusterv1beta1.PlacementSpec{NumberOfClusters: ptr.To[int32](1), Tolerations: []clusterv1beta1.Toleration{tolerant}})
	s.await(t, "new", "a")
	s.await(t, "at-once", "b")
}

// PL-04 PL-06, and the first two scenarios of migration with a real cluster: its agent dies, it is unreachable, and the
// decision goes elsewhere; at once, or when the toleration is over and not before.
func TestDecisionsLeaveALostCluster(t *testing.T) {
	t.Parallel()
	s := newSite(t, "place-lost")
	c := s.c
	agents := map[string]*env.Agent{}
	for _, end := range []string{"a", "b"} {
		name := s.name + "-" + end
		agents[end] = env.Join(t, hub, managed, name)
		mc := &clusterv1.ManagedCluster{ObjectMeta: metav1.ObjectMeta{Name: name}}
		mergePatch(t, c, mc, fmt.Sprintf(`{"metadata":{"labels":{%q:%q}}}`, fleet.LabelClusterSet, s.name))
	}
	one := steadyOne()
	const delay = 5 * time.Second
	s.place(t, "one", one)
	one.Tolerations = []clusterv1beta1.Toleration{{Key: fleet.TaintUnreachable, Operator: clusterv1beta1.TolerationOpExists,
		TolerationSeconds: ptr.To(int64(delay.Seconds()))}}
	s.place(t, "later", one)
	s.await(t, "one", "a")
	s.await(t, "later", "a")
	// The other keeps its minute, so that it is not lost because the machine is busy.
	mergePatch(t, c, &clusterv1.ManagedCluster{ObjectMeta: metav1.ObjectMeta{Name: s.name + "-a"}}, `{"spec":{"leaseDurationSeconds":1}}`)
	agents["a"].Kill()
	s.await(t, "one", "b")
	s.await(t, "later", "b")
	s.expectDelay(t, "a", fleet.TaintUnreachable, delay)
}

// expectDelay fails the test if a decision that has just left a cluster has waited for less than the delay since the cluster
// has the taint.
func (s *site) expectDelay(t *testing.T, end, taint string, delay time.Duration) {
	t.Helper()
	moved := time.Now()
	mc := &clusterv1.ManagedCluster{}
	if err := s.c.Get(t.Context(), client.ObjectKey{Name: s.name + "-" + end}, mc); err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(mc.Spec.Taints, func(has clusterv1.Taint) bool { return has.Key == taint })
	if i < 0 {
		t.Fatalf("it has no taint %s: %+v", taint, mc.Spec.Taints)
	}
	if after := moved.Sub(mc.Spec.Taints[i].TimeAdded.Time); after < delay {
		t.Errorf("the decision that waits for %s has moved after %s", delay, after)
	}
}

// PL-12 P4: scores that an add-on gives choose the cluster, until they expire.
func TestScoresExpire(t *testing.T) {
	t.Parallel()
	s := newSite(t, "place-scores", "a", "b")
	score := func(end string, value int32, validUntil time.Time) *clusterv1alpha1.AddOnPlacementScore {
		t.Helper()
		ns := s.name + "-" + end
		namespace(t, s.c, ns)
		o := &clusterv1alpha1.AddOnPlacementScore{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "usage"}}
		create(t, s.c, o)
		o.Status = clusterv1alpha1.AddOnPlacementScoreStatus{ValidUntil: ptr.To(metav1.NewTime(validUntil)),
			Scores: []clusterv1alpha1.AddOnPlacementScoreItem{{Name: "free", Value: value}}}
		if err := s.c.Status().Update(t.Context(), o); err != nil {
			t.Fatal(err)
		}
		return o
	}
	score("a", 10, time.Now().Add(time.Hour))
	best := score("b", 90, time.Now().Add(time.Hour))
	s.place(t, "one", clusterv1beta1.PlacementSpec{
		NumberOfClusters: ptr.To[int32](1), Tolerations: []clusterv1beta1.Toleration{tolerant},
		PrioritizerPolicy: clusterv1beta1.PrioritizerPolicy{Mode: clusterv1beta1.PrioritizerPolicyModeExact,
			Configurations: []clusterv1beta1.PrioritizerConfig{{
				ScoreCoordinate: &clusterv1beta1.ScoreCoordinate{Type: clusterv1beta1.ScoreCoordinateTypeAddOn,
					AddOn: &clusterv1beta1.AddOnScore{ResourceName: "usage", ScoreName: "free"}}, Weight: 1,
			}}},
	})
	s.await(t, "one", "b")
	best.Status.ValidUntil = ptr.To(metav1.NewTime(time.Now().Add(2 * time.Second)))
	if err := s.c.Status().Update(t.Context(), best); err != nil {
		t.Fatal(err)
	}
	s.await(t, "one", "a")
}

// PL-09 PL-10: a hub that restarts knows what it decided, and leaves it as it is.
func TestDecisionsOutliveTheHub(t *testing.T) {
	t.Parallel()
	own := env.StartHub(t, "")
	s := newSiteOn(t, own, "steady")
	s.add(t, "b", nil)
	s.place(t, "one", clusterv1beta1.PlacementSpec{NumberOfClusters: ptr.To[int32](1), Tolerations: []clusterv1beta1.Toleration{tolerant}})
	s.await(t, "one", "b")
	own.Kill()
	if err := own.Start(); err != nil {
		t.Fatal(err)
	}
	if err := own.AwaitReady(t.Context()); err != nil {
		t.Fatal(err)
	}
	// By name it would come first.
	s.add(t, "a", nil)
	s.place(t, "witness", clusterv1beta1.PlacementSpec{Tolerations: []clusterv1beta1.Toleration{tolerant}})
	s.await(t, "witness", "a", "b")
	s.await(t, "one", "b")
}
