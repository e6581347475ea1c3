package placement

import (
	"math"
	"slices"
)

// updateClass updates the candidates of a class after one cluster has changed, and adds the placements of the class whose selection may
// change to affected. These are:
//
//   - placements that have selected the cluster, if its status or score is another;
//   - placements for which the cluster ranks high enough to be selected, before or after the change. A cluster cannot be selected if as
//     many clusters rank before it as the placement selects, plus those that it has selected already, whose scores include Steady;
//   - all, if the change affects the scores of other clusters (ResourceAllocatable);
//   - placements with spread constraints or decision groups, if labels or claims have changed;
//   - all, if the candidates were discarded. Until one is scheduled, all are still to be scheduled, and further events add none.
func (cc *classCache) updateClass(class *equivalenceClass, change clusterChange, affected affected) {
	c, cs := change.cluster, class.candidates
	if !change.celResult {
		cc.updateEvaluation(class, c)
	}
	if cs == nil {
		if class.discarded && !class.overBudget() {
			class.discarded = false
			class.addAll(affected)
		}
		return
	}
	was, is := class.has(&change.old), class.has(c)
	if !was && !is {
		return
	}
	empty := cs.inClusterSets == 0
	cs.inClusterSets += asInt(is) - asInt(was)
	if class.overBudget() || class.pending() {
		return
	}
	if empty != (cs.inClusterSets == 0) { // the condition PlacementSatisfied has another reason
		class.addAll(affected)
	}
	size := cs.size()
	cc.updateCandidate(class, change, affected)
	cc.cachedCandidates += cs.size() - size
}

func asInt(one bool) int {
	if one {
		return 1
	}
	return 0
}

// updateCandidate filters and scores the cluster again.
func (cc *classCache) updateCandidate(class *equivalenceClass, change clusterChange, affected affected) {
	cs := class.candidates
	noneTolerated := cs.tolerated == 0
	before, after := cc.framework.replace(class, change.cluster)
	if noneTolerated != (cs.tolerated == 0) { // the condition PlacementSatisfied has another reason
		class.addAll(affected)
	}
	if before.tolerated || after.tolerated { // otherwise the ranges, which are of tolerated candidates, stay
		if ranges := cs.computeRanges(class.profile); ranges != cs.ranges {
			cs.ranges = ranges
			cc.framework.scoreCandidates(cs, class.profile)
			class.addAll(affected)
			return
		}
	}
	e := &classChange{clusterChange: change, before: before, after: after, bestRanks: map[balanceTerm]int{}}
	e.selectedOnly = (e.rankChanged() || e.topologyChanged()) &&
		slices.ContainsFunc(cs.matched, func(m candidate) bool { return m.noSelectIfNew })
	for _, p := range class.placements {
		if cc.framework.mayAffect(p, cs, e) {
			affected.add(p)
		}
	}
}

// replace filters and scores a cluster with the ranges as they are, and replaces its candidate. A cluster that does not match the
// predicates has a candidate without a status.
func (f *framework) replace(class *equivalenceClass, c *cluster) (before, after candidate) {
	cs, profile := class.candidates, class.profile
	after = candidate{cluster: c}
	matches := false
	if class.has(c) {
		class.nextChange = earliest(class.nextChange, profile.nextExpiry(c, f.now))
		f.scheduleAdvance(class.nextChange)
		matches = class.matches(c, f.now)
	}
	if matches {
		after.taintStatus = profile.filterTaints(c, f.now)
		after.score, after.expired = weightedScore(profile.scorers, c, &scoreInput{now: f.now, ranges: cs.ranges})
	}
	at, matched := cs.find(c)
	switch {
	case matched && matches:
		before, cs.matched[at] = cs.matched[at], after
	case matched:
		before = cs.matched[at]
		cs.matched = slices.Delete(cs.matched, at, at+1)
	case matches:
		cs.matched = slices.Insert(cs.matched, at, after)
	}
	cs.tolerated += asInt(after.tolerated) - asInt(before.tolerated)
	return before, after
}

// classChange is the effect of a change of a cluster on a class.
type classChange struct {
	clusterChange
	before, after candidate
	bestRanks     map[balanceTerm]int // cache of bestRank
	selectedOnly  bool                // whether some clusters are candidates only of placements that have selected them
}

// rankChanged reports whether the rank of the cluster, or the reason for it, may have changed.
func (e *classChange) rankChanged() bool {
	if !e.before.tolerated && !e.after.tolerated {
		return false
	}
	// An expired score counts as 0, which it may have been before.
	reexpired := (e.before.expired || e.after.expired) && e.scoresMayChange()
	return e.before.tolerated != e.after.tolerated || e.before.preferNoSelect != e.after.preferNoSelect ||
		e.before.score != e.after.score || reexpired
}

// scoresMayChange reports whether the scores of the cluster may have changed.
func (e *classChange) scoresMayChange() bool {
	return e.resources || e.score != "" || e.expiry
}

// affectsSelected reports whether placements that have selected the cluster are affected, if only by another reason.
func (e *classChange) affectsSelected() bool {
	tainted := e.after.noSelectIfNew || e.after.preferNoSelect
	return e.rankChanged() || e.before.noSelectIfNew != e.after.noSelectIfNew || (tainted && (e.taints || e.expiry)) ||
		(e.after.noSelectIfNew && e.scoresMayChange())
}

// mayAffect reports whether a change may affect what a placement selects.
func (f *framework) mayAffect(p *placement, cs *candidateSet, e *classChange) bool {
	isCandidate := e.before.tolerated || e.after.tolerated
	switch {
	case p.has(e.cluster):
		return e.affectsSelected() || (e.topologyChanged() && (len(p.spec.groups) > 0 || len(p.spec.constraints) > 0))
	case !isCandidate:
		return false
	case len(p.spec.constraints) > 0:
		return e.rankChanged() || e.topologyChanged()
	case !e.rankChanged() && (!e.topologyChanged() || len(p.spec.groups) == 0):
		return false
	case p.spec.limit == unlimited:
		return true
	case e.selectedOnly && p.spec.profile.readsResources() && len(cs.selectedOnly(p)) > 0:
		return true // the placement may have other resource ranges than its class
	}
	return f.bestRank(cs, e, f.balanceTermOf(p)) < p.spec.limit+len(p.selected)
}

// bestRank returns the rank of the cluster before or after the change, whichever is better, from 0. Most placements of a class share a few
// terms.
func (f *framework) bestRank(cs *candidateSet, e *classChange, term balanceTerm) int {
	best, known := e.bestRanks[term]
	if known {
		return best
	}
	best = math.MaxInt
	for _, m := range []candidate{e.before, e.after} {
		if m.tolerated {
			best = min(best, f.countBefore(cs, m, term))
		}
	}
	e.bestRanks[term] = best
	return best
}

// countBefore counts the other candidates that rank before one. With TieBreakHash, those of the same score do not count.
func (f *framework) countBefore(cs *candidateSet, of candidate, term balanceTerm) int {
	rank := scoredCluster{cluster: of.cluster, preferNoSelect: of.preferNoSelect, score: of.score + term.score(of.cluster)}
	n := 0
	for i := range cs.matched {
		m := &cs.matched[i]
		if !m.tolerated || m.cluster == of.cluster {
			continue
		}
		other := scoredCluster{cluster: m.cluster, preferNoSelect: m.preferNoSelect, score: m.score + term.score(m.cluster)}
		order := compareScores(other, rank)
		if order < 0 || (order == 0 && f.options.TieBreak != TieBreakHash && m.cluster.name < of.cluster.name) {
			n++
		}
	}
	return n
}
