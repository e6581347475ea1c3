package placement

import (
	"cmp"
	"container/heap"
	"iter"
	"slices"
)

// candidate is a candidate with its total score, less preferNoSelectPenalty if it has such a taint.
type candidate struct {
	id       int32
	score    int64
	tieBreak uint64 // orders equal scores, the lowest first
}

func (p candidate) before(other candidate) bool { return compareCandidates(p, other) < 0 }

func compareCandidates(a, b candidate) int {
	if order := cmp.Compare(b.score, a.score); order != 0 {
		return order
	}
	return cmp.Compare(a.tieBreak, b.tieBreak)
}

// cycle is a scheduling cycle: the selection of clusters for one placement out of the candidates of its class.
type cycle struct {
	*Scheduler
	candidates    *candidateSet
	spec          *parsedSpec
	hash          uint64
	decided       bitset
	noSelectIfNew []int32         // selected clusters that are candidates of this placement only, because of a NoSelectIfNew taint
	ranges        *resourceRanges // of all candidates of this placement
	balance       balanceTerm

	spreadReasons map[int32]*spreadConstraint // the constraint because of which a cluster was selected before higher ones
}

func (s *Scheduler) newCycle(cs *candidateSet, p *placement) *cycle {
	c := &cycle{Scheduler: s, candidates: cs, spec: p.spec, hash: p.hash, decided: p.decided, ranges: &cs.ranges}
	for _, id := range p.ids {
		if cs.noSelectIfNew.has(id) {
			c.noSelectIfNew = append(c.noSelectIfNew, id)
		}
	}
	c.balance = s.balanceTermOf(p)
	if slices.ContainsFunc(c.noSelectIfNew, func(id int32) bool { return !c.covers(id) }) {
		c.extendRanges()
	}
	return c
}

// covers tells whether a candidate of this placement only leaves the ranges of the class as they are.
func (c *cycle) covers(id int32) bool {
	for i, used := range c.spec.profile.usesResource {
		if used && !c.candidates.ranges[i].covers(c.clusters.byID[id].allocatable[i]) {
			return false
		}
	}
	return true
}

// extendRanges includes the candidates of this placement only in the ranges.
func (c *cycle) extendRanges() {
	ranges := c.candidates.ranges
	for _, id := range c.noSelectIfNew {
		ranges.include(c.clusters.byID[id], &c.spec.profile.usesResource)
	}
	c.ranges = &ranges
}

// hasOwnRanges tells whether the placement has other ranges, and so other base scores, than its class.
func (c *cycle) hasOwnRanges() bool { return c.ranges != &c.candidates.ranges }

// candidateCount is the number of candidates.
func (c *cycle) candidateCount() int { return len(c.candidates.clusterIDs) + len(c.noSelectIfNew) }

// selectClusters returns the clusters to select, in no order.
func (c *cycle) selectClusters() []candidate {
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

// scored iterates over all candidates with their total scores, in no order.
func (c *cycle) scored() iter.Seq[candidate] {
	return func(yield func(candidate) bool) {
		for index := range c.candidates.clusterIDs {
			if !yield(c.candidateAt(index)) {
				return
			}
		}
		for _, id := range c.noSelectIfNew {
			if !yield(c.newCandidate(id, c.baseScore(id))) {
				return
			}
		}
	}
}

// allCandidates returns all candidates with their total scores, in no order.
func (c *cycle) allCandidates() []candidate {
	return slices.AppendSeq(make([]candidate, 0, c.candidateCount()), c.scored())
}

// candidateAt returns the candidate of an index.
func (c *cycle) candidateAt(index int) candidate {
	id, baseScore := c.candidates.clusterIDs[index], c.candidates.baseScores[index]
	if c.hasOwnRanges() {
		baseScore, _ = c.spec.profile.baseScore(c.clusters.byID[id], c.ranges, c.candidates.preferNoSelect.has(id), c.now)
	}
	return c.newCandidate(id, baseScore)
}

// baseScore returns the score of a candidate without Balance and Steady.
func (c *cycle) baseScore(id int32) int64 {
	if !c.hasOwnRanges() {
		if index, found := c.candidates.indexOf(id); found {
			return c.candidates.baseScores[index]
		}
	}
	baseScore, _ := c.spec.profile.baseScore(c.clusters.byID[id], c.ranges, c.candidates.preferNoSelect.has(id), c.now)
	return baseScore
}

// newCandidate adds Balance and Steady to the base score of a cluster.
func (c *cycle) newCandidate(id int32, baseScore int64) candidate {
	return candidate{id: id, score: baseScore + c.balance.score(c.otherDecisions(id)) + c.steadyScore(id), tieBreak: c.tieBreak(id)}
}

// otherDecisions counts the decisions of other placements for a cluster.
func (c *cycle) otherDecisions(id int32) int32 {
	if c.decided.has(id) {
		return c.decisionCounts.of(id) - 1
	}
	return c.decisionCounts.of(id)
}

func (c *cycle) steadyScore(id int32) int64 {
	if c.decided.has(id) {
		return c.spec.steadyWeight * 100
	}
	return 0
}

func (c *cycle) tieBreak(id int32) uint64 {
	if c.options.TieBreak == TieBreakHash {
		return mix(c.hash ^ c.clusters.byID[id].hash)
	}
	return c.nameTieBreak(id)
}

// nameTieBreak orders clusters by their names.
func (c *cycle) nameTieBreak(id int32) uint64 {
	return uint64(c.clusters.nameRanks[id]) //nolint:gosec // ranks count from 0
}

// mix is the finalizer of MurmurHash3: it spreads the bits of a hash over all of it.
func mix(x uint64) uint64 {
	x ^= x >> 33
	x *= 0xff51afd7ed558ccd
	x ^= x >> 33
	x *= 0xc4ceb9fe1a85ec53
	return x ^ x>>33
}

// worstFirst is a heap of candidates whose root is the worst of them.
type worstFirst []candidate

func (h worstFirst) Len() int           { return len(h) }
func (h worstFirst) Less(i, j int) bool { return h[j].before(h[i]) }
func (h worstFirst) Swap(i, j int)      { h[i], h[j] = h[j], h[i] }
func (h *worstFirst) Push(x any)        { *h = append(*h, x.(candidate)) }
func (h *worstFirst) Pop() any {
	last := (*h)[len(*h)-1]
	*h = (*h)[:len(*h)-1]
	return last
}

// topN returns the n best candidates, in no order. n is at least 1.
func topN(candidates iter.Seq[candidate], n int) []candidate {
	top := make(worstFirst, 0, n)
	for candidate := range candidates {
		switch {
		case len(top) < n:
			if top = append(top, candidate); len(top) == n {
				heap.Init(&top)
			}
		case candidate.before(top[0]):
			top[0] = candidate
			heap.Fix(&top, 0)
		}
	}
	return top
}
