package placement

import (
	"cmp"
	"math"
	"slices"
)

// spreadSelector selects clusters one by one so that they keep to spread constraints.
type spreadSelector struct {
	constraints []constraintState // those with DoNotSchedule come first
	waiting     []*spreadBucket   // of the candidates that are not selected yet, by their best candidates, the best first
}

// spreadBucket is candidates with the same bucketKey, the best first; there is one at least. Of these, only the best can be the next one,
// as each would exceed maxSkew by the same.
type spreadBucket struct {
	candidates []*spreadCandidate
}

func (b *spreadBucket) best() *spreadCandidate { return b.candidates[0] }

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
	waiting := make([]*spreadCandidate, len(candidates))
	for rank, candidate := range candidates {
		waiting[rank] = &spreadCandidate{scoredCluster: candidate, rank: rank}
		for i := range s.constraints {
			waiting[rank].topologies[i] = s.constraints[i].addCandidate(candidate.cluster)
		}
	}
	s.waiting = bucketsOf(waiting)
	return s
}

// bucketsOf divides candidates, the best first, into buckets. They know by now how many candidates their topologies have.
func bucketsOf(candidates []*spreadCandidate) []*spreadBucket {
	var buckets []*spreadBucket
	byTopologies := map[[maxConstraints]*topology]*spreadBucket{}
	for _, candidate := range candidates {
		key := candidate.bucketKey()
		bucket := byTopologies[key]
		if bucket == nil {
			bucket = &spreadBucket{}
			byTopologies[key] = bucket
			buckets = append(buckets, bucket)
		}
		bucket.candidates = append(bucket.candidates, candidate)
	}
	return buckets
}

// ofOne stands for all topologies that have one candidate. As long as it waits, none is selected of any of them.
var ofOne = &topology{waiting: 1}

// bucketKey is equal for candidates that exceed maxSkew of each constraint by the same as long as they wait.
func (c *spreadCandidate) bucketKey() [maxConstraints]*topology {
	key := c.topologies
	for i, t := range c.topologies {
		if t != nil && t.waiting == 1 {
			key[i] = ofOne
		}
	}
	return key
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

// next returns the position in waiting of the bucket with the best candidate among those that keep to all DoNotSchedule constraints and, of
// these, exceed maxSkew of the first ScheduleAnyway constraint least, then of the second one, and so on. constraint is the first one that
// excludes a better candidate, if one does. ok is false when no candidate can be selected.
func (ss *spreadSelector) next() (position int, constraint *spreadConstraint, ok bool) {
	var best excess
	least := ss.leastExcess()
	for at, bucket := range ss.waiting {
		e, allowed := ss.excessOf(bucket.best())
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
	first, _ := ss.excessOf(ss.waiting[0].best())
	for i := range ss.constraints {
		if first[i] != best[i] {
			return position, ss.constraints[i].spreadConstraint, true
		}
	}
	return position, nil, true
}

// selectAt selects the best candidate of the bucket at a position in waiting.
func (ss *spreadSelector) selectAt(position int) *spreadCandidate {
	candidate := ss.takeBest(position)
	for i := range ss.constraints {
		if t := candidate.topologies[i]; t != nil {
			ss.constraints[i].addSelected(t)
		}
	}
	return candidate
}

// takeBest removes the best candidate of a bucket, and moves the bucket to where its next one belongs.
func (ss *spreadSelector) takeBest(position int) *spreadCandidate {
	bucket := ss.waiting[position]
	best := bucket.best()
	bucket.candidates = bucket.candidates[1:]
	ss.waiting = slices.Delete(ss.waiting, position, position+1)
	if len(bucket.candidates) > 0 {
		at, _ := slices.BinarySearchFunc(ss.waiting, bucket, compareBuckets)
		ss.waiting = slices.Insert(ss.waiting, at, bucket)
	}
	return best
}

func compareBuckets(a, b *spreadBucket) int { return cmp.Compare(a.best().rank, b.best().rank) }

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

// selectSpread selects n of the candidates. ScheduleAnyway alone keeps none out.
func (c *cycle) selectSpread(candidates []scoredCluster, n int) []scoredCluster {
	if len(candidates) <= n && !slices.ContainsFunc(c.spec.constraints, func(k spreadConstraint) bool { return k.strict }) {
		return candidates
	}
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
