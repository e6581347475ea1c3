package placement

import "github.com/capstan-io/capstan/internal/placement/report"

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
		return &Result{Disabled: true}
	}
	p.scheduled = true
	result, _ := s.runCycle(p)
	s.snapshot.setGroups(p, result.Groups)
	return result
}

// runCycle selects clusters without recording the decision. There is no cycle for a placement that keeps its decisions.
func (s *Scheduler) runCycle(p *placement) (*Result, *cycle) {
	if p.spec == nil {
		return s.snapshot.misconfiguredResult(p, p.misconfiguration), nil
	}
	cs := &candidateSet{} // of a placement without a cluster set
	if p.class != nil {
		cs = s.classes.candidatesOf(p.class)
		switch {
		case p.class.overBudget():
			return s.snapshot.misconfiguredResult(p, s.evaluations.overBudget()), nil
		case p.class.pending():
			return s.snapshot.pendingResult(p), nil
		}
	}
	c := s.framework.newCycle(cs, p)
	selected := c.selectClusters()
	groups := c.groups(selected)
	return &Result{
		Disabled:       p.disabled,
		Groups:         groups,
		Selected:       len(selected),
		Satisfied:      s.snapshot.satisfiedCondition(p, cs, c.candidateCount(), len(selected)),
		Scores:         c.firstScores(),
		ExpiredScores:  c.expiredScores(),
		ScoreRateLimit: p.spec.scoreRateLimit,
		Funnel: Funnel{
			Fleet: s.snapshot.clusterCount, InClusterSets: cs.inClusterSets, Matched: len(cs.matched), Tolerated: c.candidateCount(),
			Selected: len(selected),
		},
	}, c
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
