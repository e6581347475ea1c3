package placement

import (
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/intstr"

	clusterv1beta1 "github.com/capstan-io/capstan/api/cluster/v1beta1"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
)

// plan is what the spec of a Placement says, parsed once for each generation.
type plan struct {
	selection    *selection
	prioritizers []Prioritizer
	balance      int64 // weights
	steady       int64
	limit        int // of clusters; unlimited when negative
	spread       []constraint
	groups       []groupRule
	perGroup     size
	byScore      bool
	scoreEvery   time.Duration
}

const unlimited = -1

// groupRule is one of spec.decisionStrategy.groupStrategy.decisionGroups.
type groupRule struct {
	name string
	predicate
}

// size of a decision group: a number of clusters, or a percentage of those selected.
type size struct {
	number  int
	percent bool
}

// newPlan parses a spec. known returns the selection of a signature when another placement has it.
func newPlan(placement *clusterv1beta1.Placement, known func(signature string) *selection) (*plan, *Misconfiguration) {
	const longestLabel = 63
	if len(placement.Name) > longestLabel {
		return nil, misconfigured(partPlacement,
			"metadata.name: %q has %d characters; it must have %d at most, to fit the label %s of its decisions",
			placement.Name, len(placement.Name), longestLabel, fleet.LabelPlacement)
	}
	spec := &placement.Spec
	if bad := CheckBounds(spec); bad != nil {
		return nil, bad
	}
	p := &plan{limit: unlimited, byScore: spec.SortBy == clusterv1beta1.SortByScore}
	if spec.NumberOfClusters != nil {
		if p.limit = int(*spec.NumberOfClusters); p.limit < 0 {
			return nil, misconfigured(partPlacement, "spec.numberOfClusters: %d must not be negative", p.limit)
		}
	}
	var sources []source
	var bad *Misconfiguration
	if p.prioritizers, sources, bad = parsePrioritizers(&spec.PrioritizerPolicy); bad != nil {
		return nil, bad
	}
	for _, prioritizer := range p.prioritizers {
		switch prioritizer.Name {
		case clusterv1beta1.PrioritizerBalance:
			p.balance = prioritizer.Weight
		case clusterv1beta1.PrioritizerSteady:
			p.steady = prioritizer.Weight
		}
	}
	signature, err := sign(spec, sources)
	if err != nil {
		return nil, misconfigured(partPlacement, "spec: %v", err)
	}
	if p.selection = known(signature); p.selection == nil {
		if p.selection, bad = newSelection(signature, spec, sources); bad != nil {
			return nil, bad
		}
	}
	for _, parse := range []func(*clusterv1beta1.PlacementSpec) *Misconfiguration{p.parseSpread, p.parseGroups, p.parseRate} {
		if bad := parse(spec); bad != nil {
			return nil, bad
		}
	}
	return p, nil
}

func (p *plan) parseSpread(spec *clusterv1beta1.PlacementSpec) *Misconfiguration {
	for i, term := range spec.SpreadPolicy.SpreadConstraints {
		parsed, bad := parseConstraint(i, term)
		if bad != nil {
			return bad
		}
		p.spread = append(p.spread, parsed)
	}
	return nil
}

func (p *plan) parseGroups(spec *clusterv1beta1.PlacementSpec) *Misconfiguration {
	const field = "spec.decisionStrategy.groupStrategy"
	strategy := &spec.DecisionStrategy.GroupStrategy
	for i := range strategy.DecisionGroups {
		group := &strategy.DecisionGroups[i]
		parsed, err := parseSelectors(&group.ClusterSelector.LabelSelector, &group.ClusterSelector.ClaimSelector)
		if err != nil {
			return misconfigured(partGroups, field+".decisionGroups[%d].groupClusterSelector.%v", i, err)
		}
		p.groups = append(p.groups, groupRule{name: group.GroupName, predicate: parsed})
	}
	parsed, ok := parseSize(strategy.ClustersPerDecisionGroup)
	if !ok {
		return misconfigured(partGroups, field+".clustersPerDecisionGroup: %q is neither a number nor a percentage such as 25%%",
			strategy.ClustersPerDecisionGroup.StrVal)
	}
	p.perGroup = parsed
	return nil
}

// parseSize understands 5, "5" and "5%"; nothing is 100%.
func parseSize(value intstr.IntOrString) (size, bool) {
	if value.Type == intstr.Int {
		return size{number: int(value.IntVal)}, true
	}
	if value.StrVal == "" {
		return size{}, true
	}
	text, percent := strings.CutSuffix(value.StrVal, "%")
	number, err := strconv.Atoi(text)
	return size{number: number, percent: percent}, err == nil
}

// of is the size when so many clusters are selected; at least 1.
func (s size) of(total int) int {
	number := s.number
	if s.percent {
		number = (total*s.number + 99) / 100
	}
	if number <= 0 || number > total {
		number = total
	}
	return max(number, 1)
}

// parseRate reads scoreRateLimit, 1m by default.
func (p *plan) parseRate(spec *clusterv1beta1.PlacementSpec) *Misconfiguration {
	p.scoreEvery = time.Minute
	if spec.ScoreRateLimit == "" {
		return nil
	}
	every, err := time.ParseDuration(spec.ScoreRateLimit)
	if err != nil || every < 0 {
		return misconfigured(partPlacement, "spec.scoreRateLimit: %q is no duration such as 30s, 1m or 1h", spec.ScoreRateLimit)
	}
	p.scoreEvery = every
	return nil
}

// takes is how many of so many candidates are selected at most.
func (p *plan) takes(candidates int) int {
	if p.limit == unlimited {
		return candidates
	}
	return min(p.limit, candidates)
}
