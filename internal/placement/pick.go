package placement

import (
	"cmp"
	"slices"
)

// pick is a candidate and its total score, less penalty if it is avoided.
type pick struct {
	id    int32
	total int64
	tie   uint64 // the lower goes first
}

func (p pick) before(other pick) bool { return comparePicks(p, other) < 0 }

func comparePicks(a, b pick) int {
	if order := cmp.Compare(b.total, a.total); order != 0 {
		return order
	}
	return cmp.Compare(a.tie, b.tie)
}

// scratch is memory that schedules use one after the other.
type scratch struct {
	picks   []pick
	own     []int32
	kept    []int32
	cursors []cursor
	totals  []pick
	text    []byte
	ends    []int
}

// contest is one placement picking from the standing of its class.
type contest struct {
	*Scheduler
	st      *standing
	plan    *plan
	hash    uint64
	decided bitset
	kept    []int32 // the candidates among decided that are not open to others
	own     []int32 // the candidates among decided, open ones and others
	among   *spans  // of the candidates of this placement
	scale   scale

	preferred map[int32]*constraint // why clusters are selected that rank too low
}

func (s *Scheduler) contest(st *standing, p *placement) *contest {
	c := &contest{Scheduler: s, st: st, plan: p.plan, hash: p.hash, decided: p.decided, among: &st.among}
	c.own, c.kept = s.scratch.own[:0], s.scratch.kept[:0]
	for _, id := range p.ids {
		held := st.held.has(id)
		if held {
			c.kept = append(c.kept, id)
		}
		if held || st.open.has(id) {
			c.own = append(c.own, id)
		}
	}
	s.scratch.own, s.scratch.kept = c.own, c.kept
	c.scale = s.scaleOf(p)
	if slices.ContainsFunc(c.kept, func(id int32) bool { return !c.covers(id) }) {
		c.widen()
	}
	return c
}

// covers tells whether a candidate that only this placement has leaves the scores of the others as they are.
func (c *contest) covers(id int32) bool {
	for i, measured := range c.plan.selection.measures {
		if measured && !c.st.among[i].covers(c.fleet.clusters[id].resources[i]) {
			return false
		}
	}
	return true
}

// widen takes the candidates that only this placement has into the spans.
func (c *contest) widen() {
	among := c.st.among
	for _, id := range c.kept {
		among.include(c.fleet.clusters[id], &c.plan.selection.measures)
	}
	c.among = &among
}

// private contests have other scores than their class.
func (c *contest) private() bool { return c.among != &c.st.among }

// candidates is how many there are.
func (c *contest) candidates() int { return len(c.st.ids) + len(c.kept) }

// pick returns the clusters to select, in no order.
func (c *contest) pick() []pick {
	n := c.plan.takes(c.candidates())
	if n == 0 {
		return nil
	}
	if len(c.plan.spread) > 0 {
		defer c.timed(PluginPrioritizer, pluginSpread)()
		return c.spread(c.totals(), n)
	}
	defer c.timed(PluginPrioritizer, pluginPick)()
	if n >= len(c.st.ids) || c.private() || c.options.TieBreak == TieBreakHash {
		return best(c.totals(), n)
	}
	return c.merge(n)
}

// totals returns all candidates of the placement, in no order.
func (c *contest) totals() []pick {
	picks := c.scratch.totals[:0]
	for seat := range c.st.ids {
		picks = append(picks, c.seated(seat))
	}
	for _, id := range c.kept {
		picks = append(picks, c.total(id, c.key(id)))
	}
	c.scratch.totals = picks
	return picks
}

// seated is the total of the candidate with a seat.
func (c *contest) seated(seat int) pick {
	id, key := c.st.ids[seat], c.st.keys[seat]
	if c.private() {
		key, _ = c.plan.selection.rate(c.fleet.clusters[id], c.among, c.st.avoided.has(id), c.now)
	}
	return c.total(id, key)
}

// key is what a candidate scores by itself.
func (c *contest) key(id int32) int64 {
	if !c.private() {
		if seat, seated := c.st.seat(id); seated {
			return c.st.keys[seat]
		}
	}
	key, _ := c.plan.selection.rate(c.fleet.clusters[id], c.among, c.st.avoided.has(id), c.now)
	return key
}

// total adds Balance and Steady to the key of a cluster.
func (c *contest) total(id int32, key int64) pick {
	return pick{id: id, total: key + c.scale.of(c.others(id)) + c.steadyOf(id), tie: c.tie(id)}
}

// others is how many decisions of other placements a cluster has.
func (c *contest) others(id int32) int32 {
	if c.decided.has(id) {
		return c.load.of(id) - 1
	}
	return c.load.of(id)
}

func (c *contest) steadyOf(id int32) int64 {
	if c.decided.has(id) {
		return c.plan.steady * 100
	}
	return 0
}

func (c *contest) tie(id int32) uint64 {
	if c.options.TieBreak == TieBreakHash {
		return mix(c.hash ^ c.fleet.clusters[id].hash)
	}
	return uint64(c.fleet.ranks[id])
}

// mix spreads the bits of a hash over all of it.
func mix(x uint64) uint64 {
	x ^= x >> 33
	x *= 0xff51afd7ed558ccd
	x ^= x >> 33
	x *= 0xc4ceb9fe1a85ec53
	return x ^ x>>33
}

// cursor walks down a stack of the board.
type cursor struct {
	pick
	stack, at int
}

func cursorBefore(a, b cursor) bool { return a.before(b.pick) }

// merge picks the n best of the stacks of the board and of the clusters that the placement has selected already, whose
// scores are its own.
func (c *contest) merge(n int) []pick {
	c.st.board.catchUp(c.st, &c.load, c.fleet.ranks)
	own := c.scratch.totals[:0]
	for _, id := range c.own {
		own = append(own, c.total(id, c.key(id)))
	}
	slices.SortFunc(own, comparePicks)
	cursors := c.scratch.cursors[:0]
	for stack := range c.st.board.stacks {
		next := cursor{stack: stack, at: -1}
		if !c.step(&next) || (len(own) >= n && own[n-1].before(next.pick)) {
			continue // the placement has enough that are better
		}
		cursors = append(cursors, next)
	}
	heapify(cursors, cursorBefore)
	picks := c.scratch.picks[:0]
	for taken := 0; len(picks) < n; {
		if taken < len(own) && (len(cursors) == 0 || own[taken].before(cursors[0].pick)) {
			picks = append(picks, own[taken])
			taken++
			continue
		}
		if len(cursors) == 0 {
			break
		}
		picks = append(picks, cursors[0].pick)
		if !c.step(&cursors[0]) {
			cursors[0] = cursors[len(cursors)-1]
			cursors = cursors[:len(cursors)-1]
		}
		siftDown(cursors, 0, cursorBefore)
	}
	c.scratch.totals, c.scratch.cursors, c.scratch.picks = own, cursors, picks
	return picks
}

// step moves a cursor to the next cluster that is not selected already.
func (c *contest) step(at *cursor) bool {
	stack := &c.st.board.stacks[at.stack]
	for at.at++; at.at < len(stack.seats); at.at++ {
		seat := stack.seats[at.at]
		if id := c.st.ids[seat]; !c.decided.has(id) {
			at.pick = pick{id: id, total: c.st.keys[seat] + c.scale.of(stack.count), tie: uint64(c.fleet.ranks[id])}
			return true
		}
	}
	return false
}

// best returns the n first of the picks, in no order. It reorders picks.
func best(picks []pick, n int) []pick {
	if n >= len(picks) {
		return picks
	}
	after := func(a, b pick) bool { return b.before(a) }
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
