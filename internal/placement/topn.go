package placement

import (
	"iter"
	"slices"
)

// topN returns the n best clusters, in no order. n is at least 1. It sorts no more than twice as many at a time.
func topN(clusters iter.Seq[scoredCluster], n int) []scoredCluster {
	best := make([]scoredCluster, 0, n)
	full := false // whether best[n-1] is the worst of the n best so far
	for c := range clusters {
		if full && !c.before(best[n-1]) {
			continue
		}
		if best = append(best, c); len(best) == 2*n {
			slices.SortFunc(best, compareRanks)
			best, full = best[:n], true
		}
	}
	if len(best) <= n {
		return best
	}
	slices.SortFunc(best, compareRanks)
	return best[:n]
}
