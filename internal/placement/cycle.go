package placement

import (
	"cmp"
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

// cycleBuffers is memory that scheduling cycles use one after the other, so that they do not allocate.
type cycleBuffers struct {
	selected      []candidate
	previous      []int32
	noSelectIfNew []int32
	cursors       []bucketCursor
	candidates    []candidate
	text          []byte
	ends          []int
}

// cycle is a scheduling cycle: the selection of clusters for one placement out of the candidates of its class.
type cycle struct {
	*Scheduler
	candidates    *candidateSet
	spec          *parsedSpec
	hash          uint64
	decided       bitset
	noSelectIfNew []int32         // selected clusters that are candidates of this placement only, because of a NoSelectIfNew taint
	previous      []int32         // selected clusters that are still candidates, including those of noSelectIfNew
	ranges        *resourceRanges // of all candidates of this placement
	balance       balanceTerm

	spreadReasons map[int32]*spreadConstraint // the constraint because of which a cluster was selected before higher ones
}

func (s *Scheduler) newCycle(cs *candidateSet, p *placement) *cycle {
	c := &cycle{Scheduler: s, candidates: cs, spec: p.spec, hash: p.hash, decided: p.decided, ranges: &cs.ranges}
	c.previous, c.noSelectIfNew = s.buffers.previous[:0], s.buffers.noSelectIfNew[:0]
	for _, id := range p.ids {
		held := cs.noSelectIfNew.has(id)
		if held {
			c.noSelectIfNew = append(c.noSelectIfNew, id)
		}
		if held || cs.tolerated.has(id) {
			c.previous = append(c.previous, id)
		}
	}
	s.buffers.previous, s.buffers.noSelectIfNew = c.previous, c.noSelectIfNew
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
	if n >= len(c.candidates.clusterIDs) || c.hasOwnRanges() || c.options.TieBreak == TieBreakHash {
		return topN(c.allCandidates(), n)
	}
	return c.mergeBuckets(n)
}

// allCandidates returns all candidates with their total scores, in no order.
func (c *cycle) allCandidates() []candidate {
	candidates := c.buffers.candidates[:0]
	for index := range c.candidates.clusterIDs {
		candidates = append(candidates, c.candidateAt(index))
	}
	for _, id := range c.noSelectIfNew {
		candidates = append(candidates, c.newCandidate(id, c.baseScore(id)))
	}
	c.buffers.candidates = candidates
	return candidates
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

// bucketCursor iterates over the candidates of a bucket.
type bucketCursor struct {
	candidate
	bucket, position int
}

func cursorBefore(a, b bucketCursor) bool { return a.before(b.candidate) }

// mergeBuckets selects the n best candidates: it merges the buckets of the ranking with the clusters that are selected already, whose
// scores are computed one by one because of Steady.
func (c *cycle) mergeBuckets(n int) []candidate {
	c.candidates.ranking.syncBuckets(c.candidates, &c.decisionCounts, c.clusters.nameRanks)
	previous := c.buffers.candidates[:0]
	for _, id := range c.previous {
		previous = append(previous, c.newCandidate(id, c.baseScore(id)))
	}
	slices.SortFunc(previous, compareCandidates)
	cursors := c.buffers.cursors[:0]
	for bucket := range c.candidates.ranking.buckets {
		next := bucketCursor{bucket: bucket, position: -1}
		if !c.advance(&next) || (len(previous) >= n && previous[n-1].before(next.candidate)) {
			continue // the clusters selected already are better than all of the bucket
		}
		cursors = append(cursors, next)
	}
	heapify(cursors, cursorBefore)
	selected := c.buffers.selected[:0]
	for taken := 0; len(selected) < n; {
		if taken < len(previous) && (len(cursors) == 0 || previous[taken].before(cursors[0].candidate)) {
			selected = append(selected, previous[taken])
			taken++
			continue
		}
		if len(cursors) == 0 {
			break
		}
		selected = append(selected, cursors[0].candidate)
		if !c.advance(&cursors[0]) {
			cursors[0] = cursors[len(cursors)-1]
			cursors = cursors[:len(cursors)-1]
		}
		siftDown(cursors, 0, cursorBefore)
	}
	c.buffers.candidates, c.buffers.cursors, c.buffers.selected = previous, cursors, selected
	return selected
}

// advance moves a cursor to the next cluster that is not selected yet. It reports false at the end of the bucket.
func (c *cycle) advance(at *bucketCursor) bool {
	bucket := &c.candidates.ranking.buckets[at.bucket]
	for at.position++; at.position < len(bucket.candidates); at.position++ {
		index := bucket.candidates[at.position]
		if id := c.candidates.clusterIDs[index]; !c.decided.has(id) {
			at.candidate = candidate{id: id, score: c.candidates.baseScores[index] + c.balance.score(bucket.count), tieBreak: c.nameTieBreak(id)}
			return true
		}
	}
	return false
}

// topN returns the n best candidates, in no order. It reorders its argument.
func topN(candidates []candidate, n int) []candidate {
	if n >= len(candidates) {
		return candidates
	}
	after := func(a, b candidate) bool { return b.before(a) }
	top := candidates[:n]
	heapify(top, after) // the worst of them is the root
	for _, candidate := range candidates[n:] {
		if candidate.before(top[0]) {
			top[0] = candidate
			siftDown(top, 0, after)
		}
	}
	return top
}

// heapify makes a heap whose root is before all others. container/heap would allocate at each step.
func heapify[T any](heap []T, before func(a, b T) bool) {
	for i := len(heap)/2 - 1; i >= 0; i-- {
		siftDown(heap, i, before)
	}
}

func siftDown[T any](heap []T, i int, before func(a, b T) bool) {
	for {
		child := 2*i + 1
		if child >= len(heap) {
			return
		}
		if child+1 < len(heap) && before(heap[child+1], heap[child]) {
			child++
		}
		if !before(heap[child], heap[i]) {
			return
		}
		heap[i], heap[child] = heap[child], heap[i]
		i = child
	}
}
