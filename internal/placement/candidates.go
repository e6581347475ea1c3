package placement

import (
	"cmp"
	"slices"
	"time"
)

// candidateSet is the cached result of filtering and scoring all clusters for an equivalence class.
type candidateSet struct {
	inClusterSets int         // number of members of the bound cluster sets that the placements select from
	matched       []candidate // those of them that match the predicates, by name
	tolerated     int         // number of those of matched that are candidates of all placements of the class

	ranges resourceRanges // of the candidates of all placements of the class
}

// candidate is a cluster that matches the predicates of a class.
type candidate struct {
	cluster *cluster
	score   int64 // the weighted sum of scorers; Balance and Steady are not in it
	taintStatus
	expired bool // whether an AddOnPlacementScore that the profile uses has expired
}

// taintStatus is what the taints of a cluster mean to a class.
type taintStatus struct {
	tolerated      bool // no taint keeps the cluster out
	noSelectIfNew  bool // it has an untolerated NoSelectIfNew taint: it is a candidate of placements that have selected it
	preferNoSelect bool // it has an untolerated PreferNoSelect taint: it ranks last
}

// size is the memory that the set takes, counted in candidates.
func (cs *candidateSet) size() int { return cap(cs.matched) }

// find returns the position of a cluster in matched, or where it would be.
func (cs *candidateSet) find(c *cluster) (at int, found bool) {
	return slices.BinarySearchFunc(cs.matched, c.name, func(m candidate, name string) int { return cmp.Compare(m.cluster.name, name) })
}

// get returns the candidate of a cluster; nil if the cluster does not match the predicates.
func (cs *candidateSet) get(c *cluster) *candidate {
	if at, found := cs.find(c); found {
		return &cs.matched[at]
	}
	return nil
}

// selectedOnly returns the clusters that are candidates of a placement only because it has selected them: they have a NoSelectIfNew taint.
func (cs *candidateSet) selectedOnly(p *placement) []*cluster {
	var only []*cluster
	for _, c := range p.selected {
		if m := cs.get(c); m != nil && m.noSelectIfNew {
			only = append(only, c)
		}
	}
	return only
}

// buildCandidates filters and scores all clusters for a class as of now. next is when a toleration or a score expires at the earliest.
// There are no candidates while the class is pending.
func (f *framework) buildCandidates(class *equivalenceClass) (cs *candidateSet, next time.Time) {
	if class.profile.cel {
		f.prepareEvaluation(class)
	}
	cs, next = f.filterPredicates(class)
	if class.pending() {
		return cs, next
	}
	f.filterTaints(cs, class.profile)
	cs.ranges = cs.computeRanges(class.profile)
	f.scoreCandidates(cs, class.profile)
	return cs, next
}

// filterPredicates finds the members of the cluster sets that match the predicates.
func (f *framework) filterPredicates(class *equivalenceClass) (cs *candidateSet, next time.Time) {
	defer f.timed(PluginFilter, FilterPredicate)()
	cs = &candidateSet{}
	for c := range f.members(class) {
		cs.inClusterSets++
		next = earliest(next, class.profile.nextExpiry(c, f.now))
		if class.matches(c, f.now) {
			cs.matched = append(cs.matched, candidate{cluster: c})
		}
	}
	return cs, next
}

// matches reports whether a cluster matches the predicates. Results of CEL expressions are those that are known.
func (class *equivalenceClass) matches(c *cluster, now time.Time) bool {
	if class.evaluation != nil {
		return class.evaluation.result(c).matched
	}
	return class.profile.match(c, now, nil)
}

// filterTaints classifies the clusters that match the predicates by their taints.
func (f *framework) filterTaints(cs *candidateSet, profile *profile) {
	defer f.timed(PluginFilter, FilterTaintToleration)()
	for i := range cs.matched {
		m := &cs.matched[i]
		if m.taintStatus = profile.filterTaints(m.cluster, f.now); m.tolerated {
			cs.tolerated++
		}
	}
}

// scoreCandidates computes the scores of all candidates.
func (f *framework) scoreCandidates(cs *candidateSet, profile *profile) {
	for i := range cs.matched {
		cs.matched[i].score, cs.matched[i].expired = 0, false
	}
	for i := range profile.scorers {
		f.runScorer(cs, &profile.scorers[i])
	}
}

// runScorer adds the weighted scores of one scorer.
func (f *framework) runScorer(cs *candidateSet, by *scorer) {
	defer f.timed(PluginPrioritizer, by.metricName())()
	in := &scoreInput{now: f.now, ranges: cs.ranges}
	for i := range cs.matched {
		m := &cs.matched[i]
		score, expired := by.plugin.score(m.cluster, in)
		m.score += by.weight * score
		m.expired = m.expired || expired
	}
}

// weightedScore is the weighted sum of the scores of a cluster. expired reports whether one of them has expired.
func weightedScore(scorers []scorer, c *cluster, in *scoreInput) (score int64, expired bool) {
	for i := range scorers {
		own, stale := scorers[i].plugin.score(c, in)
		score += scorers[i].weight * own
		expired = expired || stale
	}
	return score, expired
}
