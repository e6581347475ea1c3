package placement

import (
	"math"
	"slices"
)

// clusterState is how one cluster stands with a class.
type clusterState struct {
	filterStatus
	inClusterSets bool
	baseScore     int64
	expired       bool
}

func (cs *candidateSet) stateOf(c *cluster) clusterState {
	r := clusterState{
		inClusterSets: cs.inClusterSets.has(c.id),
		filterStatus: filterStatus{
			matched:        cs.matched.has(c.id),
			tolerated:      cs.tolerated.has(c.id),
			noSelectIfNew:  cs.noSelectIfNew.has(c.id),
			preferNoSelect: cs.preferNoSelect.has(c.id),
		},
		expired: cs.expired.has(c.id),
	}
	if index, found := cs.indexOf(c.id); found {
		r.baseScore = cs.baseScores[index]
	}
	return r
}

// updateClass brings the standing of a class up to date after one of the clusters has changed, and finds the placements of
// the class whose selection that may change. They are:
//
//   - those that have selected the cluster, if it stands in any other way than before;
//   - those for which it ranks, before or after, where it may be selected. What ranks further behind than the clusters
//     that the placement takes, and those it has already, whose scores are its own, is out of reach;
//   - all, if the scores of the other clusters depend on this one;
//   - those with constraints or groups, if topologies have changed.
func (s *Scheduler) updateClass(class *equivalenceClass, change clusterChange, affected affected) {
	c, cs := change.cluster, class.candidates
	if !change.celResult {
		s.updateEvaluation(class, c)
	}
	if cs == nil {
		if !class.overBudget() {
			class.addAll(affected)
		}
		return
	}
	size := cs.size()
	defer func() { s.cachedCandidates += cs.size() - size }()
	if class.overBudget() || class.pending() {
		cs.inClusterSets.setTo(c.id, class.has(c))
		return
	}
	s.clusters.updateRanks()
	before, after := cs.stateOf(c), clusterState{inClusterSets: class.has(c)}
	if !before.inClusterSets && !after.inClusterSets {
		return
	}
	if after.inClusterSets {
		after.filterStatus = class.filter(c, s.now)
		class.nextChange = earliest(class.nextChange, class.profile.nextExpiry(c, s.now))
		s.scheduleAdvance(class.nextChange)
	}
	empty, noneTolerated := cs.inClusterSets.empty(), cs.tolerated.empty()
	cs.setState(c, after)
	ranges := s.rangesAfter(class, change, before, after)
	if after.tolerated {
		after.baseScore, after.expired = class.profile.baseScore(c, &ranges, after.preferNoSelect, s.now)
	}
	cs.expired.setTo(c.id, after.expired)
	if empty != cs.inClusterSets.empty() || noneTolerated != cs.tolerated.empty() { // another reason for having selected nothing
		class.addAll(affected)
	}
	if ranges != cs.ranges {
		cs.ranges = ranges
		s.scoreCandidates(cs, class.profile)
		class.addAll(affected)
		return
	}
	i := classChange{clusterChange: change, before: before, after: after}
	if i.rankChanged() || i.topologyChanged() {
		i.ranks = s.newRanks(class)
		s.lowerRanks(cs, c, before, i.ranks)
		s.updateRanking(cs, c, before, after)
		s.lowerRanks(cs, c, after, i.ranks)
	}
	for _, p := range class.placements {
		if s.mayAffect(p, cs, &i) {
			affected.add(p)
		}
	}
}

// setState takes over a verdict, but for the seat.
func (cs *candidateSet) setState(c *cluster, after clusterState) {
	cs.counts = nil
	cs.inClusterSets.setTo(c.id, after.inClusterSets)
	cs.setStatus(c, after.filterStatus)
}

// rangesAfter are the spans of the candidates now that one cluster has changed.
func (s *Scheduler) rangesAfter(class *equivalenceClass, change clusterChange, before, after clusterState) resourceRanges {
	cs := class.candidates
	for i, used := range class.profile.usesResource {
		if !used {
			continue
		}
		former, present := change.old.allocatable[i], change.cluster.allocatable[i]
		if before.tolerated && after.tolerated && former == present {
			continue
		}
		if (before.tolerated && cs.ranges[i].isBound(former)) || (after.tolerated && !cs.ranges[i].covers(present)) {
			return s.computeRanges(cs, class.profile)
		}
	}
	return cs.ranges
}

// updateRanking gives a cluster the seat that it is entitled to.
func (s *Scheduler) updateRanking(cs *candidateSet, c *cluster, before, after clusterState) {
	nameRanks := s.clusters.nameRanks
	at, _ := cs.indexOf(c.id)
	index := index32(at)
	if before.tolerated {
		cs.ranking.remove(cs, index, nameRanks)
	}
	if before.tolerated != after.tolerated {
		cs.firstByName = nil
	}
	switch {
	case before.tolerated && !after.tolerated:
		cs.clusterIDs = slices.Delete(cs.clusterIDs, at, at+1)
		cs.baseScores = slices.Delete(cs.baseScores, at, at+1)
		cs.ranking.removeIndex(index)
	case after.tolerated && !before.tolerated:
		cs.clusterIDs = slices.Insert(cs.clusterIDs, at, c.id)
		cs.baseScores = slices.Insert(cs.baseScores, at, after.baseScore)
		cs.ranking.insertIndex(index, s.decisionCounts.of(c.id))
	}
	if after.tolerated {
		cs.baseScores[at] = after.baseScore
		cs.ranking.insert(cs, index, nameRanks)
	}
}

// classChange is what a change does to a class.
type classChange struct {
	clusterChange
	before, after clusterState
	ranks         map[balanceTerm]int
}

// rankChanged tells whether the cluster ranks elsewhere among the candidates, or for another reason.
func (i *classChange) rankChanged() bool {
	reexpired := (i.before.expired || i.after.expired) && i.scoresMayChange() // what counts as 0 may have been 0
	return i.before.tolerated != i.after.tolerated || i.before.baseScore != i.after.baseScore || reexpired
}

// scoresMayChange tells whether the scores may have changed.
func (i *classChange) scoresMayChange() bool { return i.resources || i.score != "" || i.expiry }

// affectsSelected tells whether the cluster stands in any other way for those who have selected it, or for another reason.
func (i *classChange) affectsSelected() bool {
	tainted := i.after.noSelectIfNew || i.after.preferNoSelect
	return i.rankChanged() || i.before.noSelectIfNew != i.after.noSelectIfNew || (tainted && (i.taints || i.expiry)) ||
		(i.after.noSelectIfNew && i.scoresMayChange()) // it has no seat that would tell
}

// mayAffect tells whether an impact may change what a placement selects.
func (s *Scheduler) mayAffect(p *placement, cs *candidateSet, i *classChange) bool {
	candidate := i.before.tolerated || i.after.tolerated
	switch {
	case p.decided.has(i.cluster.id):
		return i.affectsSelected() || (i.topologyChanged() && (len(p.spec.groups) > 0 || len(p.spec.constraints) > 0))
	case !candidate:
		return false
	case len(p.spec.constraints) > 0:
		return i.rankChanged() || i.topologyChanged()
	case !i.rankChanged() && (!i.topologyChanged() || len(p.spec.groups) == 0):
		return false
	case p.spec.limit == unlimited:
		return true
	case p.decided.intersects(cs.noSelectIfNew) && slices.Contains(p.spec.profile.usesResource[:], true):
		return true // its scores may be its own
	}
	return i.ranks[s.balanceTermOf(p)] < p.spec.limit+len(p.ids)
}

func (s *Scheduler) balanceTermOf(p *placement) balanceTerm {
	return balanceTerm{weight: p.spec.balanceWeight, maxCount: s.decisionCounts.maxWithout(p.ids)}
}

// newRanks collects the scales of the placements of a class: they have few in common.
func (s *Scheduler) newRanks(class *equivalenceClass) map[balanceTerm]int {
	ranks := map[balanceTerm]int{}
	for _, p := range class.placements {
		ranks[s.balanceTermOf(p)] = math.MaxInt
	}
	return ranks
}

// lowerRanks lowers reaches to how many clusters rank before one.
func (s *Scheduler) lowerRanks(cs *candidateSet, c *cluster, r clusterState, ranks map[balanceTerm]int) {
	if !r.tolerated {
		return
	}
	cs.ranking.syncBuckets(cs, &s.decisionCounts, s.clusters.nameRanks)
	byName := s.options.TieBreak != TieBreakHash
	for scale, rank := range ranks {
		ranks[scale] = min(rank, cs.ranking.countBefore(cs, s.clusters.nameRanks, c, r.baseScore, s.decisionCounts.of(c.id), scale, byName))
	}
}
