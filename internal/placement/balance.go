package placement

// balanceTerm is what Balance adds to the score of a cluster for one placement: weight times a score that depends on the number of
// decisions. maxCount is the highest number of decisions of any cluster, without those of the placement.
type balanceTerm struct {
	weight   int64
	maxCount int
}

func (b balanceTerm) score(count int) int64 {
	if b.weight == 0 {
		return 0
	}
	return b.weight * balanceScore(count, b.maxCount)
}

// balanceScore is the score of Balance: 100 for a cluster without decisions, -100 for one with the highest count.
func balanceScore(count, highest int) int64 {
	if count == 0 || highest == 0 {
		return 100
	}
	return 2 * int64(100*(0.5-float64(count)/float64(highest)))
}

func (s *Scheduler) balanceTermOf(p *placement) balanceTerm {
	return balanceTerm{weight: p.spec.balanceWeight, maxCount: s.decisionCounts.maxWithout(p.selected)}
}
