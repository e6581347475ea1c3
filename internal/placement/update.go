package placement

import (
	"math"
	"slices"
)

// clusterState is what a candidateSet says of one cluster.
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

// updateClass updates the candidates of a class after one cluster has changed, and adds the placements of the class whose selection may
// change to affected. These are:
//
//   - placements that have selected the cluster, if its status or score is another;
//   - placements for which the cluster ranks high enough to be selected, before or after the change. A cluster cannot be selected if as
//     many clusters rank before it as the placement selects, plus those that it has selected already, whose scores include Steady;
//   - all, if the change affects the scores of other clusters (ResourceAllocatable);
//   - placements with spread constraints or decision groups, if labels or claims have changed.
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
	s.updateCandidate(class, change, affected)
}

// updateCandidate is updateClass for a class whose candidates are cached.
func (s *Scheduler) updateCandidate(class *equivalenceClass, change clusterChange, affected affected) {
	c, cs := change.cluster, class.candidates
	s.clusters.updateRanks()
	before, after := cs.stateOf(c), s.filterCluster(class, c)
	if !before.inClusterSets && !after.inClusterSets {
		return
	}
	empty, noneTolerated := cs.inClusterSets.empty(), cs.tolerated.empty()
	cs.setState(c, after)
	ranges := s.rangesAfter(class, change, before, after)
	if after.tolerated {
		after.baseScore, after.expired = class.profile.baseScore(c, &ranges, after.preferNoSelect, s.now)
	}
	cs.expired.setTo(c.id, after.expired)
	if empty != cs.inClusterSets.empty() || noneTolerated != cs.tolerated.empty() { // the condition PlacementSatisfied has another reason
		class.addAll(affected)
	}
	if ranges != cs.ranges {
		cs.ranges = ranges
		s.scoreCandidates(cs, class.profile)
		class.addAll(affected)
		return
	}
	s.updateRanks(class, &classChange{clusterChange: change, before: before, after: after}, affected)
}

// filterCluster runs the filters of a class on a cluster. The state that it returns has no scores.
func (s *Scheduler) filterCluster(class *equivalenceClass, c *cluster) clusterState {
	state := clusterState{inClusterSets: class.has(c)}
	if state.inClusterSets {
		state.filterStatus = class.filter(c, s.now)
		class.nextChange = earliest(class.nextChange, class.profile.nextExpiry(c, s.now))
		s.scheduleAdvance(class.nextChange)
	}
	return state
}

// updateRanks updates the rank of the cluster, and adds the placements for which that, or another change of the cluster, matters.
func (s *Scheduler) updateRanks(class *equivalenceClass, e *classChange, affected affected) {
	c, cs := e.cluster, class.candidates
	if e.rankChanged() || e.topologyChanged() {
		e.ranks = s.newRanks(class)
		s.lowerRanks(cs, c, e.before, e.ranks)
		cs.setScore(c, e.before, e.after)
		s.lowerRanks(cs, c, e.after, e.ranks)
	}
	for _, p := range class.placements {
		if s.mayAffect(p, cs, e) {
			affected.add(p)
		}
	}
}

// setState sets the results of the filters, but not the rank.
func (cs *candidateSet) setState(c *cluster, after clusterState) {
	cs.counts = nil
	cs.inClusterSets.setTo(c.id, after.inClusterSets)
	cs.setStatus(c, after.filterStatus)
}

// rangesAfter returns the ranges of the candidates after one cluster has changed.
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

// setScore sets the base score of a cluster that has changed, and adds or removes its index.
func (cs *candidateSet) setScore(c *cluster, before, after clusterState) {
	at, _ := cs.indexOf(c.id)
	switch {
	case before.tolerated && !after.tolerated:
		cs.clusterIDs = slices.Delete(cs.clusterIDs, at, at+1)
		cs.baseScores = slices.Delete(cs.baseScores, at, at+1)
		cs.firstByName = nil
	case after.tolerated && !before.tolerated:
		cs.clusterIDs = slices.Insert(cs.clusterIDs, at, c.id)
		cs.baseScores = slices.Insert(cs.baseScores, at, after.baseScore)
		cs.firstByName = nil
	case after.tolerated:
		cs.baseScores[at] = after.baseScore
	}
}

// classChange is the effect of a change of a cluster on a class.
type classChange struct {
	clusterChange
	before, after clusterState
	ranks         map[balanceTerm]int
}

// rankChanged tells whether the rank of the cluster, or the reason for it, may have changed.
func (e *classChange) rankChanged() bool {
	// An expired score counts as 0, which it may have been before.
	reexpired := (e.before.expired || e.after.expired) && e.scoresMayChange()
	return e.before.tolerated != e.after.tolerated || e.before.baseScore != e.after.baseScore || reexpired
}

// scoresMayChange tells whether the scores of the cluster may have changed.
func (e *classChange) scoresMayChange() bool {
	return e.resources || e.score != "" || e.expiry
}

// affectsSelected tells whether placements that have selected the cluster are affected, if only by another reason.
func (e *classChange) affectsSelected() bool {
	tainted := e.after.noSelectIfNew || e.after.preferNoSelect
	return e.rankChanged() || e.before.noSelectIfNew != e.after.noSelectIfNew || (tainted && (e.taints || e.expiry)) ||
		(e.after.noSelectIfNew && e.scoresMayChange()) // its score is not in the candidateSet
}

// mayAffect tells whether a change may affect what a placement selects.
func (s *Scheduler) mayAffect(p *placement, cs *candidateSet, e *classChange) bool {
	candidate := e.before.tolerated || e.after.tolerated
	switch {
	case p.decided.has(e.cluster.id):
		return e.affectsSelected() || (e.topologyChanged() && (len(p.spec.groups) > 0 || len(p.spec.constraints) > 0))
	case !candidate:
		return false
	case len(p.spec.constraints) > 0:
		return e.rankChanged() || e.topologyChanged()
	case !e.rankChanged() && (!e.topologyChanged() || len(p.spec.groups) == 0):
		return false
	case p.spec.limit == unlimited:
		return true
	case p.decided.intersects(cs.noSelectIfNew) && slices.Contains(p.spec.profile.usesResource[:], true):
		return true // the placement may have other resource ranges than its class
	}
	return e.ranks[s.balanceTermOf(p)] < p.spec.limit+len(p.ids)
}

// newRanks has an entry for each balanceTerm of the placements of a class; most of them share a few.
func (s *Scheduler) newRanks(class *equivalenceClass) map[balanceTerm]int {
	ranks := map[balanceTerm]int{}
	for _, p := range class.placements {
		ranks[s.balanceTermOf(p)] = math.MaxInt
	}
	return ranks
}

// lowerRanks sets each entry to the number of candidates that rank before the cluster, if that is lower.
func (s *Scheduler) lowerRanks(cs *candidateSet, c *cluster, r clusterState, ranks map[balanceTerm]int) {
	if !r.tolerated {
		return
	}
	for term, rank := range ranks {
		ranks[term] = min(rank, s.countBefore(cs, c, r.baseScore, term))
	}
}

// countBefore counts the candidates that rank before a cluster of a base score. With TieBreakHash, those of the same score do not count.
func (s *Scheduler) countBefore(cs *candidateSet, c *cluster, baseScore int64, term balanceTerm) int {
	score := baseScore + term.score(s.decisionCounts.of(c.id))
	n := 0
	for index, id := range cs.clusterIDs {
		other := cs.baseScores[index] + term.score(s.decisionCounts.of(id))
		byName := s.options.TieBreak != TieBreakHash && s.clusters.compareRanks(id, c.id) < 0
		if other > score || (other == score && byName) {
			n++
		}
	}
	return n
}
