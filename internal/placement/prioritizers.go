package placement

import (
	"slices"
	"time"

	clusterv1beta1 "github.com/capstan-io/capstan/api/cluster/v1beta1"
)

// scorePlugin scores a candidate from -100 to 100. expired reports that the score is 0 because an AddOnPlacementScore has expired. Plugins
// with the same scores are equal.
type scorePlugin interface {
	score(c *cluster, in *scoreInput) (score int64, expired bool)
}

// scoreInput is what scores depend on besides the cluster itself.
type scoreInput struct {
	now    time.Time
	ranges resourceRanges // of all candidates

	// Those of the placement, for Balance and Steady.
	selected     map[*cluster]bool // what it has selected before
	maxDecisions int               // the highest number of decisions of other placements for any cluster
}

// otherDecisions counts the decisions of other placements for a cluster.
func (in *scoreInput) otherDecisions(c *cluster) int {
	if in.selected[c] {
		return c.decisions - 1
	}
	return c.decisions
}

// scorer is a prioritizer of a placement.
type scorer struct {
	name   string // of the built-in prioritizer, or AddOn/RESOURCE/SCORE
	weight int64  // multiplies its scores: -10 to 10, never 0
	plugin scorePlugin
}

var builtIns = map[string]scorePlugin{
	clusterv1beta1.PrioritizerBalance:                   balance{},
	clusterv1beta1.PrioritizerSteady:                    steady{},
	clusterv1beta1.PrioritizerResourceAllocatableCPU:    resourceAllocatable{resource: 0},
	clusterv1beta1.PrioritizerResourceAllocatableMemory: resourceAllocatable{resource: 1},
}

// ofClass reports whether the scores depend on the candidates alone, and so are the same for all placements of a class.
func (sc *scorer) ofClass() bool {
	switch sc.plugin.(type) {
	case balance, steady:
		return false
	}
	return true
}

// metricName is the plugin_name in metrics. All AddOnPlacementScores have the same one, as they may be many.
func (sc *scorer) metricName() string {
	if _, ok := sc.plugin.(addOnScore); ok {
		return string(clusterv1beta1.ScoreCoordinateTypeAddOn)
	}
	return sc.name
}

// parsePrioritizerPolicy returns the scorers of spec.prioritizerPolicy with weights other than 0, in the order of the spec after the
// default ones.
func parsePrioritizerPolicy(policy *clusterv1beta1.PrioritizerPolicy) ([]scorer, *Misconfiguration) {
	var scorers []scorer
	switch policy.Mode {
	case "", clusterv1beta1.PrioritizerPolicyModeAdditive:
		scorers = []scorer{newScorer(clusterv1beta1.PrioritizerBalance, balance{}), newScorer(clusterv1beta1.PrioritizerSteady, steady{})}
	case clusterv1beta1.PrioritizerPolicyModeExact:
	default:
		return nil, misconfigured(partPrioritizer, "spec.prioritizerPolicy.mode: %q is neither %s nor %s", policy.Mode,
			clusterv1beta1.PrioritizerPolicyModeAdditive, clusterv1beta1.PrioritizerPolicyModeExact)
	}
	for i := range policy.Configurations {
		configured, invalid := parseScoreCoordinate(i, policy.Configurations[i].ScoreCoordinate)
		if invalid != nil {
			return nil, invalid
		}
		configured.weight = int64(policy.Configurations[i].Weight)
		if at := slices.IndexFunc(scorers, func(s scorer) bool { return s.plugin == configured.plugin }); at >= 0 {
			scorers[at] = configured
		} else {
			scorers = append(scorers, configured)
		}
	}
	return slices.DeleteFunc(scorers, func(s scorer) bool { return s.weight == 0 }), nil
}

func newScorer(name string, plugin scorePlugin) scorer {
	return scorer{name: name, weight: 1, plugin: plugin}
}

func parseScoreCoordinate(i int, coordinate *clusterv1beta1.ScoreCoordinate) (scorer, *Misconfiguration) {
	const field = "spec.prioritizerPolicy.configurations[%d].scoreCoordinate"
	if coordinate == nil {
		return scorer{}, misconfigured(partPrioritizer, field+": must say where the score comes from", i)
	}
	switch coordinate.Type {
	case "", clusterv1beta1.ScoreCoordinateTypeBuiltIn:
		if plugin := builtIns[coordinate.BuiltIn]; plugin != nil {
			return newScorer(coordinate.BuiltIn, plugin), nil
		}
		return scorer{}, misconfigured(partPrioritizer, field+
			".builtIn: %q is none of %s, %s, %s and %s; to spread clusters, use spec.spreadPolicy",
			i, coordinate.BuiltIn, clusterv1beta1.PrioritizerBalance, clusterv1beta1.PrioritizerSteady,
			clusterv1beta1.PrioritizerResourceAllocatableCPU, clusterv1beta1.PrioritizerResourceAllocatableMemory)
	case clusterv1beta1.ScoreCoordinateTypeAddOn:
		if coordinate.AddOn == nil {
			return scorer{}, misconfigured(partPrioritizer, field+".addOn: must name an AddOnPlacementScore and one of its scores", i)
		}
		return newScorer("AddOn/"+coordinate.AddOn.ResourceName+"/"+coordinate.AddOn.ScoreName, addOnScore{*coordinate.AddOn}), nil
	}
	return scorer{}, misconfigured(partPrioritizer, field+".type: %q is neither %s nor %s", i, coordinate.Type,
		clusterv1beta1.ScoreCoordinateTypeBuiltIn, clusterv1beta1.ScoreCoordinateTypeAddOn)
}
