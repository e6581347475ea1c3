package decisions

import (
	"testing"

	"github.com/capstan-io/capstan/internal/placement"
)

// BenchmarkPlanShift plans for 10,000 clusters in groups of 2 and one more that comes first: every PlacementDecision gives a cluster to
// the next one.
func BenchmarkPlanShift(b *testing.B) {
	clusters := numbered(0, 9_999)
	h := newHub()
	h.plan(inPairs(clusters...)...)
	result := &placement.Result{Groups: inPairs(append([]string{"a-first-one"}, clusters...)...)}
	b.ReportAllocs()
	for b.Loop() {
		New(h.owner, result, h.objects, h.taken, h.now)
	}
}
