package placement

// balance prefers clusters with few decisions of other placements.
type balance struct{}

func (balance) score(c *cluster, in *scoreInput) (score int64, expired bool) {
	return balanceScore(in.otherDecisions(c), in.maxDecisions), false
}

// balanceScore is 100 for a cluster without decisions, -100 for one with the highest number.
func balanceScore(decisions, highest int) int64 {
	if decisions == 0 || highest == 0 {
		return 100
	}
	return 2 * int64(100*(0.5-float64(decisions)/float64(highest)))
}

// balanceTerm is what Balance adds to the score of a cluster that the placement has not selected. maxDecisions is the highest number of
// decisions of any cluster, without those of the placement.
type balanceTerm struct {
	weight       int64
	maxDecisions int
}

func (b balanceTerm) score(c *cluster) int64 {
	return b.weight * balanceScore(c.decisions, b.maxDecisions)
}

func (sn *snapshot) balanceTermOf(p *placement) balanceTerm {
	return balanceTerm{weight: p.spec.balanceWeight, maxDecisions: sn.decisionCounts.maxWithout(p.selected)}
}
