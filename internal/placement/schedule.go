package placement

import (
	"cmp"
	"slices"

	"github.com/capstan-io/capstan/internal/placement/report"
)

// Schedule selects clusters for a placement as of the last Advance, and records the decision for Steady and Balance. It reports false if
// there is no such placement.
func (s *Scheduler) Schedule(key Key) (*Result, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.placements[key]
	if p == nil {
		return nil, false
	}
	result := s.schedule(p)
	result.UID, result.Generation = p.object.UID, p.object.Generation
	return result, true
}

func (s *Scheduler) schedule(p *placement) *Result {
	if p.disabled {
		return &Result{Key: p.key, Disabled: true}
	}
	p.scheduled = true
	if p.spec == nil {
		return s.misconfiguredResult(p, p.misconfiguration)
	}
	result, ids := s.runCycle(p)
	if result.Misconfigured != nil || result.Pending {
		return result
	}
	result.Changed = s.decisionChanged(p, ids)
	if result.Changed {
		s.setDecision(p, ids)
	}
	p.ids, p.groups = ids, groupRecordsOf(result.Groups)
	return result
}

// runCycle selects clusters without recording the decision.
func (s *Scheduler) runCycle(p *placement) (*Result, []int32) {
	result := &Result{Key: p.key, Prioritizers: p.spec.prioritizers, ScoreRateLimit: p.spec.scoreRateLimit}
	result.Funnel.Fleet = s.clusterCount
	if p.class == nil {
		result.Groups = []Group{{}}
		result.Satisfied = s.satisfiedCondition(p, nil, 0, 0)
		return result, nil
	}
	s.clusters.updateRanks()
	cs := s.candidatesOf(p.class)
	if p.class.overBudget() {
		return s.misconfiguredResult(p, s.overBudget()), p.ids
	}
	if p.class.pending() {
		return s.pendingResult(p), p.ids
	}
	cycle := s.newCycle(cs, p)
	selected := cycle.selectClusters()
	result.Selected = len(selected)
	result.Scores = cycle.firstScores()
	result.Groups = cycle.groups(selected)
	result.Satisfied = s.satisfiedCondition(p, cs, cycle.candidateCount(), len(selected))
	result.ExpiredScores = cycle.expiredScores()
	cs.updateCounts()
	result.Funnel.InClusterSets, result.Funnel.Matched = cs.counts.inClusterSets, cs.counts.matched
	result.Funnel.Tolerated = cycle.candidateCount()
	result.Funnel.Selected = len(selected)
	ids := make([]int32, len(selected))
	for i := range selected {
		ids[i] = selected[i].id
	}
	return result, ids
}

// expiredScores names the candidates with an expired AddOnPlacementScore.
func (c *cycle) expiredScores() []string {
	expired := c.candidates.expired
	for _, id := range c.noSelectIfNew {
		if _, stale := c.spec.profile.baseScore(c.clusters.byID[id], c.ranges, false, c.now); stale {
			expired = slices.Clone(expired)
			expired.set(id)
		}
	}
	if expired.empty() {
		return nil
	}
	return c.names(expired)
}

func (s *Scheduler) decisionChanged(p *placement, ids []int32) bool {
	if len(ids) != len(p.ids) {
		return true
	}
	for _, id := range ids {
		if !p.decided.has(id) {
			return true
		}
	}
	return false
}

// ClusterScore is the final score of a candidate.
type ClusterScore = report.ClusterScore

// scoresTextLength is how many characters the event with the scores has.
const scoresTextLength = 1000

// firstScores returns the scores of the first candidates by name.
func (c *cycle) firstScores() []ClusterScore {
	candidates := c.firstCandidates(c.candidates)
	scores := make([]ClusterScore, 0, len(candidates)+len(c.noSelectIfNew))
	for _, index := range candidates {
		scores = append(scores, c.clusterScore(c.candidateAt(int(index))))
	}
	if len(c.noSelectIfNew) > 0 {
		for _, id := range c.noSelectIfNew {
			scores = append(scores, c.clusterScore(c.newCandidate(id, c.baseScore(id))))
		}
		slices.SortFunc(scores, func(a, b ClusterScore) int { return cmp.Compare(a.ClusterName, b.ClusterName) })
	}
	return scores
}

// firstCandidates returns the indexes of the first candidates by name, as many as fit the event with the scores.
func (s *Scheduler) firstCandidates(cs *candidateSet) []int32 {
	if cs.firstByName != nil {
		return cs.firstByName
	}
	sorted := s.clusters.sortedByName
	if len(cs.clusterIDs) < len(sorted)/16 { // sorting them is cheaper than to look for them among all clusters
		sorted = slices.SortedFunc(slices.Values(cs.clusterIDs), s.clusters.compareRanks)
	}
	cs.firstByName = []int32{}
	for text, at := 0, 0; text < scoresTextLength && at < len(sorted); at++ {
		if index, found := cs.indexOf(sorted[at]); found {
			cs.firstByName = append(cs.firstByName, index32(index))
			text += len(s.clusters.byID[sorted[at]].name) + len(":0 ")
		}
	}
	return cs.firstByName
}

// clusterScore is the score of a candidate as users see it, without preferNoSelectPenalty.
func (c *cycle) clusterScore(p candidate) ClusterScore {
	total := p.score
	if c.candidates.preferNoSelect.has(p.id) {
		total += preferNoSelectPenalty
	}
	return ClusterScore{ClusterName: c.clusters.byID[p.id].name, Score: total}
}
