package placement

import (
	"cmp"
	"slices"
	"sort"
)

// board keeps the seats of a standing sorted by key, and by name when those are equal: all of them in order, and in
// stacks those of clusters with equally many decisions. Balance is the same for a whole stack, so that it shifts stacks
// against each other but never reorders one, and need not be known here.
type board struct {
	order  []int32
	stacks []stack // by count
	counts []int32 // by seat: the stack it is in
	caught int     // position in the moves of the load up to which counts are right
	dealt  bool    // whether stacks and counts are there
}

// stack is the seats of clusters with as many decisions.
type stack struct {
	count int32
	seats []int32
}

// sort starts anew.
func (b *board) sort(st *standing, ranks []int32) {
	b.dealt = false
	b.order = slices.Grow(b.order[:0], len(st.ids))[:len(st.ids)]
	for seat := range b.order {
		b.order[seat] = int32(seat)
	}
	slices.SortFunc(b.order, func(x, y int32) int { return st.compare(ranks, x, y) })
}

// compare orders seats: the higher key first, then the earlier name.
func (st *standing) compare(ranks []int32, x, y int32) int {
	if order := cmp.Compare(st.keys[y], st.keys[x]); order != 0 {
		return order
	}
	return cmp.Compare(ranks[st.ids[x]], ranks[st.ids[y]])
}

// catchUp moves the seats of the clusters that were selected or deselected since the last time.
func (b *board) catchUp(st *standing, l *load, ranks []int32) {
	moves, known := l.since(b.caught)
	if !b.dealt || !known || len(moves) > len(st.ids)/8 {
		b.deal(st, l)
		return
	}
	for _, id := range moves {
		seat, seated := st.seat(id)
		if !seated || b.counts[seat] == l.of(id) {
			continue
		}
		b.unstack(st, int32(seat), ranks)
		b.counts[seat] = l.of(id)
		b.enstack(st, int32(seat), ranks)
	}
	b.caught = l.now()
}

// deal makes stacks of the order, which leaves them sorted.
func (b *board) deal(st *standing, l *load) {
	b.counts = slices.Grow(b.counts[:0], len(st.ids))[:len(st.ids)]
	b.stacks = b.stacks[:0]
	at := -1
	for _, seat := range b.order {
		count := l.of(st.ids[seat])
		b.counts[seat] = count
		if at < 0 || b.stacks[at].count != count {
			at = b.stack(count)
		}
		b.stacks[at].seats = append(b.stacks[at].seats, seat)
	}
	b.caught, b.dealt = l.now(), true
}

// stack returns the index of the stack of a count, which may be a new one.
func (b *board) stack(count int32) int {
	at, found := slices.BinarySearchFunc(b.stacks, count, func(s stack, count int32) int { return cmp.Compare(s.count, count) })
	if !found {
		b.stacks = slices.Insert(b.stacks, at, stack{count: count})
	}
	return at
}

func (b *board) enstack(st *standing, seat int32, ranks []int32) {
	at := b.stack(b.counts[seat])
	b.stacks[at].seats = slices.Insert(b.stacks[at].seats, st.locate(b.stacks[at].seats, seat, ranks), seat)
}

func (b *board) unstack(st *standing, seat int32, ranks []int32) {
	at := b.stack(b.counts[seat])
	where := st.locate(b.stacks[at].seats, seat, ranks)
	b.stacks[at].seats = slices.Delete(b.stacks[at].seats, where, where+1)
	if len(b.stacks[at].seats) == 0 {
		b.stacks = slices.Delete(b.stacks, at, at+1)
	}
}

// locate is where a seat is, or belongs, among sorted ones.
func (st *standing) locate(seats []int32, seat int32, ranks []int32) int {
	return sort.Search(len(seats), func(i int) bool { return st.compare(ranks, seats[i], seat) >= 0 })
}

// leave takes a seat out, before its key changes or it is given up.
func (b *board) leave(st *standing, seat int32, ranks []int32) {
	where := st.locate(b.order, seat, ranks)
	b.order = slices.Delete(b.order, where, where+1)
	if b.dealt {
		b.unstack(st, seat, ranks)
	}
}

// enter puts a seat in, after its key has changed or it is new.
func (b *board) enter(st *standing, seat int32, ranks []int32) {
	b.order = slices.Insert(b.order, st.locate(b.order, seat, ranks), seat)
	if b.dealt {
		b.enstack(st, seat, ranks)
	}
}

// open makes room for a seat at that place.
func (b *board) open(seat, count int32) {
	b.renumber(seat, 1)
	if b.dealt {
		b.counts = slices.Insert(b.counts, int(seat), count)
	}
}

// close gives the place of a seat up that has left.
func (b *board) close(seat int32) {
	b.renumber(seat, -1)
	if b.dealt {
		b.counts = slices.Delete(b.counts, int(seat), int(seat)+1)
	}
}

func (b *board) renumber(from, by int32) {
	shift := func(seats []int32) {
		for i := range seats {
			if seats[i] >= from {
				seats[i] += by
			}
		}
	}
	shift(b.order)
	if b.dealt {
		for _, stack := range b.stacks {
			shift(stack.seats)
		}
	}
}

// ahead counts the seats that rank before a cluster of that key and count. byName says that names break ties; otherwise
// seats of the same total do not count.
func (b *board) ahead(st *standing, ranks []int32, c *cluster, key int64, count int32, scale scale, byName bool) int {
	total, rank := key+scale.of(count), ranks[c.id]
	n := 0
	for _, stack := range b.stacks {
		offset := scale.of(stack.count)
		n += sort.Search(len(stack.seats), func(i int) bool {
			other := st.keys[stack.seats[i]] + offset
			if other != total {
				return other < total
			}
			return !byName || ranks[st.ids[stack.seats[i]]] >= rank
		})
	}
	return n
}

// scale is what Balance adds for a placement.
type scale struct {
	weight  int64
	highest int32
}

func (s scale) of(count int32) int64 {
	if s.weight == 0 {
		return 0
	}
	return s.weight * balance(count, s.highest)
}
