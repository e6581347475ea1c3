package placement

import (
	"math"
	"slices"
)

// spreadSelector selects clusters one by one so that they keep to spread constraints.
type spreadSelector struct {
	constraints []constraintState  // those with DoNotSchedule come first
	waiting     []*spreadCandidate // those that are not selected yet, the best first
}

// spreadCandidate is a candidate with its topology of each constraint; nil without the label or claim.
type spreadCandidate struct {
	scoredCluster
	rank       int // from 0, by score
	topologies [maxConstraints]*topology
}

// topology counts the clusters with one value of the label or claim.
type topology struct {
	selected, waiting int
}

// constraintState is how the selected clusters are spread over the topologies of one constraint.
type constraintState struct {
	*spreadConstraint
	topologies map[string]*topology
	all        levels // of all topologies
	open       levels // of those that have candidates left
}

// levels counts topologies by their number of selected clusters, which only grows.
type levels struct {
	counts []int
	least  int // the lowest number that a topology has; len(counts) if there is none
}

func (l *levels) add(selected, by int) {
	for selected >= len(l.counts) {
		l.counts = append(l.counts, 0)
	}
	l.counts[selected] += by
}

func (l *levels) update() {
	for l.least < len(l.counts) && l.counts[l.least] == 0 {
		l.least++
	}
}

// newSpread prepares a selection from candidates, in any order. Candidates without the label or claim of a DoNotSchedule constraint
// cannot be selected, are left out, and do not count as a topology.
func newSpread(constraints []spreadConstraint, candidates []scoredCluster) *spreadSelector {
	s := &spreadSelector{}
	for _, strict := range []bool{true, false} {
		for i := range constraints {
			if constraints[i].strict == strict {
				s.constraints = append(s.constraints, constraintState{spreadConstraint: &constraints[i], topologies: map[string]*topology{}})
			}
		}
	}
	candidates = slices.DeleteFunc(candidates, func(p scoredCluster) bool { return s.missingTopology(p.cluster) != nil })
	slices.SortFunc(candidates, compareRanks)
	for rank, candidate := range candidates {
		waiting := &spreadCandidate{scoredCluster: candidate, rank: rank}
		for i := range s.constraints {
			waiting.topologies[i] = s.constraints[i].addCandidate(candidate.cluster)
		}
		s.waiting = append(s.waiting, waiting)
	}
	return s
}

// addCandidate adds a candidate to its topology.
func (st *constraintState) addCandidate(c *cluster) *topology {
	value, known := st.topologyOf(c)
	if !known {
		return nil
	}
	t := st.topologies[value]
	if t == nil {
		t = &topology{}
		st.topologies[value] = t
		st.all.add(0, 1)
		st.open.add(0, 1)
	}
	t.waiting++
	return t
}

// missingTopology returns the first DoNotSchedule constraint whose label or claim the cluster does not have; nil if there is none.
func (ss *spreadSelector) missingTopology(c *cluster) *spreadConstraint {
	for i := range ss.constraints {
		if _, known := ss.constraints[i].topologyOf(c); !known && ss.constraints[i].strict {
			return ss.constraints[i].spreadConstraint
		}
	}
	return nil
}

// excess is by how much one cluster more of a topology would exceed maxSkew of each constraint. Candidates without a topology come last.
type excess [maxConstraints]int

// excessWith is the excess of a topology with that many selected clusters.
func (st *constraintState) excessWith(selected int) int {
	return max(selected+1-st.all.least-st.maxSkew, 0)
}

// excessOf returns the excess of a candidate. ok is false if a DoNotSchedule constraint forbids it.
func (ss *spreadSelector) excessOf(c *spreadCandidate) (e excess, ok bool) {
	ok = true
	for i := range ss.constraints {
		if e[i] = math.MaxInt; c.topologies[i] != nil {
			e[i] = ss.constraints[i].excessWith(c.topologies[i].selected)
		}
		ok = ok && (e[i] == 0 || !ss.constraints[i].strict)
	}
	return e, ok
}

// leastExcess is the least that any candidate can have of each constraint. There may be none that has all of them.
func (ss *spreadSelector) leastExcess() (e excess) {
	for i := range ss.constraints {
		if e[i] = math.MaxInt; ss.constraints[i].open.least < len(ss.constraints[i].open.counts) {
			e[i] = ss.constraints[i].excessWith(ss.constraints[i].open.least)
		}
	}
	return e
}

// next returns the position in waiting of the best candidate among those that keep to all DoNotSchedule constraints and, of these, exceed
// maxSkew of the first ScheduleAnyway constraint least, then of the second one, and so on. constraint is the first one that excludes a
// better candidate, if one does. ok is false when no candidate can be selected.
func (ss *spreadSelector) next() (position int, constraint *spreadConstraint, ok bool) {
	var best excess
	least := ss.leastExcess()
	for at, candidate := range ss.waiting {
		e, allowed := ss.excessOf(candidate)
		if !allowed || (ok && slices.Compare(e[:], best[:]) >= 0) {
			continue
		}
		position, best, ok = at, e, true
		if e == least {
			break
		}
	}
	if !ok {
		return 0, nil, false
	}
	first, _ := ss.excessOf(ss.waiting[0])
	for i := range ss.constraints {
		if first[i] != best[i] {
			return position, ss.constraints[i].spreadConstraint, true
		}
	}
	return position, nil, true
}

// selectAt selects the candidate at a position in waiting.
func (ss *spreadSelector) selectAt(position int) *spreadCandidate {
	candidate := ss.waiting[position]
	ss.waiting = slices.Delete(ss.waiting, position, position+1)
	for i := range ss.constraints {
		if t := candidate.topologies[i]; t != nil {
			ss.constraints[i].addSelected(t)
		}
	}
	return candidate
}

func (st *constraintState) addSelected(t *topology) {
	st.all.add(t.selected, -1)
	st.open.add(t.selected, -1)
	t.selected++
	t.waiting--
	st.all.add(t.selected, 1)
	if t.waiting > 0 {
		st.open.add(t.selected, 1)
	}
	st.all.update()
	st.open.update()
}

// violatedConstraint returns the first DoNotSchedule constraint that forbids to select one cluster more like this; nil if none does.
func (ss *spreadSelector) violatedConstraint(c *cluster) *spreadConstraint {
	for i := range ss.constraints {
		k := &ss.constraints[i]
		value, _ := k.topologyOf(c)
		if t := k.topologies[value]; k.strict && t != nil && k.excessWith(t.selected) > 0 {
			return k.spreadConstraint
		}
	}
	return nil
}

// selectSpread selects n of the candidates.
func (c *cycle) selectSpread(candidates []scoredCluster, n int) []scoredCluster {
	s := newSpread(c.spec.constraints, candidates)
	c.spread = s
	c.spreadReasons = map[*cluster]*spreadConstraint{}
	var selected []scoredCluster
	for len(selected) < n {
		position, constraint, ok := s.next()
		if !ok {
			break
		}
		candidate := s.selectAt(position)
		selected = append(selected, candidate.scoredCluster)
		if candidate.rank >= n { // by its score alone, it would not be selected
			c.spreadReasons[candidate.cluster] = constraint
		}
	}
	return selected
}
