package placement

// load counts the decisions for each cluster, of all placements of all namespaces.
type load struct {
	counts  []int32 // by cluster id
	holders []int32 // by count, from 1: how many clusters have it
	highest int32

	// moves are the clusters whose counts changed, the latest last, for boards to catch up with; dropped is how many
	// came before them.
	moves   []int32
	dropped int
}

// mostMoves bounds moves. A board that is further behind is rather built anew.
const mostMoves = 1 << 14

func (l *load) change(id, by int32) {
	for int(id) >= len(l.counts) {
		l.counts = append(l.counts, 0)
	}
	from := l.counts[id]
	to := from + by
	l.counts[id] = to
	for int(to) >= len(l.holders) {
		l.holders = append(l.holders, 0)
	}
	l.holders[to]++
	l.holders[from]--
	l.highest = max(l.highest, to)
	for l.highest > 0 && l.holders[l.highest] == 0 {
		l.highest--
	}
	if len(l.moves) == mostMoves {
		l.dropped += mostMoves / 2
		l.moves = append(l.moves[:0], l.moves[mostMoves/2:]...)
	}
	l.moves = append(l.moves, id)
}

func (l *load) of(id int32) int32 {
	if int(id) >= len(l.counts) {
		return 0
	}
	return l.counts[id]
}

// now is the position in the moves that is up to date.
func (l *load) now() int { return l.dropped + len(l.moves) }

// since returns the clusters that moved after a position, and whether all of them are still known.
func (l *load) since(position int) ([]int32, bool) {
	if position < l.dropped {
		return nil, false
	}
	return l.moves[position-l.dropped:], true
}

// highestWithout is the highest count when the decisions of one placement, for those clusters, are left out.
func (l *load) highestWithout(decided []int32) int32 {
	if l.highest == 0 || int(l.holders[l.highest]) > len(decided) {
		return l.highest
	}
	others := l.holders[l.highest]
	for _, id := range decided {
		if l.of(id) == l.highest {
			others--
		}
	}
	if others == 0 {
		return l.highest - 1 // they are one lower each without the placement, and nobody is higher
	}
	return l.highest
}

// balance is the score of a cluster with that many decisions when the most of any cluster is highest: 100 for
// none, -100 for the most.
func balance(count, highest int32) int64 {
	if count == 0 || highest == 0 {
		return 100
	}
	return 2 * int64(100*(0.5-float64(count)/float64(highest)))
}
