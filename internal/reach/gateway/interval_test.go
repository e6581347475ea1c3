package gateway

import (
	"slices"
	"testing"
	"time"
)

// CG-03: a cluster that keeps failing is probed less often, until it is healthy or something about it changes.
func TestProbeIntervals(t *testing.T) {
	t.Parallel()
	const second = time.Second
	failing := []time.Duration{5 * second, 10 * second, 20 * second, 40 * second, time.Minute, time.Minute}
	for name, ends := range map[string]func(*probes){
		"healthy":     func(p *probes) { p.interval("c1", true) },
		"an event":    func(p *probes) { p.now("c1") },
		"one, of two": func(p *probes) { p.interval("c2", false); p.now("c1") },
	} {
		p := newProbes()
		t.Cleanup(p.queue.ShutDown)
		for range 2 {
			var got []time.Duration
			for range failing {
				got = append(got, p.interval("c1", false))
			}
			if !slices.Equal(got, failing) {
				t.Errorf("%s: the intervals are %v, want %v", name, got, failing)
			}
			ends(p)
		}
		if got := p.interval("c1", true); got != time.Minute {
			t.Errorf("%s: a healthy cluster is probed after %s", name, got)
		}
	}
}
