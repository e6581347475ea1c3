package placement

import (
	"time"

	clusterv1alpha1 "github.com/capstan-io/capstan/api/cluster/v1alpha1"
	clusterv1beta1 "github.com/capstan-io/capstan/api/cluster/v1beta1"
)

// Prioritizer is a prioritizer of a placement and its weight.
type Prioritizer struct {
	// Name is that of the built-in prioritizer, or AddOn/RESOURCE/SCORE.
	Name string
	// Weight multiplies its scores: -10 to 10, never 0.
	Weight int64
}

// scorer is a prioritizer whose scores depend on the candidates alone. Steady and Balance depend on decisions, and are added in the
// scheduling cycle.
type scorer struct {
	name     string
	weight   int64
	resource int                        // index of resourceNames, when addOn is nil
	addOn    *clusterv1beta1.AddOnScore // of an AddOnPlacementScore
}

// pluginName is the plugin_name in metrics. All AddOnPlacementScores have the same one, as they may be many.
func (s *scorer) pluginName() string {
	if s.addOn != nil {
		return string(clusterv1beta1.ScoreCoordinateTypeAddOn)
	}
	return s.name
}

// parsePrioritizerPolicy returns the prioritizers of spec.prioritizerPolicy with weights other than 0, in the order of the spec after the
// default ones, and the scorers among them.
func parsePrioritizerPolicy(policy *clusterv1beta1.PrioritizerPolicy) ([]Prioritizer, []scorer, *Misconfiguration) {
	var used []Prioritizer
	byName := map[string]scorer{}
	switch policy.Mode {
	case "", clusterv1beta1.PrioritizerPolicyModeAdditive:
		used = []Prioritizer{{Name: clusterv1beta1.PrioritizerBalance, Weight: 1}, {Name: clusterv1beta1.PrioritizerSteady, Weight: 1}}
	case clusterv1beta1.PrioritizerPolicyModeExact:
	default:
		return nil, nil, misconfigured(partPrioritizer, "spec.prioritizerPolicy.mode: %q is neither %s nor %s", policy.Mode,
			clusterv1beta1.PrioritizerPolicyModeAdditive, clusterv1beta1.PrioritizerPolicyModeExact)
	}
	for i := range policy.Configurations {
		configured, invalid := parseScoreCoordinate(i, policy.Configurations[i].ScoreCoordinate)
		if invalid != nil {
			return nil, nil, invalid
		}
		byName[configured.name] = configured
		used = setWeight(used, Prioritizer{Name: configured.name, Weight: int64(policy.Configurations[i].Weight)})
	}
	var effective []Prioritizer
	var scorers []scorer
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
		scorers = append(scorers, from)
	}
	return effective, scorers, nil
}

func setWeight(used []Prioritizer, with Prioritizer) []Prioritizer {
	for i := range used {
		if used[i].Name == with.Name {
			used[i] = with
			return used
		}
	}
	return append(used, with)
}

func parseScoreCoordinate(i int, coordinate *clusterv1beta1.ScoreCoordinate) (scorer, *Misconfiguration) {
	const field = "spec.prioritizerPolicy.configurations[%d].scoreCoordinate"
	if coordinate == nil {
		return scorer{}, misconfigured(partPrioritizer, field+": must say where the score comes from", i)
	}
	switch coordinate.Type {
	case "", clusterv1beta1.ScoreCoordinateTypeBuiltIn:
		switch coordinate.BuiltIn {
		case clusterv1beta1.PrioritizerBalance, clusterv1beta1.PrioritizerSteady, clusterv1beta1.PrioritizerResourceAllocatableCPU:
			return scorer{name: coordinate.BuiltIn, resource: 0}, nil
		case clusterv1beta1.PrioritizerResourceAllocatableMemory:
			return scorer{name: coordinate.BuiltIn, resource: 1}, nil
		}
		return scorer{}, misconfigured(partPrioritizer, field+
			".builtIn: %q is none of %s, %s, %s and %s; to spread clusters, use spec.spreadPolicy",
			i, coordinate.BuiltIn, clusterv1beta1.PrioritizerBalance, clusterv1beta1.PrioritizerSteady,
			clusterv1beta1.PrioritizerResourceAllocatableCPU, clusterv1beta1.PrioritizerResourceAllocatableMemory)
	case clusterv1beta1.ScoreCoordinateTypeAddOn:
		if coordinate.AddOn == nil {
			return scorer{}, misconfigured(partPrioritizer, field+".addOn: must name an AddOnPlacementScore and one of its scores", i)
		}
		return scorer{name: "AddOn/" + coordinate.AddOn.ResourceName + "/" + coordinate.AddOn.ScoreName, addOn: coordinate.AddOn}, nil
	}
	return scorer{}, misconfigured(partPrioritizer, field+".type: %q is neither %s nor %s", i, coordinate.Type,
		clusterv1beta1.ScoreCoordinateTypeBuiltIn, clusterv1beta1.ScoreCoordinateTypeAddOn)
}

// resourceRange is the least and the most of a resource that candidates have. Scores are normalized to it.
type resourceRange struct {
	min, max float64
	known    bool // whether any candidate reports the resource
}

func (s *resourceRange) include(m resourceAmount) {
	switch {
	case !m.known:
	case !s.known:
		*s = resourceRange{min: m.value, max: m.value, known: true}
	default:
		s.min, s.max = min(s.min, m.value), max(s.max, m.value)
	}
}

// isBound tells whether the range may change when an amount is removed.
func (s *resourceRange) isBound(m resourceAmount) bool {
	return m.known && (m.value <= s.min || m.value >= s.max)
}

// covers tells whether the range stays as it is when an amount is added.
func (s *resourceRange) covers(m resourceAmount) bool {
	return !m.known || (s.known && m.value >= s.min && m.value <= s.max)
}

// resourceRanges is the range of each resource of resourceNames.
type resourceRanges [len(resourceNames)]resourceRange

// score is the score of a cluster, -100 to 100. expired reports that it is 0 because an AddOnPlacementScore has expired.
func (s *scorer) score(c *cluster, ranges *resourceRanges, now time.Time) (score int64, expired bool) {
	if s.addOn != nil {
		return addOnScore(c.score(s.addOn.ResourceName), s.addOn.ScoreName, now)
	}
	amount, of := c.allocatable[s.resource], ranges[s.resource]
	switch {
	case !amount.known:
		return 0, false
	case of.max == of.min:
		return 100, false
	}
	return int64(((amount.value-of.min)/(of.max-of.min) - 0.5) * 200), false
}

func addOnScore(scores *clusterv1alpha1.AddOnPlacementScore, name string, now time.Time) (score int64, expired bool) {
	if scores == nil {
		return 0, false
	}
	if scoresExpired(scores, now) {
		return 0, true
	}
	for i := range scores.Status.Scores {
		if scores.Status.Scores[i].Name == name {
			return int64(scores.Status.Scores[i].Value), false
		}
	}
	return 0, false
}
