package placement

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
)

// PL-08: the best are those that are first when all are sorted.
func TestTopN(t *testing.T) {
	t.Parallel()
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 8))
		all := make([]scoredCluster, r.IntN(100))
		for i := range all {
			all[i] = scoredCluster{cluster: &cluster{name: fmt.Sprintf("c%03d", i)}, score: int64(r.IntN(20)), preferNoSelect: r.IntN(4) == 0}
		}
		sorted := slices.SortedFunc(slices.Values(all), compareRanks)
		n := 1 + r.IntN(30)
		got := topN(slices.Values(all), n)
		slices.SortFunc(got, compareRanks)
		if want := sorted[:min(n, len(sorted))]; !slices.Equal(got, want) {
			t.Errorf("seed %d: the %d best are %v, want %v", seed, n, got, want)
		}
	}
}
