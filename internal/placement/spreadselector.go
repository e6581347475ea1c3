package placement

import "slices"

// spreadSelector is how clusters are selected one by one with constraints. Candidates go by their places: the best one has
// the place 0.
//
// Selecting one takes a few operations on sets of all candidates, 64 of them at once, however many topologies there are.
type spreadSelector struct {
	candidates  []candidate
	unselected  bitset            // not selected yet
	feasible    bitset            // scratch memory of next
	constraints []constraintState // those with DoNotSchedule first
}

// constraintState is the state of one constraint while clusters are selected.
type constraintState struct {
	*spreadConstraint
	topologies      []topology
	indexes         map[string]int32 // of topologies
	topologyByID    []int32          // by id: the topology of a candidate; absent if it has no such label or claim
	minSelected     int              // how many clusters are selected of the topology with the fewest
	topologiesAtMin int              // how many topologies have as few
	withinSkew      bitset           // waiting candidates of which one more keeps to maxSkew
	overSkew        []skewLevel      // the others with a topology, those that exceed it least first
}

// topology is the candidates with one value of a label or claim.
type topology struct {
	selected   int
	unselected []sparseWord
}

// skewLevel is the waiting candidates of all topologies of which as many clusters are selected.
type skewLevel struct {
	selected   int
	unselected bitset
}

const noTopology = -1

// newSpread takes candidates in any order. It drops those without the label or claim of a DoNotSchedule constraint, which
// cannot be selected, and make no topology.
func (c *cycle) newSpread(candidates []candidate) *spreadSelector {
	s := &spreadSelector{constraints: make([]constraintState, len(c.spec.constraints))}
	for i := range s.constraints {
		s.constraints[i] = constraintState{
			spreadConstraint: &c.spec.constraints[i],
			indexes:          map[string]int32{},
			topologyByID:     make([]int32, len(c.clusters.byID)),
		}
	}
	// Before they are sorted, clusters are near each other in memory.
	s.candidates = slices.DeleteFunc(candidates, func(p candidate) bool { return !s.assignTopologies(c.clusters.byID[p.id]) })
	slices.SortFunc(s.candidates, compareCandidates)
	for place, candidate := range s.candidates {
		s.unselected.set(index32(place))
		for i := range s.constraints {
			s.constraints[i].addCandidate(index32(place), candidate.id)
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

// missingTopology returns the first DoNotSchedule constraint of which a cluster has no topology.
func (s *spreadSelector) missingTopology(c *cluster) *spreadConstraint {
	for i := range s.constraints {
		if _, known := s.constraints[i].topologyOf(c); !known && s.constraints[i].strict {
			return s.constraints[i].spreadConstraint
		}
	}
	return nil
}

// assignTopologies finds the topologies of a cluster. It reports false when it has none of a DoNotSchedule constraint.
func (s *spreadSelector) assignTopologies(c *cluster) bool {
	var values [maxConstraints]string
	var known [maxConstraints]bool
	for i := range s.constraints {
		if values[i], known[i] = s.constraints[i].topologyOf(c); !known[i] && s.constraints[i].strict {
			return false
		}
	}
	for i := range s.constraints {
		s.constraints[i].topologyByID[c.id] = noTopology
		if known[i] {
			s.constraints[i].topologyByID[c.id] = s.constraints[i].topologyIndex(values[i])
		}
	}
	return true
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

// addCandidate adds a candidate to its topology.
func (s *constraintState) addCandidate(place, id int32) {
	if of := s.topologyByID[id]; of != noTopology {
		s.topologies[of].unselected = appendSparse(s.topologies[of].unselected, place)
	}
}

// init lets all candidates of a topology be selected: before any is, none exceeds maxSkew.
func (s *constraintState) init(all bitset) {
	s.withinSkew = make(bitset, len(all))
	for i := range s.topologies {
		s.withinSkew.addSparse(s.topologies[i].unselected)
	}
	s.topologiesAtMin = len(s.topologies)
}

// next is the best of those that keep all DoNotSchedule constraints; among these go first those that exceed maxSkew of the
// first ScheduleAnyway constraint least, then of the second, and so on. Those without its label or claim go last. It reports
// the first constraint for which a better candidate has to wait, if one has, and false when nobody can be selected.
func (s *spreadSelector) next() (place int32, constraint *spreadConstraint, ok bool) {
	copy(s.feasible, s.unselected)
	best, ok := s.feasible.first()
	for i := range s.constraints {
		s.constraints[i].keepFeasible(s.feasible)
		if place, ok = s.feasible.first(); !ok {
			return 0, nil, false
		}
		if place != best && constraint == nil {
			constraint = s.constraints[i].spreadConstraint
		}
	}
	return place, constraint, ok
}

// keepFeasible leaves the candidates that the constraint lets go first.
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

// selectCandidate selects a candidate.
func (s *spreadSelector) selectCandidate(place int32) {
	s.unselected.clear(place)
	for i := range s.constraints {
		if of := s.constraints[i].topologyByID[s.candidates[place].id]; of != noTopology {
			s.constraints[i].selectCandidate(&s.constraints[i].topologies[of], place)
		}
	}
}

func (s *constraintState) selectCandidate(t *topology, place int32) {
	s.removeTopology(t)
	t.unselected = deleteSparse(t.unselected, place)
	t.selected++
	s.addTopology(t)
	if t.selected-1 > s.minSelected {
		return
	}
	if s.topologiesAtMin--; s.topologiesAtMin == 0 {
		s.raiseMin()
	}
}

// allows tells whether one more of a topology, of which so many are selected, keeps to maxSkew.
func (s *constraintState) allows(selected int) bool { return selected+1-s.minSelected <= s.maxSkew }

// removeTopology takes the candidates of a topology out of their set.
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

// addTopology puts the candidates of a topology into the set that they belong to.
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

// raiseMin takes note that no topology has the least clusters any more.
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

// violatedConstraint returns the first DoNotSchedule constraint that a waiting candidate would break.
func (s *spreadSelector) violatedConstraint(place int32) *spreadConstraint {
	for i := range s.constraints {
		if s.constraints[i].strict && !s.constraints[i].withinSkew.has(place) {
			return s.constraints[i].spreadConstraint
		}
	}
	return nil
}

// selectSpread selects n of the candidates.
func (c *cycle) selectSpread(candidates []candidate, n int) []candidate {
	s := c.newSpread(candidates)
	picks := c.buffers.selected[:0]
	for len(picks) < n {
		place, constraint, ok := s.next()
		if !ok {
			break
		}
		s.selectCandidate(place)
		picks = append(picks, s.candidates[place])
		if int(place) >= n { // its rank alone would not have done
			c.recordSpreadReason(s.candidates[place].id, constraint)
		}
	}
	c.buffers.selected = picks
	return picks
}

// recordSpreadReason takes note that a cluster is selected before better ones because of a constraint.
func (c *cycle) recordSpreadReason(id int32, constraint *spreadConstraint) {
	if c.spreadReasons == nil {
		c.spreadReasons = map[int32]*spreadConstraint{}
	}
	c.spreadReasons[id] = constraint
}
