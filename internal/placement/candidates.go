package placement

import (
	"slices"
	"time"
)

// candidateSet is how the clusters stand with a class: who is a candidate, and with what score. Candidates that are open to
// all its placements have a seat, in the order of their ids.
type candidateSet struct {
	inClusterSets  bitset // members of the cluster sets
	matched        bitset // of those, meet the predicates
	tolerated      bitset // of those, have no taint that matters
	noSelectIfNew  bitset // have a taint that only placements that select them already do not mind
	preferNoSelect bitset // have a taint because of which they rank last
	expired        bitset // open ones of which a score that matters has expired
	counts         *filterCounts

	ranges      resourceRanges // of open ones
	clusterIDs  []int32
	baseScores  []int64 // by seat: the sum of weighted scores, less penalty if avoided
	ranking     ranking
	firstByName []int32 // seats by the names of their clusters, the first ones; nil when they are not known
}

// filterCounts are the sizes of the sets of a standing; nil after it has changed.
type filterCounts struct{ inClusterSets, matched int }

func (cs *candidateSet) updateCounts() {
	if cs.counts == nil {
		cs.counts = &filterCounts{inClusterSets: cs.inClusterSets.count(), matched: cs.matched.count()}
	}
}

// preferNoSelectPenalty ranks clusters with a PreferNoSelect taint behind all others. It is far above any sum of scores.
const preferNoSelectPenalty = int64(1) << 40

// size is what a standing weighs, in candidates. Bitsets weigh little.
func (cs *candidateSet) size() int { return len(cs.clusterIDs) + len(cs.inClusterSets) }

func (cs *candidateSet) indexOf(id int32) (int, bool) { return slices.BinarySearch(cs.clusterIDs, id) }

// buildCandidates finds the candidates of a class as of now, and the time that changes them. Of a class that is pending there are none.
func (s *Scheduler) buildCandidates(class *equivalenceClass) (cs *candidateSet, next time.Time) {
	s.clusters.updateRanks()
	cs = &candidateSet{inClusterSets: class.members()}
	if class.profile.cel {
		next = s.filterPredicatesCEL(class, cs)
	} else {
		next = s.filterPredicates(cs, class.profile)
	}
	if !class.pending() {
		s.filterTaints(cs, class.profile)
		s.scoreCandidates(cs, class.profile)
	}
	return cs, next
}

// filterTaints finds those of the matching clusters whose taints do not matter.
func (s *Scheduler) filterTaints(cs *candidateSet, profile *profile) {
	defer s.timed(PluginFilter, FilterTaintToleration)()
	for id := range cs.matched.all() {
		c := s.clusters.byID[id]
		cs.setStatus(c, profile.filterTaints(c, s.now))
		if cs.tolerated.has(id) {
			cs.ranges.include(c, &profile.usesResource)
		}
	}
}

// scoreCandidates gives all open candidates seats and keys anew.
func (s *Scheduler) scoreCandidates(cs *candidateSet, profile *profile) {
	cs.clusterIDs = slices.AppendSeq(slices.Grow(cs.clusterIDs[:0], cs.tolerated.count()), cs.tolerated.all())
	cs.baseScores = slices.Grow(cs.baseScores[:0], len(cs.clusterIDs))[:len(cs.clusterIDs)]
	for index, id := range cs.clusterIDs {
		cs.baseScores[index] = taintPenalty(cs.preferNoSelect.has(id))
		cs.expired.clear(id)
	}
	for i := range profile.scorers {
		s.runScorer(cs, &profile.scorers[i])
	}
	cs.firstByName = nil
	cs.ranking.reset(cs, s.clusters.nameRanks)
}

// runScorer adds the weighted scores of a source to the keys.
func (s *Scheduler) runScorer(cs *candidateSet, by *scorer) {
	defer s.timed(PluginPrioritizer, by.pluginName())()
	for index, id := range cs.clusterIDs {
		score, stale := by.score(s.clusters.byID[id], &cs.ranges, s.now)
		cs.baseScores[index] += by.weight * score
		if stale {
			cs.expired.set(id)
		}
	}
}

// filterStatus is what a member of the cluster sets is to a selection by itself.
type filterStatus struct {
	matched, tolerated, noSelectIfNew, preferNoSelect bool
}

// filter goes by what is known of CEL expressions.
func (class *equivalenceClass) filter(c *cluster, now time.Time) filterStatus {
	matched := false
	if class.evaluation != nil {
		matched = class.evaluation.matched.has(c.id)
	} else {
		matched = class.profile.match(c, now, nil)
	}
	if !matched {
		return filterStatus{}
	}
	return class.profile.filterTaints(c, now)
}

// filterTaints is the verdict on a cluster that meets the predicates.
func (s *profile) filterTaints(c *cluster, now time.Time) filterStatus {
	t := s.untoleratedTaints(c, now)
	return filterStatus{
		matched:        true,
		tolerated:      t.noSelect == nil && t.noSelectIfNew == nil,
		noSelectIfNew:  t.noSelect == nil && t.noSelectIfNew != nil,
		preferNoSelect: t.preferNoSelect != nil,
	}
}

func (cs *candidateSet) setStatus(c *cluster, v filterStatus) {
	cs.matched.setTo(c.id, v.matched)
	cs.tolerated.setTo(c.id, v.tolerated)
	cs.noSelectIfNew.setTo(c.id, v.noSelectIfNew)
	cs.preferNoSelect.setTo(c.id, v.preferNoSelect)
}

// include widens the spans of the resources that matter.
func (s *resourceRanges) include(c *cluster, usesResource *[len(resourceNames)]bool) {
	for i, used := range usesResource {
		if used {
			s[i].include(c.allocatable[i])
		}
	}
}

// baseScore sums the scores of a cluster up.
func (s *profile) baseScore(c *cluster, ranges *resourceRanges, avoided bool, now time.Time) (key int64, expired bool) {
	for i := range s.scorers {
		score, stale := s.scorers[i].score(c, ranges, now)
		key += s.scorers[i].weight * score
		expired = expired || stale
	}
	return key + taintPenalty(avoided), expired
}

// taintPenalty is what a PreferNoSelect taint adds to the key.
func taintPenalty(avoided bool) int64 {
	if avoided {
		return -preferNoSelectPenalty
	}
	return 0
}

// computeRanges finds the spans of the candidates anew.
func (s *Scheduler) computeRanges(cs *candidateSet, profile *profile) resourceRanges {
	var ranges resourceRanges
	for id := range cs.tolerated.all() {
		ranges.include(s.clusters.byID[id], &profile.usesResource)
	}
	return ranges
}
