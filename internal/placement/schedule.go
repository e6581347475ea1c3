package placement

import (
	"maps"

	"github.com/capstan-io/capstan/internal/placement/report"
)

// Schedule selects clusters for a placement as of the last Advance, and records the decision for Steady and Balance. It reports false if
// there is no such placement.
func (s *Scheduler) Schedule(key Key) (*Result, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.snapshot.placements[key]
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
		return s.snapshot.misconfiguredResult(p, p.misconfiguration)
	}
	result, selected := s.runCycle(p)
	if result.Misconfigured != nil || result.Pending {
		return result
	}
	result.Changed = !maps.Equal(setOf(p.selected), setOf(selected))
	s.snapshot.setDecision(p, selected)
	p.groups = groupRecordsOf(result.Groups)
	return result
}

// runCycle selects clusters without recording the decision.
func (s *Scheduler) runCycle(p *placement) (*Result, []*cluster) {
	result := &Result{Key: p.key, Prioritizers: p.spec.prioritizers, ScoreRateLimit: p.spec.scoreRateLimit}
	result.Funnel.Fleet = s.snapshot.clusterCount
	if p.class == nil {
		result.Groups = []Group{{}}
		result.Satisfied = s.snapshot.satisfiedCondition(p, nil, 0, 0)
		return result, nil
	}
	cs := s.classes.candidatesOf(p.class)
	if p.class.overBudget() {
		return s.snapshot.misconfiguredResult(p, s.evaluations.overBudget()), p.selected
	}
	if p.class.pending() {
		return p.pendingResult(), p.selected
	}
	cycle := s.framework.newCycle(cs, p)
	best := cycle.selectClusters()
	result.Selected = len(best)
	result.Scores = cycle.firstScores()
	result.Groups = cycle.groups(best)
	result.Satisfied = s.snapshot.satisfiedCondition(p, cs, cycle.candidateCount(), len(best))
	result.ExpiredScores = cycle.expiredScores()
	result.Funnel.InClusterSets, result.Funnel.Matched = cs.inClusterSets, len(cs.matched)
	result.Funnel.Tolerated = cycle.candidateCount()
	result.Funnel.Selected = len(best)
	selected := make([]*cluster, len(best))
	for i := range best {
		selected[i] = best[i].cluster
	}
	return result, selected
}

// expiredScores names the candidates with an expired AddOnPlacementScore.
func (c *cycle) expiredScores() []string {
	var names []string
	for m := range c.feasible() {
		if m.expired {
			names = append(names, m.cluster.name)
		}
	}
	return names
}

// setOf returns clusters as a set.
func setOf(clusters []*cluster) map[*cluster]bool {
	set := make(map[*cluster]bool, len(clusters))
	for _, c := range clusters {
		set[c] = true
	}
	return set
}

// ClusterScore is the final score of a candidate.
type ClusterScore = report.ClusterScore

// scoresTextLength is how many characters the event with the scores has.
const scoresTextLength = 1000

// firstScores returns the scores of the first candidates by name, as many as fit the event with the scores.
func (c *cycle) firstScores() []ClusterScore {
	scores, text := []ClusterScore{}, 0
	for scored := range c.scored() {
		if text >= scoresTextLength {
			break
		}
		scores = append(scores, scored.clusterScore())
		text += len(scored.cluster.name) + len(":0 ")
	}
	return scores
}

func (p scoredCluster) clusterScore() ClusterScore {
	return ClusterScore{ClusterName: p.cluster.name, Score: p.score}
}
