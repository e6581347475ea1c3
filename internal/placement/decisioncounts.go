package placement

// decisionCounts counts the decisions for each cluster, of all placements of all namespaces.
type decisionCounts struct {
	counts       []int32 // by cluster id
	clustersWith []int32 // by count, from 1: how many clusters have it
	max          int32

	// changes are the clusters whose counts changed, the latest last, for boards to catch up with; dropped is how many
	// came before them.
	changes        []int32
	droppedChanges int
}

// maxChanges bounds moves. A board that is further behind is rather built anew.
const maxChanges = 1 << 14

func (l *decisionCounts) add(id, by int32) {
	for int(id) >= len(l.counts) {
		l.counts = append(l.counts, 0)
	}
	from := l.counts[id]
	to := from + by
	l.counts[id] = to
	for int(to) >= len(l.clustersWith) {
		l.clustersWith = append(l.clustersWith, 0)
	}
	l.clustersWith[to]++
	l.clustersWith[from]--
	l.max = max(l.max, to)
	for l.max > 0 && l.clustersWith[l.max] == 0 {
		l.max--
	}
	if len(l.changes) == maxChanges {
		l.droppedChanges += maxChanges / 2
		l.changes = append(l.changes[:0], l.changes[maxChanges/2:]...)
	}
	l.changes = append(l.changes, id)
}

func (l *decisionCounts) of(id int32) int32 {
	if int(id) >= len(l.counts) {
		return 0
	}
	return l.counts[id]
}

// position is the position in the moves that is up to date.
func (l *decisionCounts) position() int { return l.droppedChanges + len(l.changes) }

// changesSince returns the clusters that moved after a position, and whether all of them are still known.
func (l *decisionCounts) changesSince(position int) ([]int32, bool) {
	if position < l.droppedChanges {
		return nil, false
	}
	return l.changes[position-l.droppedChanges:], true
}

// maxWithout is the highest count when the decisions of one placement, for those clusters, are left out.
func (l *decisionCounts) maxWithout(decided []int32) int32 {
	if l.max == 0 || int(l.clustersWith[l.max]) > len(decided) {
		return l.max
	}
	others := l.clustersWith[l.max]
	for _, id := range decided {
		if l.of(id) == l.max {
			others--
		}
	}
	if others == 0 {
		return l.max - 1 // they are one lower each without the placement, and nobody is higher
	}
	return l.max
}

// balanceScore is the score of a cluster with that many decisions when the most of any cluster is highest: 100 for
// none, -100 for the most.
func balanceScore(count, highest int32) int64 {
	if count == 0 || highest == 0 {
		return 100
	}
	return 2 * int64(100*(0.5-float64(count)/float64(highest)))
}
