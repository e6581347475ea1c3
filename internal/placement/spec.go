package placement

import (
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/intstr"

	clusterv1beta1 "github.com/capstan-io/capstan/api/cluster/v1beta1"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
)

// parsedSpec is the spec of a Placement, parsed and checked once for each generation.
type parsedSpec struct {
	profile          *profile
	scorers          []scorer
	placementScorers []scorer // those of scorers that depend on the placement
	balanceWeight    int64
	limit            int // numberOfClusters, or unlimited
	constraints      []spreadConstraint
	groups           []groupSelector
	clustersPerGroup groupSize
	sortByScore      bool
	scoreRateLimit   time.Duration
}

const unlimited = -1

// groupSelector is one of spec.decisionStrategy.groupStrategy.decisionGroups.
type groupSelector struct {
	name string
	predicate
}

// groupSize is clustersPerDecisionGroup: a number of clusters, or a percentage of those that are selected.
type groupSize struct {
	number  int
	percent bool
}

// parseSpec parses and checks a spec.
func parseSpec(placement *clusterv1beta1.Placement) (*parsedSpec, *Misconfiguration) {
	const longestLabel = 63
	if len(placement.Name) > longestLabel {
		return nil, misconfigured(partPlacement,
			"metadata.name: %q has %d characters; it must have %d at most, to fit the label %s of its decisions",
			placement.Name, len(placement.Name), longestLabel, fleet.LabelPlacement)
	}
	spec := &placement.Spec
	if invalid := CheckBounds(spec); invalid != nil {
		return nil, invalid
	}
	p := &parsedSpec{limit: unlimited, sortByScore: spec.SortBy == clusterv1beta1.SortByScore}
	if spec.NumberOfClusters != nil {
		if p.limit = int(*spec.NumberOfClusters); p.limit < 0 {
			return nil, misconfigured(partPlacement, "spec.numberOfClusters: %d must not be negative", p.limit)
		}
	}
	var invalid *Misconfiguration
	if p.scorers, invalid = parsePrioritizerPolicy(&spec.PrioritizerPolicy); invalid != nil {
		return nil, invalid
	}
	var scorers []scorer // of the profile
	for _, scorer := range p.scorers {
		if scorer.ofClass() {
			scorers = append(scorers, scorer)
		} else {
			p.placementScorers = append(p.placementScorers, scorer)
		}
		if scorer.name == clusterv1beta1.PrioritizerBalance {
			p.balanceWeight = scorer.weight
		}
	}
	if p.profile, invalid = newProfile(spec, scorers); invalid != nil {
		return nil, invalid
	}
	for _, parse := range []func(*clusterv1beta1.PlacementSpec) *Misconfiguration{p.parseSpread, p.parseGroups, p.parseScoreRateLimit} {
		if invalid := parse(spec); invalid != nil {
			return nil, invalid
		}
	}
	return p, nil
}

func (p *parsedSpec) parseSpread(spec *clusterv1beta1.PlacementSpec) *Misconfiguration {
	for i, term := range spec.SpreadPolicy.SpreadConstraints {
		parsed, invalid := parseConstraint(i, term)
		if invalid != nil {
			return invalid
		}
		p.constraints = append(p.constraints, parsed)
	}
	return nil
}

func (p *parsedSpec) parseGroups(spec *clusterv1beta1.PlacementSpec) *Misconfiguration {
	const field = "spec.decisionStrategy.groupStrategy"
	strategy := &spec.DecisionStrategy.GroupStrategy
	for i := range strategy.DecisionGroups {
		group := &strategy.DecisionGroups[i]
		parsed, err := parseSelectors(&group.ClusterSelector.LabelSelector, &group.ClusterSelector.ClaimSelector)
		if err != nil {
			return misconfigured(partGroups, field+".decisionGroups[%d].groupClusterSelector.%v", i, err)
		}
		p.groups = append(p.groups, groupSelector{name: group.GroupName, predicate: parsed})
	}
	parsed, ok := parseGroupSize(strategy.ClustersPerDecisionGroup)
	if !ok {
		return misconfigured(partGroups, field+".clustersPerDecisionGroup: %q is neither a number nor a percentage such as 25%%",
			strategy.ClustersPerDecisionGroup.StrVal)
	}
	p.clustersPerGroup = parsed
	return nil
}

// parseGroupSize accepts 5, "5" and "5%". An empty text is 100%.
func parseGroupSize(value intstr.IntOrString) (groupSize, bool) {
	if value.Type == intstr.Int {
		return groupSize{number: int(value.IntVal)}, true
	}
	if value.StrVal == "" {
		return groupSize{}, true
	}
	text, percent := strings.CutSuffix(value.StrVal, "%")
	number, err := strconv.Atoi(text)
	return groupSize{number: number, percent: percent}, err == nil
}

// of is the size of groups, at least 1, when total clusters are selected.
func (g groupSize) of(total int) int {
	number := g.number
	if g.percent {
		number = (total*g.number + 99) / 100
	}
	if number <= 0 || number > total {
		number = total
	}
	return max(number, 1)
}

// parseScoreRateLimit reads scoreRateLimit, 1m by default.
func (p *parsedSpec) parseScoreRateLimit(spec *clusterv1beta1.PlacementSpec) *Misconfiguration {
	p.scoreRateLimit = time.Minute
	if spec.ScoreRateLimit == "" {
		return nil
	}
	every, err := time.ParseDuration(spec.ScoreRateLimit)
	if err != nil || every < 0 {
		return misconfigured(partPlacement, "spec.scoreRateLimit: %q is no duration such as 30s, 1m or 1h", spec.ScoreRateLimit)
	}
	p.scoreRateLimit = every
	return nil
}

// maxSelected is how many of a number of candidates are selected at most.
func (p *parsedSpec) maxSelected(candidates int) int {
	if p.limit == unlimited {
		return candidates
	}
	return min(p.limit, candidates)
}
