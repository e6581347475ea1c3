package placement

import (
	"cmp"
	"slices"
)

// candidate is a candidate and its total score, less penalty if it is avoided.
type candidate struct {
	id       int32
	score    int64
	tieBreak uint64 // the lower goes first
}

func (p candidate) before(other candidate) bool { return compareCandidates(p, other) < 0 }

func compareCandidates(a, b candidate) int {
	if order := cmp.Compare(b.score, a.score); order != 0 {
		return order
	}
	return cmp.Compare(a.tieBreak, b.tieBreak)
}

// cycleBuffers is memory that schedules use one after the other.
type cycleBuffers struct {
	selected      []candidate
	previous      []int32
	noSelectIfNew []int32
	cursors       []bucketCursor
	candidates    []candidate
	text          []byte
	ends          []int
}

// cycle is one placement picking from the standing of its class.
type cycle struct {
	*Scheduler
	candidates    *candidateSet
	spec          *parsedSpec
	hash          uint64
	decided       bitset
	noSelectIfNew []int32         // the candidates among decided that are not open to others
	previous      []int32         // the candidates among decided, open ones and others
	ranges        *resourceRanges // of the candidates of this placement
	balance       balanceTerm

	spreadReasons map[int32]*spreadConstraint // why clusters are selected that rank too low
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

// covers tells whether a candidate that only this placement has leaves the scores of the others as they are.
func (c *cycle) covers(id int32) bool {
	for i, used := range c.spec.profile.usesResource {
		if used && !c.candidates.ranges[i].covers(c.clusters.byID[id].allocatable[i]) {
			return false
		}
	}
	return true
}

// extendRanges takes the candidates that only this placement has into the spans.
func (c *cycle) extendRanges() {
	ranges := c.candidates.ranges
	for _, id := range c.noSelectIfNew {
		ranges.include(c.clusters.byID[id], &c.spec.profile.usesResource)
	}
	c.ranges = &ranges
}

// hasOwnRanges contests have other scores than their class.
func (c *cycle) hasOwnRanges() bool { return c.ranges != &c.candidates.ranges }

// candidateCount is how many there are.
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

// allCandidates returns all candidates of the placement, in no order.
func (c *cycle) allCandidates() []candidate {
	picks := c.buffers.candidates[:0]
	for index := range c.candidates.clusterIDs {
		picks = append(picks, c.candidateAt(index))
	}
	for _, id := range c.noSelectIfNew {
		picks = append(picks, c.newCandidate(id, c.baseScore(id)))
	}
	c.buffers.candidates = picks
	return picks
}

// candidateAt is the total of the candidate with a seat.
func (c *cycle) candidateAt(index int) candidate {
	id, key := c.candidates.clusterIDs[index], c.candidates.baseScores[index]
	if c.hasOwnRanges() {
		key, _ = c.spec.profile.baseScore(c.clusters.byID[id], c.ranges, c.candidates.preferNoSelect.has(id), c.now)
	}
	return c.newCandidate(id, key)
}

// baseScore is what a candidate scores by itself.
func (c *cycle) baseScore(id int32) int64 {
	if !c.hasOwnRanges() {
		if index, found := c.candidates.indexOf(id); found {
			return c.candidates.baseScores[index]
		}
	}
	key, _ := c.spec.profile.baseScore(c.clusters.byID[id], c.ranges, c.candidates.preferNoSelect.has(id), c.now)
	return key
}

// newCandidate adds Balance and Steady to the key of a cluster.
func (c *cycle) newCandidate(id int32, key int64) candidate {
	return candidate{id: id, score: key + c.balance.score(c.otherDecisions(id)) + c.steadyScore(id), tieBreak: c.tieBreak(id)}
}

// otherDecisions is how many decisions of other placements a cluster has.
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

// mix spreads the bits of a hash over all of it.
func mix(x uint64) uint64 {
	x ^= x >> 33
	x *= 0xff51afd7ed558ccd
	x ^= x >> 33
	x *= 0xc4ceb9fe1a85ec53
	return x ^ x>>33
}

// bucketCursor walks down a stack of the board.
type bucketCursor struct {
	candidate
	bucket, position int
}

func cursorBefore(a, b bucketCursor) bool { return a.before(b.candidate) }

// mergeBuckets picks the n best of the stacks of the board and of the clusters that the placement has selected already, whose
// scores are its own.
func (c *cycle) mergeBuckets(n int) []candidate {
	c.candidates.ranking.syncBuckets(c.candidates, &c.decisionCounts, c.clusters.nameRanks)
	own := c.buffers.candidates[:0]
	for _, id := range c.previous {
		own = append(own, c.newCandidate(id, c.baseScore(id)))
	}
	slices.SortFunc(own, compareCandidates)
	cursors := c.buffers.cursors[:0]
	for bucket := range c.candidates.ranking.buckets {
		next := bucketCursor{bucket: bucket, position: -1}
		if !c.advance(&next) || (len(own) >= n && own[n-1].before(next.candidate)) {
			continue // the placement has enough that are better
		}
		cursors = append(cursors, next)
	}
	heapify(cursors, cursorBefore)
	picks := c.buffers.selected[:0]
	for taken := 0; len(picks) < n; {
		if taken < len(own) && (len(cursors) == 0 || own[taken].before(cursors[0].candidate)) {
			picks = append(picks, own[taken])
			taken++
			continue
		}
		if len(cursors) == 0 {
			break
		}
		picks = append(picks, cursors[0].candidate)
		if !c.advance(&cursors[0]) {
			cursors[0] = cursors[len(cursors)-1]
			cursors = cursors[:len(cursors)-1]
		}
		siftDown(cursors, 0, cursorBefore)
	}
	c.buffers.candidates, c.buffers.cursors, c.buffers.selected = own, cursors, picks
	return picks
}

// advance moves a cursor to the next cluster that is not selected already.
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

// topN returns the n first of the picks, in no order. It reorders picks.
func topN(picks []candidate, n int) []candidate {
	if n >= len(picks) {
		return picks
	}
	after := func(a, b candidate) bool { return b.before(a) }
	chosen := picks[:n]
	heapify(chosen, after) // the worst of them is on top
	for _, candidate := range picks[n:] {
		if candidate.before(chosen[0]) {
			chosen[0] = candidate
			siftDown(chosen, 0, after)
		}
	}
	return chosen
}

// heapify makes a heap, with what goes before all others on top. container/heap would allocate at each step.
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
