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
	result := s.schedule(p)
	result.UID, result.Generation = p.object.UID, p.object.Generation
	return result, true
}

func (s *Scheduler) schedule(p *placement) *Result {
	if p.disabled {
		return &Result{Key: p.key, Disabled: true}
	}
	p.scheduled = true
	if p.plan == nil {
		return s.broken(p, p.bad)
	}
	result, ids := s.resolve(p)
	if result.Misconfigured != nil || result.Pending {
		return result
	}
	result.Changed = s.differs(p, ids)
	if result.Changed {
		s.decide(p, ids)
	}
	p.ids, p.parts = ids, partsOf(result.Groups)
	return result
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
	if p.class.tooDear() {
		return s.broken(p, s.tooDear()), p.ids
	}
	if p.class.pending() {
		return s.waiting(p), p.ids
	}
	contest := s.contest(st, p)
	picks := contest.pick()
	result.Selected = len(picks)
	result.Scores = contest.scores()
	result.Groups = contest.groups(picks)
	result.Satisfied = s.satisfied(p, st, contest.candidates(), len(picks))
	result.ExpiredScores = contest.expired()
	st.count()
	result.Funnel.InClusterSets, result.Funnel.Matched = st.counts.inSets, st.counts.matched
	result.Funnel.Tolerated = contest.candidates()
	result.Funnel.Selected = len(picks)
	ids := make([]int32, len(picks))
	for i := range picks {
		ids[i] = picks[i].id
	}
	return result, ids
}

// expired names the candidates of which a score has expired.
func (c *contest) expired() []string {
	expired := c.st.expired
	for _, id := range c.kept {
		if _, stale := c.plan.selection.rate(c.fleet.clusters[id], c.among, false, c.now); stale {
			expired = slices.Clone(expired)
			expired.set(id)
		}
	}
	if expired.empty() {
		return nil
	}
	return c.names(expired)
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

// ClusterScore is the final score of a candidate.
type ClusterScore = report.ClusterScore

// scoresText is how many characters the event with the scores has room for.
const scoresText = 1000

// scores are those of the first candidates by name.
func (c *contest) scores() []ClusterScore {
	seats := c.firstSeats(c.st)
	scores := make([]ClusterScore, 0, len(seats)+len(c.kept))
	for _, seat := range seats {
		scores = append(scores, c.score(c.seated(int(seat))))
	}
	if len(c.kept) > 0 {
		for _, id := range c.kept {
			scores = append(scores, c.score(c.total(id, c.key(id))))
		}
		slices.SortFunc(scores, func(a, b ClusterScore) int { return cmp.Compare(a.ClusterName, b.ClusterName) })
	}
	return scores
}

// firstSeats are the seats of the clusters that come first by name, as many as the text has room for.
func (s *Scheduler) firstSeats(st *standing) []int32 {
	if st.first != nil {
		return st.first
	}
	sorted := s.fleet.sorted
	if len(st.ids) < len(sorted)/16 { // few, which are hard to find among all
		sorted = slices.SortedFunc(slices.Values(st.ids), func(a, b int32) int { return cmp.Compare(s.fleet.ranks[a], s.fleet.ranks[b]) })
	}
	st.first = []int32{}
	for text, at := 0, 0; text < scoresText && at < len(sorted); at++ {
		if seat, seated := st.seat(sorted[at]); seated {
			st.first = append(st.first, int32(seat))
			text += len(s.fleet.clusters[sorted[at]].name) + len(":0 ")
		}
	}
	return st.first
}

// score is the total of a pick as people see it.
func (c *contest) score(p pick) ClusterScore {
	total := p.total
	if c.st.avoided.has(p.id) {
		total += penalty
	}
	return ClusterScore{ClusterName: c.fleet.clusters[p.id].name, Score: total}
}
