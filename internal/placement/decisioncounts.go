package placement

// decisionCounts counts the decisions for each cluster, of all placements in all namespaces.
type decisionCounts struct {
	counts       []int32 // by cluster id
	clustersWith []int32 // by count, from 1: number of clusters with that count
	max          int32

	// changes are the clusters whose counts changed, the latest last, by which rankings are kept up to date. droppedChanges is how
	// many were removed from its front.
	changes        []int32
	droppedChanges int
}

// maxChanges bounds the length of changes. A ranking that is further behind is built again.
const maxChanges = 1 << 14

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
	if len(counts.changes) == maxChanges {
		counts.droppedChanges += maxChanges / 2
		counts.changes = append(counts.changes[:0], counts.changes[maxChanges/2:]...)
	}
	counts.changes = append(counts.changes, id)
}

func (counts *decisionCounts) of(id int32) int32 {
	if int(id) >= len(counts.counts) {
		return 0
	}
	return counts.counts[id]
}

// position is the position behind the last change.
func (counts *decisionCounts) position() int { return counts.droppedChanges + len(counts.changes) }

// changesSince returns the clusters whose counts changed after a position. It reports false if some were dropped.
func (counts *decisionCounts) changesSince(position int) ([]int32, bool) {
	if position < counts.droppedChanges {
		return nil, false
	}
	return counts.changes[position-counts.droppedChanges:], true
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

// balanceScore is the score of Balance: 100 for a cluster without decisions, -100 for one with the highest count.
func balanceScore(count, highest int32) int64 {
	if count == 0 || highest == 0 {
		return 100
	}
	return 2 * int64(100*(0.5-float64(count)/float64(highest)))
}
