package placement

// decisionCounts has how many decisions the cluster with the most decisions has.
type decisionCounts struct {
	clusters []int // by number of decisions: number of clusters that have so many; 0 is not counted
	max      int
}

// add adds decisions to a cluster, or removes them if by is negative.
func (counts *decisionCounts) add(c *cluster, by int) {
	from := c.decisions
	c.decisions += by
	for c.decisions >= len(counts.clusters) {
		counts.clusters = append(counts.clusters, 0)
	}
	counts.clusters[c.decisions]++
	counts.clusters[from]--
	counts.max = max(counts.max, c.decisions)
	for counts.max > 0 && counts.clusters[counts.max] == 0 {
		counts.max--
	}
}

// maxWithout is the highest number without the decisions of one placement, which are for those clusters.
func (counts *decisionCounts) maxWithout(selected []*cluster) int {
	if counts.max == 0 || counts.clusters[counts.max] > len(selected) {
		return counts.max
	}
	others := counts.clusters[counts.max]
	for _, c := range selected {
		if c.decisions == counts.max {
			others--
		}
	}
	if others == 0 {
		return counts.max - 1 // without the placement, each is one lower
	}
	return counts.max
}
