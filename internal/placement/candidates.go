package placement

import (
	"slices"
	"time"
)

// candidateSet is the cached result of filtering and scoring all clusters for an equivalence class. Clusters that are candidates of all
// placements of the class have an index, in the order of their ids; it is the index into clusterIDs and baseScores.
type candidateSet struct {
	inClusterSets  bitset // members of the bound cluster sets that the placements select from
	matched        bitset // those of inClusterSets that match the predicates
	tolerated      bitset // those of matched without a taint that keeps them out: the candidates
	noSelectIfNew  bitset // those of matched with an untolerated NoSelectIfNew taint: candidates of placements that have selected them
	preferNoSelect bitset // those of matched with an untolerated PreferNoSelect taint: they rank last
	expired        bitset // candidates with an expired AddOnPlacementScore that the profile uses
	counts         *filterCounts

	ranges      resourceRanges // of the candidates
	clusterIDs  []int32
	baseScores  []int64 // by index: the weighted sum of scorers, less preferNoSelectPenalty; Balance and Steady are not in it
	firstByName []int32 // indexes of the first candidates by name, for firstCandidates; nil when unknown
}

// filterCounts caches the sizes of two sets of a candidateSet. The field that has it is nil after these have changed.
type filterCounts struct{ inClusterSets, matched int }

func (cs *candidateSet) updateCounts() {
	if cs.counts == nil {
		cs.counts = &filterCounts{inClusterSets: cs.inClusterSets.count(), matched: cs.matched.count()}
	}
}

// preferNoSelectPenalty is subtracted from the score of clusters with an untolerated PreferNoSelect taint. It is far above any sum of
// scores, so that they rank behind all others.
const preferNoSelectPenalty = int64(1) << 40

// size is the memory that the set takes, counted in candidates. Bitsets take little and are left out.
func (cs *candidateSet) size() int { return len(cs.clusterIDs) + len(cs.inClusterSets) }

func (cs *candidateSet) indexOf(id int32) (int, bool) { return slices.BinarySearch(cs.clusterIDs, id) }

// buildCandidates filters and scores all clusters for a class as of now. next is when a toleration or a score expires at the earliest.
// There are no candidates while the class is pending.
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

// filterTaints classifies the matching clusters by their taints.
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

// scoreCandidates computes the index and the base score of every candidate.
func (s *Scheduler) scoreCandidates(cs *candidateSet, profile *profile) {
	cs.clusterIDs = slices.AppendSeq(make([]int32, 0, cs.tolerated.count()), cs.tolerated.all())
	cs.baseScores = make([]int64, len(cs.clusterIDs))
	for index, id := range cs.clusterIDs {
		cs.baseScores[index] = taintPenalty(cs.preferNoSelect.has(id))
		cs.expired.clear(id)
	}
	for i := range profile.scorers {
		s.runScorer(cs, &profile.scorers[i])
	}
	cs.firstByName = nil
}

// runScorer adds the weighted scores of one scorer to the base scores.
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

// filterStatus is the result of all filters for one member of the cluster sets.
type filterStatus struct {
	matched, tolerated, noSelectIfNew, preferNoSelect bool
}

// filter runs all filters on one cluster. Results of CEL expressions are those that are known.
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

// filterTaints returns the status of a cluster that matches the predicates.
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

// include extends the ranges of the resources that are used.
func (s *resourceRanges) include(c *cluster, usesResource *[len(resourceNames)]bool) {
	for i, used := range usesResource {
		if used {
			s[i].include(c.allocatable[i])
		}
	}
}

// baseScore is the weighted sum of the scores of a cluster, without Balance and Steady. expired tells whether one of them has expired.
func (s *profile) baseScore(c *cluster, ranges *resourceRanges, preferNoSelect bool, now time.Time) (score int64, expired bool) {
	for i := range s.scorers {
		own, stale := s.scorers[i].score(c, ranges, now)
		score += s.scorers[i].weight * own
		expired = expired || stale
	}
	return score + taintPenalty(preferNoSelect), expired
}

// taintPenalty is what an untolerated PreferNoSelect taint adds to a score.
func taintPenalty(preferNoSelect bool) int64 {
	if preferNoSelect {
		return -preferNoSelectPenalty
	}
	return 0
}

// computeRanges computes the ranges over all candidates.
func (s *Scheduler) computeRanges(cs *candidateSet, profile *profile) resourceRanges {
	var ranges resourceRanges
	for id := range cs.tolerated.all() {
		ranges.include(s.clusters.byID[id], &profile.usesResource)
	}
	return ranges
}
