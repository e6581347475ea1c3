package placement

import (
	"cmp"
	"slices"

	"github.com/capstan-io/capstan/internal/placement/report"
)

// Schedule selects clusters for a placement, as of the last Advance, and remembers them for Steady and Balance. It
// reports false when it knows no such placement.
func (s *Scheduler) Schedule(key Key) (*Result, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.placements[key]
	if p == nil {
		return nil, false
	}
	if p.disabled {
		return &Result{Key: key, Disabled: true}, true
	}
	if p.plan == nil {
		return &Result{Key: key, Misconfigured: p.bad, Selected: len(p.ids), Satisfied: s.satisfied(p, nil, 0, 0)}, true
	}
	result, ids := s.resolve(p)
	result.Changed = s.differs(p, ids)
	if result.Changed {
		s.decide(p, ids)
	}
	return result, true
}

// resolve selects clusters and remembers nothing.
func (s *Scheduler) resolve(p *placement) (*Result, []int32) {
	result := &Result{Key: p.key, Prioritizers: p.plan.prioritizers, ScoreRateLimit: p.plan.scoreEvery}
	result.Funnel.Fleet = s.existing
	if p.class == nil {
		result.Groups = []Group{{}}
		result.Satisfied = s.satisfied(p, nil, 0, 0)
		return result, nil
	}
	s.fleet.order()
	st := s.stand(p.class)
	contest := s.contest(st, p)
	picks := contest.pick()
	result.Selected = len(picks)
	result.Groups = contest.groups(picks)
	result.Satisfied = s.satisfied(p, st, contest.candidates(), len(picks))
	st.count()
	result.Funnel.InClusterSets, result.Funnel.Matched = st.counts.inSets, st.counts.matched
	result.Funnel.Tolerated = contest.candidates()
	result.Funnel.Selected = len(picks)
	if st.counts.expired > 0 {
		result.ExpiredScores = s.names(st.expired)
	}
	ids := make([]int32, len(picks))
	for i := range picks {
		ids[i] = picks[i].id
	}
	return result, ids
}

func (s *Scheduler) differs(p *placement, ids []int32) bool {
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

// ClusterScore is the final score of a candidate (PL-08).
type ClusterScore = report.ClusterScore

// Scores returns the final scores of the candidates of a placement, the first ones by name and most of them at most,
// for events (PL-20). Steady counts what the placement has selected last.
func (s *Scheduler) Scores(key Key, most int) []ClusterScore {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.placements[key]
	if p == nil || p.class == nil {
		return nil
	}
	s.fleet.order()
	contest := s.contest(s.stand(p.class), p)
	picks := contest.totals()
	slices.SortFunc(picks, func(a, b pick) int { return cmp.Compare(s.fleet.ranks[a.id], s.fleet.ranks[b.id]) })
	scores := make([]ClusterScore, min(most, len(picks)))
	for i := range scores {
		scores[i] = contest.score(picks[i])
	}
	return scores
}

// score is the total of a pick as people see it.
func (c *contest) score(p pick) ClusterScore {
	total := p.total
	if c.st.avoided.has(p.id) {
		total += penalty
	}
	return ClusterScore{ClusterName: c.fleet.clusters[p.id].name, Score: total}
}
