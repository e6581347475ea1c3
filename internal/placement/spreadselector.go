package placement

import "slices"

// spreadSelector selects clusters one by one so that they keep to spread constraints. A candidate is known by its position in the list of
// candidates, the best of which is at 0.
//
// Selecting a cluster takes a few operations on bitsets of all candidates, however many topologies there are.
type spreadSelector struct {
	candidates  []scoredCluster
	unselected  bitset            // positions of candidates that are not selected yet
	feasible    bitset            // memory of next, which it overwrites
	constraints []constraintState // sorted: those with DoNotSchedule come first
}

// constraintState is how the selected clusters are spread over the topologies of one constraint.
type constraintState struct {
	*spreadConstraint
	topologies      []topology
	indexes         map[string]int32 // of topologies
	topologyAt      []int32          // by position: index of the topology; noTopology without the label or claim
	minSelected     int              // number of selected clusters of the topologies with the fewest
	topologiesAtMin int              // number of topologies with minSelected
	withinSkew      bitset           // unselected candidates that can be selected without exceeding maxSkew
	overSkew        []skewLevel      // unselected candidates that would exceed maxSkew, sorted by by how much
}

// topology has the candidates with one value of the label or claim.
type topology struct {
	selected   int
	unselected []sparseWord
}

// skewLevel has the unselected candidates of all topologies with the same number of selected clusters.
type skewLevel struct {
	selected   int
	unselected bitset
}

const noTopology = -1

// newSpread prepares a selection from candidates, in any order. Candidates without the label or claim of a DoNotSchedule constraint
// cannot be selected, are left out, and do not count as a topology.
func newSpread(constraints []spreadConstraint, candidates []scoredCluster) *spreadSelector {
	s := &spreadSelector{constraints: make([]constraintState, len(constraints))}
	for i := range constraints {
		s.constraints[i] = constraintState{spreadConstraint: &constraints[i], indexes: map[string]int32{}}
	}
	s.candidates = slices.DeleteFunc(candidates, func(p scoredCluster) bool { return s.missingTopology(p.cluster) != nil })
	slices.SortFunc(s.candidates, compareRanks)
	for position, candidate := range s.candidates {
		s.unselected.set(index32(position))
		for i := range s.constraints {
			s.constraints[i].addCandidate(index32(position), candidate.cluster)
		}
	}
	s.feasible = slices.Clone(s.unselected)
	for i := range s.constraints {
		s.constraints[i].init(s.unselected)
	}
	slices.SortStableFunc(s.constraints, func(a, b constraintState) int { return strictOrder(a.strict) - strictOrder(b.strict) })
	return s
}

func strictOrder(strict bool) int {
	if strict {
		return 0
	}
	return 1
}

// missingTopology returns the first DoNotSchedule constraint whose label or claim the cluster does not have; nil if there is none.
func (s *spreadSelector) missingTopology(c *cluster) *spreadConstraint {
	for i := range s.constraints {
		if _, known := s.constraints[i].topologyOf(c); !known && s.constraints[i].strict {
			return s.constraints[i].spreadConstraint
		}
	}
	return nil
}

func (s *constraintState) topologyIndex(value string) int32 {
	index, seen := s.indexes[value]
	if !seen {
		index = index32(len(s.topologies))
		s.indexes[value] = index
		s.topologies = append(s.topologies, topology{})
	}
	return index
}

// addCandidate adds the candidate of the next position to its topology.
func (s *constraintState) addCandidate(position int32, c *cluster) {
	of := int32(noTopology)
	if value, known := s.topologyOf(c); known {
		of = s.topologyIndex(value)
		s.topologies[of].unselected = appendSparse(s.topologies[of].unselected, position)
	}
	s.topologyAt = append(s.topologyAt, of)
}

// init makes all candidates with a topology selectable: while none is selected, none exceeds maxSkew.
func (s *constraintState) init(all bitset) {
	s.withinSkew = make(bitset, len(all))
	for i := range s.topologies {
		s.withinSkew.addSparse(s.topologies[i].unselected)
	}
	s.topologiesAtMin = len(s.topologies)
}

// next returns the position of the best candidate among those that keep to all DoNotSchedule constraints and, of these, exceed maxSkew of
// the first ScheduleAnyway constraint least, then of the second one, and so on. Candidates without the label or claim of a ScheduleAnyway
// constraint come last. constraint is the first one that excludes a better candidate, if one does. ok is false when no candidate can be
// selected.
func (s *spreadSelector) next() (position int32, constraint *spreadConstraint, ok bool) {
	copy(s.feasible, s.unselected)
	best, ok := s.feasible.first()
	for i := range s.constraints {
		s.constraints[i].keepFeasible(s.feasible)
		if position, ok = s.feasible.first(); !ok {
			return 0, nil, false
		}
		if position != best && constraint == nil {
			constraint = s.constraints[i].spreadConstraint
		}
	}
	return position, constraint, ok
}

// keepFeasible removes the candidates from fit that are not the best ones for the constraint.
func (s *constraintState) keepFeasible(fit bitset) {
	if s.strict || fit.intersects(s.withinSkew) {
		fit.intersect(s.withinSkew)
		return
	}
	for i := range s.overSkew {
		if fit.intersects(s.overSkew[i].unselected) {
			fit.intersect(s.overSkew[i].unselected)
			return
		}
	}
}

// selectCandidate marks a candidate as selected.
func (s *spreadSelector) selectCandidate(position int32) {
	s.unselected.clear(position)
	for i := range s.constraints {
		if of := s.constraints[i].topologyAt[position]; of != noTopology {
			s.constraints[i].selectCandidate(&s.constraints[i].topologies[of], position)
		}
	}
}

func (s *constraintState) selectCandidate(t *topology, position int32) {
	s.removeTopology(t)
	t.unselected = deleteSparse(t.unselected, position)
	t.selected++
	s.addTopology(t)
	if t.selected-1 > s.minSelected {
		return
	}
	if s.topologiesAtMin--; s.topologiesAtMin == 0 {
		s.raiseMin()
	}
}

// allows tells whether another cluster can be selected of a topology with that many selected ones without exceeding maxSkew.
func (s *constraintState) allows(selected int) bool { return selected+1-s.minSelected <= s.maxSkew }

// removeTopology removes the candidates of a topology from withinSkew or overSkew.
func (s *constraintState) removeTopology(t *topology) {
	if s.allows(t.selected) {
		s.withinSkew.removeSparse(t.unselected)
		return
	}
	at, _ := s.level(t.selected)
	s.overSkew[at].unselected.removeSparse(t.unselected)
	if s.overSkew[at].unselected.empty() {
		s.overSkew = slices.Delete(s.overSkew, at, at+1)
	}
}

// addTopology adds the candidates of a topology to withinSkew or overSkew.
func (s *constraintState) addTopology(t *topology) {
	if s.allows(t.selected) {
		s.withinSkew.addSparse(t.unselected)
		return
	}
	if len(t.unselected) == 0 {
		return
	}
	at, found := s.level(t.selected)
	if !found {
		s.overSkew = slices.Insert(s.overSkew, at, skewLevel{selected: t.selected, unselected: make(bitset, len(s.withinSkew))})
	}
	s.overSkew[at].unselected.addSparse(t.unselected)
}

func (s *constraintState) level(selected int) (at int, found bool) {
	return slices.BinarySearchFunc(s.overSkew, selected, func(l skewLevel, selected int) int { return l.selected - selected })
}

// raiseMin increases minSelected by one, as all topologies have more.
func (s *constraintState) raiseMin() {
	s.minSelected++
	for i := range s.topologies {
		if s.topologies[i].selected == s.minSelected {
			s.topologiesAtMin++
		}
	}
	if len(s.overSkew) > 0 && s.allows(s.overSkew[0].selected) {
		s.withinSkew.union(s.overSkew[0].unselected)
		s.overSkew = slices.Delete(s.overSkew, 0, 1)
	}
}

// violatedConstraint returns the first DoNotSchedule constraint that forbids to select a candidate; nil if none does.
func (s *spreadSelector) violatedConstraint(position int32) *spreadConstraint {
	for i := range s.constraints {
		if s.constraints[i].strict && !s.constraints[i].withinSkew.has(position) {
			return s.constraints[i].spreadConstraint
		}
	}
	return nil
}

// selectSpread selects n of the candidates.
func (c *cycle) selectSpread(candidates []scoredCluster, n int) []scoredCluster {
	s := newSpread(c.spec.constraints, candidates)
	var selected []scoredCluster
	for len(selected) < n {
		position, constraint, ok := s.next()
		if !ok {
			break
		}
		s.selectCandidate(position)
		selected = append(selected, s.candidates[position])
		if int(position) >= n { // by its score alone, it would not be selected
			c.recordSpreadReason(s.candidates[position].cluster, constraint)
		}
	}
	return selected
}

// recordSpreadReason records the constraint because of which a cluster is selected before better ones.
func (c *cycle) recordSpreadReason(of *cluster, constraint *spreadConstraint) {
	if c.spreadReasons == nil {
		c.spreadReasons = map[*cluster]*spreadConstraint{}
	}
	c.spreadReasons[of] = constraint
}
