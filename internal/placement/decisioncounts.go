package placement

// decisionCounts counts the decisions for each cluster, of all placements in all namespaces.
type decisionCounts struct {
	counts       []int32 // by cluster id
	clustersWith []int32 // by count, from 1: number of clusters with that count
	max          int32
}

func (counts *decisionCounts) add(id, by int32) {
	for int(id) >= len(counts.counts) {
		counts.counts = append(counts.counts, 0)
	}
	from := counts.counts[id]
	to := from + by
	counts.counts[id] = to
	for int(to) >= len(counts.clustersWith) {
		counts.clustersWith = append(counts.clustersWith, 0)
	}
	counts.clustersWith[to]++
	counts.clustersWith[from]--
	counts.max = max(counts.max, to)
	for counts.max > 0 && counts.clustersWith[counts.max] == 0 {
		counts.max--
	}
}

func (counts *decisionCounts) of(id int32) int32 {
	if int(id) >= len(counts.counts) {
		return 0
	}
	return counts.counts[id]
}

// maxWithout is the highest count without the decisions of one placement, which are for those clusters.
func (counts *decisionCounts) maxWithout(decided []int32) int32 {
	if counts.max == 0 || int(counts.clustersWith[counts.max]) > len(decided) {
		return counts.max
	}
	others := counts.clustersWith[counts.max]
	for _, id := range decided {
		if counts.of(id) == counts.max {
			others--
		}
	}
	if others == 0 {
		return counts.max - 1 // without the placement, each is one lower
	}
	return counts.max
}
