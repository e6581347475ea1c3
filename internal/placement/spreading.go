package placement

import "slices"

// spread is how clusters are selected one by one with constraints. Candidates go by their places: the best one has
// the place 0.
//
// Selecting one takes a few operations on sets of all candidates, 64 of them at once, however many topologies there are.
type spread struct {
	candidates []pick
	waiting    bitset      // not selected yet
	fit        bitset      // scratch memory of next
	by         []spreading // those with DoNotSchedule first
}

// spreading is the state of one constraint while clusters are selected.
type spreading struct {
	*constraint
	topologies []topology
	indexes    map[string]int32 // of topologies
	of         []int32          // by id: the topology of a candidate; absent if it has no such label or claim
	least      int              // how many clusters are selected of the topology with the fewest
	atLeast    int              // how many topologies have as few
	within     bitset           // waiting candidates of which one more keeps to maxSkew
	beyond     []level          // the others with a topology, those that exceed it least first
}

// topology is the candidates with one value of a label or claim.
type topology struct {
	selected int
	waiting  []chunk
}

// level is the waiting candidates of all topologies of which as many clusters are selected.
type level struct {
	selected int
	waiting  bitset
}

const absent = -1

// newSpread takes candidates in any order. It drops those without the label or claim of a DoNotSchedule constraint, which
// cannot be selected, and make no topology.
func (c *contest) newSpread(candidates []pick) *spread {
	s := &spread{by: make([]spreading, len(c.plan.spread))}
	for i := range s.by {
		s.by[i] = spreading{constraint: &c.plan.spread[i], indexes: map[string]int32{}, of: make([]int32, len(c.fleet.clusters))}
	}
	// Before they are sorted, clusters are near each other in memory.
	s.candidates = slices.DeleteFunc(candidates, func(p pick) bool { return !s.divide(c.fleet.clusters[p.id]) })
	slices.SortFunc(s.candidates, comparePicks)
	for place, candidate := range s.candidates {
		s.waiting.set(int32(place))
		for i := range s.by {
			s.by[i].join(int32(place), candidate.id)
		}
	}
	s.fit = slices.Clone(s.waiting)
	for i := range s.by {
		s.by[i].begin(s.waiting)
	}
	slices.SortStableFunc(s.by, func(a, b spreading) int { return strictFirst(a.strict) - strictFirst(b.strict) })
	return s
}

func strictFirst(strict bool) int {
	if strict {
		return 0
	}
	return 1
}

// lacks returns the first DoNotSchedule constraint of which a cluster has no topology.
func (s *spread) lacks(c *cluster) *constraint {
	for i := range s.by {
		if _, known := s.by[i].topology(c); !known && s.by[i].strict {
			return s.by[i].constraint
		}
	}
	return nil
}

// divide finds the topologies of a cluster. It reports false when it has none of a DoNotSchedule constraint.
func (s *spread) divide(c *cluster) bool {
	var values [mostConstraints]string
	var known [mostConstraints]bool
	for i := range s.by {
		if values[i], known[i] = s.by[i].topology(c); !known[i] && s.by[i].strict {
			return false
		}
	}
	for i := range s.by {
		s.by[i].of[c.id] = absent
		if known[i] {
			s.by[i].of[c.id] = s.by[i].intern(values[i])
		}
	}
	return true
}

func (s *spreading) intern(value string) int32 {
	index, seen := s.indexes[value]
	if !seen {
		index = int32(len(s.topologies))
		s.indexes[value] = index
		s.topologies = append(s.topologies, topology{})
	}
	return index
}

// join adds a candidate to its topology.
func (s *spreading) join(place, id int32) {
	if of := s.of[id]; of != absent {
		s.topologies[of].waiting = appendMember(s.topologies[of].waiting, place)
	}
}

// begin lets all candidates of a topology be selected: before any is, none exceeds maxSkew.
func (s *spreading) begin(all bitset) {
	s.within = make(bitset, len(all))
	for i := range s.topologies {
		s.within.include(s.topologies[i].waiting)
	}
	s.atLeast = len(s.topologies)
}

// next is the best of those that keep all DoNotSchedule constraints; among these go first those that exceed maxSkew of the
// first ScheduleAnyway constraint least, then of the second, and so on. Those without its label or claim go last. It reports
// the first constraint for which a better candidate has to wait, if one has, and false when nobody can be selected.
func (s *spread) next() (place int32, because *constraint, ok bool) {
	copy(s.fit, s.waiting)
	best, ok := s.fit.first()
	for i := range s.by {
		s.by[i].narrow(s.fit)
		if place, ok = s.fit.first(); !ok {
			return 0, nil, false
		}
		if place != best && because == nil {
			because = s.by[i].constraint
		}
	}
	return place, because, ok
}

// narrow leaves the candidates that the constraint lets go first.
func (s *spreading) narrow(fit bitset) {
	if s.strict || fit.intersects(s.within) {
		fit.keep(s.within)
		return
	}
	for i := range s.beyond {
		if fit.intersects(s.beyond[i].waiting) {
			fit.keep(s.beyond[i].waiting)
			return
		}
	}
}

// take selects a candidate.
func (s *spread) take(place int32) {
	s.waiting.clear(place)
	for i := range s.by {
		if of := s.by[i].of[s.candidates[place].id]; of != absent {
			s.by[i].take(&s.by[i].topologies[of], place)
		}
	}
}

func (s *spreading) take(t *topology, place int32) {
	s.leave(t)
	t.waiting = removeMember(t.waiting, place)
	t.selected++
	s.enter(t)
	if t.selected-1 > s.least {
		return
	}
	if s.atLeast--; s.atLeast == 0 {
		s.rise()
	}
}

// keeps tells whether one more of a topology, of which so many are selected, keeps to maxSkew.
func (s *spreading) keeps(selected int) bool { return selected+1-s.least <= s.maxSkew }

// leave takes the candidates of a topology out of their set.
func (s *spreading) leave(t *topology) {
	if s.keeps(t.selected) {
		s.within.exclude(t.waiting)
		return
	}
	at, _ := s.level(t.selected)
	s.beyond[at].waiting.exclude(t.waiting)
	if s.beyond[at].waiting.empty() {
		s.beyond = slices.Delete(s.beyond, at, at+1)
	}
}

// enter puts the candidates of a topology into the set that they belong to.
func (s *spreading) enter(t *topology) {
	if s.keeps(t.selected) {
		s.within.include(t.waiting)
		return
	}
	if len(t.waiting) == 0 {
		return
	}
	at, found := s.level(t.selected)
	if !found {
		s.beyond = slices.Insert(s.beyond, at, level{selected: t.selected, waiting: make(bitset, len(s.within))})
	}
	s.beyond[at].waiting.include(t.waiting)
}

func (s *spreading) level(selected int) (at int, found bool) {
	return slices.BinarySearchFunc(s.beyond, selected, func(l level, selected int) int { return l.selected - selected })
}

// rise takes note that no topology has the least clusters any more.
func (s *spreading) rise() {
	s.least++
	for i := range s.topologies {
		if s.topologies[i].selected == s.least {
			s.atLeast++
		}
	}
	if len(s.beyond) > 0 && s.keeps(s.beyond[0].selected) {
		s.within.add(s.beyond[0].waiting)
		s.beyond = slices.Delete(s.beyond, 0, 1)
	}
}

// blocks returns the first DoNotSchedule constraint that a waiting candidate would break.
func (s *spread) blocks(place int32) *constraint {
	for i := range s.by {
		if s.by[i].strict && !s.by[i].within.has(place) {
			return s.by[i].constraint
		}
	}
	return nil
}

// spread selects n of the candidates.
func (c *contest) spread(candidates []pick, n int) []pick {
	s := c.newSpread(candidates)
	picks := c.scratch.picks[:0]
	for len(picks) < n {
		place, because, ok := s.next()
		if !ok {
			break
		}
		s.take(place)
		picks = append(picks, s.candidates[place])
		if int(place) >= n { // its rank alone would not have done
			c.prefer(s.candidates[place].id, because)
		}
	}
	c.scratch.picks = picks
	return picks
}

// prefer takes note that a cluster is selected before better ones because of a constraint.
func (c *contest) prefer(id int32, because *constraint) {
	if c.preferred == nil {
		c.preferred = map[int32]*constraint{}
	}
	c.preferred[id] = because
}
