package placement

import (
	"fmt"
	"math"
	"slices"

	clusterv1beta1 "github.com/capstan-io/capstan/api/cluster/v1beta1"
)

// constraint is one of spec.spreadPolicy.spreadConstraints (PL-13). The topologies of a constraint are the values that
// its label or claim has on candidates. Its skew is how many more clusters are selected of one topology than of the one
// with the fewest.
type constraint struct {
	byClaim bool
	key     string
	maxSkew int
	strict  bool // DoNotSchedule
}

func parseConstraint(i int, term clusterv1beta1.SpreadConstraintsTerm) (constraint, *Misconfiguration) {
	const field = "spec.spreadPolicy.spreadConstraints[%d]"
	parsed := constraint{key: term.TopologyKey, maxSkew: int(term.MaxSkew)}
	if parsed.maxSkew == 0 {
		parsed.maxSkew = 1
	}
	switch {
	case parsed.key == "":
		return parsed, misconfigured(partSpread, field+".topologyKey: must name a label or a claim", i)
	case parsed.maxSkew < 0:
		return parsed, misconfigured(partSpread, field+".maxSkew: %d must be 1 or more", i, term.MaxSkew)
	}
	switch term.TopologyKeyType {
	case clusterv1beta1.TopologyKeyTypeLabel:
	case clusterv1beta1.TopologyKeyTypeClaim:
		parsed.byClaim = true
	default:
		return parsed, misconfigured(partSpread, field+".topologyKeyType: %q is neither %s nor %s", i, term.TopologyKeyType,
			clusterv1beta1.TopologyKeyTypeLabel, clusterv1beta1.TopologyKeyTypeClaim)
	}
	switch term.WhenUnsatisfiable {
	case "", clusterv1beta1.ScheduleAnyway:
	case clusterv1beta1.DoNotSchedule:
		parsed.strict = true
	default:
		return parsed, misconfigured(partSpread, field+".whenUnsatisfiable: %q is neither %s nor %s", i, term.WhenUnsatisfiable,
			clusterv1beta1.DoNotSchedule, clusterv1beta1.ScheduleAnyway)
	}
	return parsed, nil
}

// topology is the value that a cluster has for the constraint.
func (k *constraint) topology(c *cluster) (value string, known bool) {
	of := c.labels()
	if k.byClaim {
		of = c.claims
	}
	value, known = of[k.key]
	return value, known
}

func (k *constraint) String() string {
	kind := "label"
	if k.byClaim {
		kind = "claim"
	}
	return fmt.Sprintf("%s %s", kind, k.key)
}

// spreading is the state of one constraint while clusters are selected: how many of each topology there are.
type spreading struct {
	constraint
	selected []int
}

// skewWith is the skew after one more of a topology.
func (s *spreading) skewWith(topology int) int {
	least := math.MaxInt
	for other, n := range s.selected {
		if other == topology {
			n++
		}
		least = min(least, n)
	}
	return s.selected[topology] + 1 - least
}

// corner is the candidates with the same topologies by all constraints, the best first.
type corner struct {
	topologies [mostConstraints]int // by constraint; absent for clusters without the label or claim
	waiting    []pick
}

const absent = -1

// mostConstraints is how many constraints the schema lets a Placement have.
const mostConstraints = 8

// spread selects n of the candidates. Each is the best of those that keep all
// DoNotSchedule constraints; among these go first those that exceed maxSkew of the first ScheduleAnyway constraint
// least, then of the second, and so on. Those without its label or claim go last.
func (c *contest) spread(candidates []pick, n int) []pick {
	spreadings, corners := c.corners(candidates)
	for _, corner := range corners {
		corner.waiting = best(corner.waiting, n)
		slices.SortFunc(corner.waiting, comparePicks)
	}
	picks := c.scratch.picks[:0]
	excess, least := make([]int, len(spreadings)), make([]int, len(spreadings))
	for len(picks) < n {
		var next *corner
		for _, corner := range corners {
			if len(corner.waiting) == 0 || !corner.exceeds(spreadings, excess) {
				continue
			}
			if next == nil || goesFirst(excess, corner, least, next) {
				next = corner
				copy(least, excess)
			}
		}
		if next == nil {
			break
		}
		picks = append(picks, next.waiting[0])
		next.waiting = next.waiting[1:]
		for i := range spreadings {
			if topology := next.topologies[i]; topology != absent {
				spreadings[i].selected[topology]++
			}
		}
	}
	c.scratch.picks = picks
	return picks
}

// corners sorts candidates by their topologies. Those without the label or claim of a DoNotSchedule constraint cannot be
// selected, and make no topology.
func (c *contest) corners(candidates []pick) ([]spreading, []*corner) {
	spreadings := make([]spreading, len(c.plan.spread))
	indexes := make([]map[string]int, len(c.plan.spread))
	for i, constraint := range c.plan.spread {
		spreadings[i].constraint, indexes[i] = constraint, map[string]int{}
	}
	var corners []*corner
	byTopologies := map[[mostConstraints]int]*corner{}
	for _, candidate := range candidates {
		topologies, ok := c.topologies(candidate.id, spreadings, indexes)
		if !ok {
			continue
		}
		where := byTopologies[topologies]
		if where == nil {
			where = &corner{topologies: topologies}
			byTopologies[topologies] = where
			corners = append(corners, where)
		}
		where.waiting = append(where.waiting, candidate)
	}
	return spreadings, corners
}

func (c *contest) topologies(id int32, spreadings []spreading, indexes []map[string]int) (topologies [mostConstraints]int, ok bool) {
	for i := range spreadings {
		if _, known := spreadings[i].topology(c.fleet.clusters[id]); !known && spreadings[i].strict {
			return topologies, false
		}
	}
	for i := range spreadings {
		value, known := spreadings[i].topology(c.fleet.clusters[id])
		if !known {
			topologies[i] = absent
			continue
		}
		index, seen := indexes[i][value]
		if !seen {
			index = len(indexes[i])
			indexes[i][value] = index
			spreadings[i].selected = append(spreadings[i].selected, 0)
		}
		topologies[i] = index
	}
	return topologies, true
}

// exceeds fills in by how much the next cluster of a corner would exceed maxSkew of each ScheduleAnyway constraint. It
// reports false when that would break a DoNotSchedule constraint.
func (k *corner) exceeds(spreadings []spreading, excess []int) bool {
	for i := range spreadings {
		if k.topologies[i] == absent {
			excess[i] = math.MaxInt
			continue
		}
		over := spreadings[i].skewWith(k.topologies[i]) - spreadings[i].maxSkew
		if over > 0 && spreadings[i].strict {
			return false
		}
		excess[i] = max(over, 0)
	}
	return true
}

func goesFirst(excess []int, corner *corner, least []int, than *corner) bool {
	for i := range excess {
		if excess[i] != least[i] {
			return excess[i] < least[i]
		}
	}
	return corner.waiting[0].before(than.waiting[0])
}
