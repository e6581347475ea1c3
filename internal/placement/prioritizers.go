package placement

import (
	"time"

	clusterv1alpha1 "github.com/capstan-io/capstan/api/cluster/v1alpha1"
	clusterv1beta1 "github.com/capstan-io/capstan/api/cluster/v1beta1"
)

// Prioritizer is a prioritizer that a placement uses.
type Prioritizer struct {
	// Name as the debug endpoint shows it: that of the built-in prioritizer, or AddOn/RESOURCE/SCORE.
	Name string
	// Weight of its scores, -10 to 10 and never 0.
	Weight int64
}

// source is a prioritizer whose scores depend on the cluster and on the other candidates alone. Steady and Balance
// depend on decisions, and are none.
type source struct {
	name     string
	weight   int64
	resource int                        // index of resourceNames, when addOn is nil
	addOn    *clusterv1beta1.AddOnScore // of an AddOnPlacementScore
}

// plugin is its name among the plugins, which are few: AddOn is one, whatever it reads.
func (s *source) plugin() string {
	if s.addOn != nil {
		return string(clusterv1beta1.ScoreCoordinateTypeAddOn)
	}
	return s.name
}

// parsePrioritizers resolves spec.prioritizerPolicy: all that count, in the order to show them.
func parsePrioritizers(policy *clusterv1beta1.PrioritizerPolicy) ([]Prioritizer, []source, *Misconfiguration) {
	var used []Prioritizer
	byName := map[string]source{}
	switch policy.Mode {
	case "", clusterv1beta1.PrioritizerPolicyModeAdditive:
		used = []Prioritizer{{Name: clusterv1beta1.PrioritizerBalance, Weight: 1}, {Name: clusterv1beta1.PrioritizerSteady, Weight: 1}}
	case clusterv1beta1.PrioritizerPolicyModeExact:
	default:
		return nil, nil, misconfigured(partPrioritizer, "spec.prioritizerPolicy.mode: %q is neither %s nor %s", policy.Mode,
			clusterv1beta1.PrioritizerPolicyModeAdditive, clusterv1beta1.PrioritizerPolicyModeExact)
	}
	for i := range policy.Configurations {
		configured, bad := parseCoordinate(i, policy.Configurations[i].ScoreCoordinate)
		if bad != nil {
			return nil, nil, bad
		}
		byName[configured.name] = configured
		used = override(used, Prioritizer{Name: configured.name, Weight: int64(policy.Configurations[i].Weight)})
	}
	var effective []Prioritizer
	var sources []source
	for _, prioritizer := range used {
		if prioritizer.Weight == 0 {
			continue
		}
		effective = append(effective, prioritizer)
		if prioritizer.Name == clusterv1beta1.PrioritizerBalance || prioritizer.Name == clusterv1beta1.PrioritizerSteady {
			continue
		}
		from := byName[prioritizer.Name]
		from.weight = prioritizer.Weight
		sources = append(sources, from)
	}
	return effective, sources, nil
}

func override(used []Prioritizer, with Prioritizer) []Prioritizer {
	for i := range used {
		if used[i].Name == with.Name {
			used[i] = with
			return used
		}
	}
	return append(used, with)
}

func parseCoordinate(i int, coordinate *clusterv1beta1.ScoreCoordinate) (source, *Misconfiguration) {
	const field = "spec.prioritizerPolicy.configurations[%d].scoreCoordinate"
	if coordinate == nil {
		return source{}, misconfigured(partPrioritizer, field+": must say where the score comes from", i)
	}
	switch coordinate.Type {
	case "", clusterv1beta1.ScoreCoordinateTypeBuiltIn:
		switch coordinate.BuiltIn {
		case clusterv1beta1.PrioritizerBalance, clusterv1beta1.PrioritizerSteady, clusterv1beta1.PrioritizerResourceAllocatableCPU:
			return source{name: coordinate.BuiltIn, resource: 0}, nil
		case clusterv1beta1.PrioritizerResourceAllocatableMemory:
			return source{name: coordinate.BuiltIn, resource: 1}, nil
		}
		return source{}, misconfigured(partPrioritizer, field+
			".builtIn: %q is none of %s, %s, %s and %s; to spread clusters, use spec.spreadPolicy",
			i, coordinate.BuiltIn, clusterv1beta1.PrioritizerBalance, clusterv1beta1.PrioritizerSteady,
			clusterv1beta1.PrioritizerResourceAllocatableCPU, clusterv1beta1.PrioritizerResourceAllocatableMemory)
	case clusterv1beta1.ScoreCoordinateTypeAddOn:
		if coordinate.AddOn == nil {
			return source{}, misconfigured(partPrioritizer, field+".addOn: must name an AddOnPlacementScore and one of its scores", i)
		}
		return source{name: "AddOn/" + coordinate.AddOn.ResourceName + "/" + coordinate.AddOn.ScoreName, addOn: coordinate.AddOn}, nil
	}
	return source{}, misconfigured(partPrioritizer, field+".type: %q is neither %s nor %s", i, coordinate.Type,
		clusterv1beta1.ScoreCoordinateTypeBuiltIn, clusterv1beta1.ScoreCoordinateTypeAddOn)
}

// span is the least and the most that candidates have of a resource.
type span struct {
	least, most float64
	known       bool // whether any candidate reports it
}

func (s *span) include(m measure) {
	switch {
	case !m.known:
	case !s.known:
		*s = span{least: m.value, most: m.value, known: true}
	default:
		s.least, s.most = min(s.least, m.value), max(s.most, m.value)
	}
}

// edge tells whether leaving a measure out could change the span.
func (s *span) edge(m measure) bool {
	return m.known && (m.value <= s.least || m.value >= s.most)
}

// covers tells whether including a measure would leave the span as it is.
func (s *span) covers(m measure) bool {
	return !m.known || (s.known && m.value >= s.least && m.value <= s.most)
}

// spans are those of all resources that prioritizers compare.
type spans [len(resourceNames)]span

// score is what a source gives a cluster, -100 to 100. expired reports that an AddOnPlacementScore is
// there, but no longer valid.
func (s *source) score(c *cluster, among *spans, now time.Time) (score int64, expired bool) {
	if s.addOn != nil {
		return addOnScore(c.score(s.addOn.ResourceName), s.addOn.ScoreName, now)
	}
	amount, of := c.resources[s.resource], among[s.resource]
	switch {
	case !amount.known:
		return 0, false
	case of.most == of.least:
		return 100, false
	}
	return int64(((amount.value-of.least)/(of.most-of.least) - 0.5) * 200), false
}

func addOnScore(scores *clusterv1alpha1.AddOnPlacementScore, name string, now time.Time) (score int64, expired bool) {
	if scores == nil {
		return 0, false
	}
	if stale(scores, now) {
		return 0, true
	}
	for i := range scores.Status.Scores {
		if scores.Status.Scores[i].Name == name {
			return int64(scores.Status.Scores[i].Value), false
		}
	}
	return 0, false
}
