package placement

import (
	"cmp"
	"hash/fnv"
	"iter"
	"slices"
)

// scoredCluster is a candidate of a placement with its total score.
type scoredCluster struct {
	cluster        *cluster
	preferNoSelect bool
	score          int64
	hash           uint64 // orders equal scores, the lowest first; 0 with TieBreakName
}

func (p scoredCluster) before(other scoredCluster) bool { return compareRanks(p, other) < 0 }

// compareRanks orders clusters, the best first: those without a PreferNoSelect taint, then by score, then by hash or name.
func compareRanks(a, b scoredCluster) int {
	if order := compareScores(a, b); order != 0 {
		return order
	}
	if order := cmp.Compare(a.hash, b.hash); order != 0 {
		return order
	}
	return compareNames(a.cluster, b.cluster)
}

func compareScores(a, b scoredCluster) int {
	if a.preferNoSelect != b.preferNoSelect {
		return asInt(a.preferNoSelect) - asInt(b.preferNoSelect)
	}
	return cmp.Compare(b.score, a.score)
}

// cycle is a scheduling cycle: the selection of clusters for one placement out of the candidates of its class.
type cycle struct {
	*framework
	candidates   *candidateSet
	spec         *parsedSpec
	hash         uint64
	selectedOnly int        // number of candidates of this placement only, because of a NoSelectIfNew taint
	input        scoreInput // of this placement
	ownRanges    bool       // whether the placement has other ranges, and so other scores, than its class

	spread        *spreadSelector                // after the selection; nil without constraints, and if all candidates are selected anyway
	spreadReasons map[*cluster]*spreadConstraint // the constraint because of which a cluster was selected before higher ones
}

func (f *framework) newCycle(cs *candidateSet, p *placement) *cycle {
	c := &cycle{framework: f, candidates: cs, spec: p.spec, hash: p.hash}
	c.input = scoreInput{now: f.now, ranges: cs.ranges, selected: setOf(p.selected), maxDecisions: f.decisionCounts.maxWithout(p.selected)}
	for _, only := range cs.selectedOnly(p) {
		c.selectedOnly++
		c.input.ranges.include(only, p.spec.profile)
	}
	c.ownRanges = c.input.ranges != cs.ranges
	return c
}

// candidateCount is the number of candidates.
func (c *cycle) candidateCount() int { return c.candidates.tolerated + c.selectedOnly }

// feasible iterates over the candidates of the placement by name.
func (c *cycle) feasible() iter.Seq[*candidate] {
	return func(yield func(*candidate) bool) {
		for i := range c.candidates.matched {
			m := &c.candidates.matched[i]
			if (m.tolerated || (m.noSelectIfNew && c.input.selected[m.cluster])) && !yield(m) {
				return
			}
		}
	}
}

// scored iterates over the candidates of the placement by name, with their total scores.
func (c *cycle) scored() iter.Seq[scoredCluster] {
	return func(yield func(scoredCluster) bool) {
		for m := range c.feasible() {
			if !yield(c.score(m)) {
				return
			}
		}
	}
}

// allCandidates returns the candidates of the placement by name, with their total scores.
func (c *cycle) allCandidates() []scoredCluster {
	return slices.AppendSeq(make([]scoredCluster, 0, c.candidateCount()), c.scored())
}

// score adds Balance and Steady to the score of a candidate.
func (c *cycle) score(m *candidate) scoredCluster {
	score := m.score
	if c.ownRanges {
		score, _ = weightedScore(c.spec.profile.scorers, m.cluster, &c.input)
	}
	own, _ := weightedScore(c.spec.placementScorers, m.cluster, &c.input)
	scored := scoredCluster{cluster: m.cluster, preferNoSelect: m.preferNoSelect, score: score + own}
	if c.options.TieBreak == TieBreakHash {
		scored.hash = mix(c.hash ^ m.cluster.hash)
	}
	return scored
}

func hashOf(name string) uint64 {
	digest := fnv.New64a()
	_, _ = digest.Write([]byte(name))
	return digest.Sum64()
}

// mix is the finalizer of MurmurHash3: it spreads the bits of a hash over all of it.
func mix(x uint64) uint64 {
	x ^= x >> 33
	x *= 0xff51afd7ed558ccd
	x ^= x >> 33
	x *= 0xc4ceb9fe1a85ec53
	return x ^ x>>33
}

// selectClusters returns the clusters to select, in no order.
func (c *cycle) selectClusters() []scoredCluster {
	n := c.spec.maxSelected(c.candidateCount())
	if n == 0 {
		return nil
	}
	if len(c.spec.constraints) > 0 {
		defer c.timed(PluginPrioritizer, pluginSpread)()
		return c.selectSpread(c.allCandidates(), n)
	}
	defer c.timed(PluginPrioritizer, pluginDecisions)()
	return topN(c.scored(), n)
}
