package placement

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	clusterv1 "github.com/capstan-io/capstan/api/cluster/v1"
	clusterv1alpha1 "github.com/capstan-io/capstan/api/cluster/v1alpha1"
	clusterv1beta1 "github.com/capstan-io/capstan/api/cluster/v1beta1"
	clusterv1beta2 "github.com/capstan-io/capstan/api/cluster/v1beta2"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
)

// testFleet has all objects that a scheduler reads.
type testFleet struct {
	now        time.Time
	clusters   map[string]*clusterv1.ManagedCluster
	sets       map[string]*clusterv1beta2.ManagedClusterSet
	bindings   map[Key]*clusterv1beta2.ManagedClusterSetBinding
	scores     map[Key]*clusterv1alpha1.AddOnPlacementScore
	placements map[Key]*clusterv1beta1.Placement
	decisions  map[Key][]string
}

func newTestFleet() *testFleet {
	return &testFleet{
		now:        time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC),
		clusters:   map[string]*clusterv1.ManagedCluster{},
		sets:       map[string]*clusterv1beta2.ManagedClusterSet{},
		bindings:   map[Key]*clusterv1beta2.ManagedClusterSetBinding{},
		scores:     map[Key]*clusterv1alpha1.AddOnPlacementScore{},
		placements: map[Key]*clusterv1beta1.Placement{},
		decisions:  map[Key][]string{},
	}
}

func (w *testFleet) clone() *testFleet {
	return &testFleet{
		now: w.now, clusters: maps.Clone(w.clusters), sets: maps.Clone(w.sets), bindings: maps.Clone(w.bindings),
		scores: maps.Clone(w.scores), placements: maps.Clone(w.placements), decisions: w.decisions,
	}
}

// scheduler returns a new scheduler with all objects.
func (w *testFleet) scheduler(options Options) *Scheduler {
	s := New(options)
	s.Advance(w.now)
	for _, object := range w.sets {
		s.SetClusterSet(object)
	}
	for _, object := range w.bindings {
		s.SetBinding(object)
	}
	for _, object := range w.clusters {
		s.SetCluster(object)
	}
	for _, object := range w.scores {
		s.SetScore(object)
	}
	for _, object := range w.placements {
		s.SetPlacement(object)
	}
	for key, clusters := range w.decisions {
		s.Restore(key, listed(clusters...))
	}
	return s
}

// randomEvent applies a random event to the objects and to a scheduler that has them.
func (w *testFleet) randomEvent(r *rand.Rand, s *Scheduler) (event string, affected []Key) {
	switch r.IntN(21) {
	case 0, 1, 2, 3, 4, 5:
		c := randomCluster(r, w.clusters, w.now)
		w.clusters[c.Name] = c
		return "cluster " + c.Name, s.SetCluster(c)
	case 6:
		name := clusterName(r)
		delete(w.clusters, name)
		return "no cluster " + name, s.DeleteCluster(name)
	case 7, 8, 9:
		score := randomScore(r, w.now)
		w.scores[Key{Namespace: score.Namespace, Name: score.Name}] = score
		return "score of " + score.Namespace, s.SetScore(score)
	case 10:
		key := Key{Namespace: clusterName(r), Name: oneOf(r, "usage", "cost")}
		delete(w.scores, key)
		return "no score of " + key.Namespace, s.DeleteScore(key)
	case 11:
		set := randomSet(r)
		w.sets[set.Name] = set
		return "set " + set.Name, s.SetClusterSet(set)
	case 12:
		name := setName(r)
		delete(w.sets, name)
		return "no set " + name, s.DeleteClusterSet(name)
	case 13:
		binding := &clusterv1beta2.ManagedClusterSetBinding{}
		binding.Namespace, binding.Name = oneOf(r, "ns1", "ns2"), setName(r)
		w.bindings[Key{Namespace: binding.Namespace, Name: binding.Name}] = binding
		return "binding " + binding.Name, s.SetBinding(binding)
	case 14:
		key := Key{Namespace: oneOf(r, "ns1", "ns2"), Name: setName(r)}
		delete(w.bindings, key)
		return "no binding " + key.Name, s.DeleteBinding(key)
	case 15, 16, 17:
		p := randomPlacement(r)
		key := keyOf(p)
		w.placements[key] = p
		return "placement " + key.Name, s.SetPlacement(p)
	case 18:
		key := Key{Namespace: oneOf(r, "ns1", "ns2"), Name: fmt.Sprintf("p%d", r.IntN(12))}
		delete(w.placements, key)
		delete(w.decisions, key)
		s.DeletePlacement(key)
		s.Restore(key, nil)
		return "no placement " + key.Name, nil
	case 19:
		return w.randomDecision(r, s), nil
	default:
		w.now = w.now.Add(time.Duration(r.IntN(30)) * time.Second)
		return "time", s.Advance(w.now)
	}
}

// randomDecision lets another writer decide for a placement that is disabled or does not exist.
func (w *testFleet) randomDecision(r *rand.Rand, s *Scheduler) (event string) {
	key := Key{Namespace: oneOf(r, "ns1", "ns2"), Name: fmt.Sprintf("p%d", r.IntN(12))}
	if p := w.placements[key]; p == nil || p.Annotations[fleet.AnnotationSchedulingDisable] != "" {
		w.decisions[key] = []string{clusterName(r), "c20"}
		s.Restore(key, listed(w.decisions[key]...))
	}
	return "decisions for " + key.Name
}

func oneOf[T any](r *rand.Rand, options ...T) T { return options[r.IntN(len(options))] }

func clusterName(r *rand.Rand) string { return fmt.Sprintf("c%02d", r.IntN(16)) }
func setName(r *rand.Rand) string     { return oneOf(r, "blue", "green", "all") }

// randomCluster changes some of a cluster, or makes one.
func randomCluster(r *rand.Rand, clusters map[string]*clusterv1.ManagedCluster, now time.Time) *clusterv1.ManagedCluster {
	name := clusterName(r)
	c := &clusterv1.ManagedCluster{}
	if former := clusters[name]; former != nil {
		c = former.DeepCopy()
	}
	c.Name = name
	if c.Labels == nil || r.IntN(4) == 0 {
		c.Labels = map[string]string{fleet.LabelClusterSet: oneOf(r, "blue", "green"), "region": oneOf(r, "eu", "us", "ap")}
		if r.IntN(4) == 0 {
			delete(c.Labels, "region")
		}
	}
	if r.IntN(3) == 0 {
		c.Status.ClusterClaims = []clusterv1.ManagedClusterClaim{{Name: "platform", Value: oneOf(r, "aws", "gcp")}}
	}
	if r.IntN(3) == 0 {
		c.Spec.Taints = nil
		for range r.IntN(3) {
			c.Spec.Taints = append(c.Spec.Taints, clusterv1.Taint{
				Key:       oneOf(r, "gpu", "down"),
				Value:     oneOf(r, "", "very"),
				Effect:    oneOf(r, clusterv1.TaintEffectNoSelect, clusterv1.TaintEffectNoSelectIfNew, clusterv1.TaintEffectPreferNoSelect),
				TimeAdded: metav1.NewTime(now.Add(-time.Duration(r.IntN(20)) * time.Second)),
			})
		}
	}
	if r.IntN(3) == 0 {
		amount := corev1.ResourceList{corev1.ResourceCPU: *resource.NewQuantity(int64(r.IntN(8)), resource.DecimalSI)}
		c.Status.Allocatable, c.Status.Capacity = amount, amount
		if r.IntN(8) == 0 {
			c.Status.Capacity = nil
		}
	}
	c.DeletionTimestamp = nil
	if r.IntN(12) == 0 {
		c.DeletionTimestamp = &metav1.Time{Time: now}
	}
	return c
}

func randomScore(r *rand.Rand, now time.Time) *clusterv1alpha1.AddOnPlacementScore {
	score := &clusterv1alpha1.AddOnPlacementScore{}
	score.Namespace, score.Name = clusterName(r), oneOf(r, "usage", "cost")
	if r.IntN(5) > 0 {
		score.Status.Scores = []clusterv1alpha1.AddOnPlacementScoreItem{{Name: "cpu", Value: int32(r.IntN(9)*25 - 100)}}
	}
	if r.IntN(2) == 0 {
		score.Status.ValidUntil = &metav1.Time{Time: now.Add(time.Duration(r.IntN(60)-5) * time.Second)}
	}
	return score
}

func randomSet(r *rand.Rand) *clusterv1beta2.ManagedClusterSet {
	set := &clusterv1beta2.ManagedClusterSet{}
	if set.Name = setName(r); set.Name == "all" {
		set.Spec.ClusterSelector.SelectorType = clusterv1beta2.LabelSelector
		set.Spec.ClusterSelector.LabelSelector = &metav1.LabelSelector{}
		if r.IntN(3) == 0 {
			set.Spec.ClusterSelector.LabelSelector.MatchLabels = map[string]string{"region": oneOf(r, "eu", "us")}
		}
	}
	return set
}

func randomPlacement(r *rand.Rand) *clusterv1beta1.Placement {
	p := &clusterv1beta1.Placement{}
	p.Namespace, p.Name = oneOf(r, "ns1", "ns2"), fmt.Sprintf("p%d", r.IntN(12))
	p.UID = "1"
	spec := &p.Spec
	if r.IntN(4) == 0 {
		spec.ClusterSets = []string{setName(r)}
	}
	if r.IntN(5) > 0 {
		n := int32(r.IntN(6))
		spec.NumberOfClusters = &n
	}
	for range oneOf(r, 0, 0, 1, 2) {
		spec.Predicates = append(spec.Predicates, clusterv1beta1.ClusterPredicate{RequiredClusterSelector: randomSelector(r)})
	}
	if r.IntN(2) == 0 {
		spec.PrioritizerPolicy = randomPolicy(r)
	}
	for range oneOf(r, 0, 0, 1, 2) {
		spec.Tolerations = append(spec.Tolerations, randomToleration(r))
	}
	if r.IntN(4) == 0 {
		randomConstraints(r, "region", "platform")(p)
	}
	if r.IntN(4) == 0 {
		spec.DecisionStrategy.GroupStrategy = clusterv1beta1.GroupStrategy{
			ClustersPerDecisionGroup: oneOf(r, intstr.FromInt32(2), intstr.FromString("50%"), intstr.FromString("all")),
			DecisionGroups: []clusterv1beta1.DecisionGroup{{GroupName: "eu", ClusterSelector: clusterv1beta1.GroupClusterSelector{
				LabelSelector: metav1.LabelSelector{MatchLabels: map[string]string{"region": "eu"}},
			}}},
		}
	}
	spec.SortBy = oneOf(r, clusterv1beta1.SortByClusterName, clusterv1beta1.SortByScore)
	if r.IntN(10) == 0 {
		p.Annotations = map[string]string{fleet.AnnotationSchedulingDisable: "true"}
	}
	return p
}

func randomSelector(r *rand.Rand) clusterv1beta1.ClusterSelector {
	var selector clusterv1beta1.ClusterSelector
	switch r.IntN(4) {
	case 0:
		selector.LabelSelector.MatchLabels = map[string]string{"region": oneOf(r, "eu", "us")}
	case 1:
		selector.LabelSelector.MatchExpressions = []metav1.LabelSelectorRequirement{
			{Key: "region", Operator: metav1.LabelSelectorOpNotIn, Values: []string{oneOf(r, "eu", "us")}}}
	case 2:
		selector.ClaimSelector.MatchExpressions = []metav1.LabelSelectorRequirement{
			{Key: "platform", Operator: metav1.LabelSelectorOpIn, Values: []string{"aws", "azure"}}}
	case 3:
		selector.CelSelector.CelExpressions = []string{oneOf(r,
			`managedCluster.scores("usage").exists(s, s.value > 0)`, `managedCluster.metadata.name.startsWith("c0")`, `broken`)}
	}
	return selector
}

func randomPolicy(r *rand.Rand) clusterv1beta1.PrioritizerPolicy {
	policy := clusterv1beta1.PrioritizerPolicy{
		Mode: oneOf(r, clusterv1beta1.PrioritizerPolicyModeAdditive, clusterv1beta1.PrioritizerPolicyModeExact),
	}
	for range r.IntN(4) {
		coordinate := &clusterv1beta1.ScoreCoordinate{BuiltIn: oneOf(r, clusterv1beta1.PrioritizerBalance,
			clusterv1beta1.PrioritizerSteady, clusterv1beta1.PrioritizerResourceAllocatableCPU)}
		if r.IntN(2) == 0 {
			coordinate = &clusterv1beta1.ScoreCoordinate{Type: clusterv1beta1.ScoreCoordinateTypeAddOn,
				AddOn: &clusterv1beta1.AddOnScore{ResourceName: oneOf(r, "usage", "cost"), ScoreName: "cpu"}}
		}
		policy.Configurations = append(policy.Configurations,
			clusterv1beta1.PrioritizerConfig{ScoreCoordinate: coordinate, Weight: int32(r.IntN(6) - 2)})
	}
	return policy
}

func randomToleration(r *rand.Rand) clusterv1beta1.Toleration {
	toleration := clusterv1beta1.Toleration{Key: oneOf(r, "gpu", "down"), Operator: clusterv1beta1.TolerationOpExists,
		Effect: oneOf(r, "", clusterv1.TaintEffectPreferNoSelect, clusterv1.TaintEffectNoSelectIfNew)}
	if r.IntN(3) == 0 {
		toleration.Operator, toleration.Value = clusterv1beta1.TolerationOpEqual, oneOf(r, "", "very")
	}
	if r.IntN(2) == 0 {
		seconds := int64(r.IntN(60))
		toleration.TolerationSeconds = &seconds
	}
	return toleration
}

func sortedKeys(keys []Key) []Key {
	return slices.SortedFunc(slices.Values(keys), func(a, b Key) int {
		if a.String() < b.String() {
			return -1
		}
		return 1
	})
}
