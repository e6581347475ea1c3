package placement

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	clusterv1 "github.com/capstan-io/capstan/api/cluster/v1"
	clusterv1alpha1 "github.com/capstan-io/capstan/api/cluster/v1alpha1"
	clusterv1beta1 "github.com/capstan-io/capstan/api/cluster/v1beta1"
	clusterv1beta2 "github.com/capstan-io/capstan/api/cluster/v1beta2"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
)

var start = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// newFleet has the set default, which is bound to the namespace ns, and clusters.
func newFleet(clusters ...*clusterv1.ManagedCluster) *Scheduler {
	s := New(Options{})
	s.Advance(start)
	s.SetClusterSet(set("default"))
	s.SetBinding(binding("ns", "default"))
	for _, c := range clusters {
		s.SetCluster(c)
	}
	return s
}

func set(name string) *clusterv1beta2.ManagedClusterSet {
	object := &clusterv1beta2.ManagedClusterSet{}
	object.Name = name
	return object
}

func binding(namespace, name string) *clusterv1beta2.ManagedClusterSetBinding {
	object := &clusterv1beta2.ManagedClusterSetBinding{}
	object.Namespace, object.Name = namespace, name
	return object
}

// newMember makes a cluster of the set default. Its properties are labels such as region=eu, claims such as claim:platform=aws,
// cpu=4 and memory=8 for its resources, or taints such as taint:key=value:NoSelect, added at start.
func newMember(name string, properties ...string) *clusterv1.ManagedCluster {
	c := &clusterv1.ManagedCluster{}
	c.Name = name
	c.Labels = map[string]string{fleet.LabelClusterSet: "default"}
	c.Status.Allocatable, c.Status.Capacity = corev1.ResourceList{}, corev1.ResourceList{}
	for _, property := range properties {
		key, value, _ := strings.Cut(property, "=")
		switch {
		case strings.HasPrefix(property, "taint:"):
			c.Spec.Taints = append(c.Spec.Taints, taint(strings.TrimPrefix(property, "taint:")))
		case strings.HasPrefix(key, "claim:"):
			c.Status.ClusterClaims = append(c.Status.ClusterClaims,
				clusterv1.ManagedClusterClaim{Name: strings.TrimPrefix(key, "claim:"), Value: value})
		case key == "cpu" || key == "memory":
			c.Status.Allocatable[corev1.ResourceName(key)] = resource.MustParse(value)
			c.Status.Capacity[corev1.ResourceName(key)] = resource.MustParse(value)
		default:
			c.Labels[key] = value
		}
	}
	return c
}

func taint(text string) clusterv1.Taint {
	what, effect, _ := strings.Cut(text, ":")
	key, value, _ := strings.Cut(what, "=")
	return clusterv1.Taint{Key: key, Value: value, Effect: clusterv1.TaintEffect(effect), TimeAdded: metav1.NewTime(start)}
}

// usage makes the AddOnPlacementScore usage, with one score cpu.
func usage(cluster string, value int32, validFor time.Duration) *clusterv1alpha1.AddOnPlacementScore {
	object := &clusterv1alpha1.AddOnPlacementScore{}
	object.Namespace, object.Name = cluster, "usage"
	object.Status.Scores = []clusterv1alpha1.AddOnPlacementScoreItem{{Name: "cpu", Value: value}}
	if validFor != 0 {
		object.Status.ValidUntil = &metav1.Time{Time: start.Add(validFor)}
	}
	return object
}

type option func(*clusterv1beta1.Placement)

// newPlacement makes the placement ns/p.
func newPlacement(options ...option) *clusterv1beta1.Placement {
	p := &clusterv1beta1.Placement{}
	p.Namespace, p.Name, p.UID = "ns", "p", "1"
	for _, option := range options {
		option(p)
	}
	return p
}

func withName(name string) option { return func(p *clusterv1beta1.Placement) { p.Name = name } }

func withLimit(n int32) option {
	return func(p *clusterv1beta1.Placement) { p.Spec.NumberOfClusters = &n }
}

// withExactWeights uses no other prioritizers than these, such as Balance or AddOn/usage/cpu.
func withExactWeights(weights map[string]int32) option {
	return func(p *clusterv1beta1.Placement) {
		p.Spec.PrioritizerPolicy.Mode = clusterv1beta1.PrioritizerPolicyModeExact
		withWeights(weights)(p)
	}
}

func withWeights(weights map[string]int32) option {
	return func(p *clusterv1beta1.Placement) {
		for name, weight := range weights {
			coordinate := &clusterv1beta1.ScoreCoordinate{Type: clusterv1beta1.ScoreCoordinateTypeBuiltIn, BuiltIn: name}
			if parts := strings.Split(name, "/"); len(parts) == 3 {
				coordinate = &clusterv1beta1.ScoreCoordinate{Type: clusterv1beta1.ScoreCoordinateTypeAddOn,
					AddOn: &clusterv1beta1.AddOnScore{ResourceName: parts[1], ScoreName: parts[2]}}
			}
			p.Spec.PrioritizerPolicy.Configurations = append(p.Spec.PrioritizerPolicy.Configurations,
				clusterv1beta1.PrioritizerConfig{ScoreCoordinate: coordinate, Weight: weight})
		}
	}
}

func withTolerations(tolerations ...clusterv1beta1.Toleration) option {
	return func(p *clusterv1beta1.Placement) { p.Spec.Tolerations = tolerations }
}

func withPredicates(selectors ...clusterv1beta1.ClusterSelector) option {
	return func(p *clusterv1beta1.Placement) {
		for _, selector := range selectors {
			p.Spec.Predicates = append(p.Spec.Predicates, clusterv1beta1.ClusterPredicate{RequiredClusterSelector: selector})
		}
	}
}

func byLabels(pairs map[string]string) clusterv1beta1.ClusterSelector {
	return clusterv1beta1.ClusterSelector{LabelSelector: metav1.LabelSelector{MatchLabels: pairs}}
}

func byClaim(key string, operator metav1.LabelSelectorOperator, values ...string) clusterv1beta1.ClusterSelector {
	return clusterv1beta1.ClusterSelector{ClaimSelector: clusterv1beta1.ClusterClaimSelector{
		MatchExpressions: []metav1.LabelSelectorRequirement{{Key: key, Operator: operator, Values: values}}}}
}

func byCEL(expressions ...string) clusterv1beta1.ClusterSelector {
	return clusterv1beta1.ClusterSelector{CelSelector: clusterv1beta1.ClusterCelSelector{CelExpressions: expressions}}
}

// listed is a group of decisions for clusters.
func listed(clusters ...string) []Group {
	var group Group
	for _, name := range clusters {
		group.Decisions = append(group.Decisions, clusterv1beta1.ClusterDecision{ClusterName: name})
	}
	return []Group{group}
}

// schedule sets a placement, evaluates its CEL expressions, and schedules it.
func schedule(t *testing.T, s *Scheduler, p *clusterv1beta1.Placement) *Result {
	t.Helper()
	s.SetPlacement(p)
	result, ok := s.Schedule(keyOf(p))
	if !ok {
		t.Fatalf("%s is not known", keyOf(p))
	}
	if !result.Pending {
		return result
	}
	if changed := evaluateAll(s); !slices.Contains(changed, keyOf(p)) {
		t.Fatalf("evaluation changes %v, want %s", changed, keyOf(p))
	}
	result, _ = s.Schedule(keyOf(p))
	return result
}

// evaluateAll evaluates CEL expressions until there is nothing to evaluate, or no budget left.
func evaluateAll(s *Scheduler) (changed []Key) {
	for {
		more, again := s.Evaluate(context.Background(), s.snapshot.now)
		changed = append(changed, more...)
		if !again.Equal(s.snapshot.now) {
			return changed
		}
	}
}

func wantClusters(t *testing.T, result *Result, want ...string) {
	t.Helper()
	if got := clusters(result); !slices.Equal(got, want) {
		t.Errorf("selected %q, want %q (%s: %s)", got, want, result.Satisfied.Reason, result.Satisfied.Message)
	}
}

// scoresOf returns the total scores of all candidates.
func scoresOf(s *Scheduler, p *clusterv1beta1.Placement) map[string]int64 {
	scores := map[string]int64{}
	for _, score := range s.Explain(context.Background(), p).Scores {
		scores[score.ClusterName] = score.Score
	}
	return scores
}
