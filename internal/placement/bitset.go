package placement

import (
	"iter"
	"math/bits"
)

// bitset is a set of clusters by id. The zero value is empty.
type bitset []uint64

func (b bitset) has(id int32) bool {
	word := int(id >> 6)
	return word < len(b) && b[word]&(1<<(id&63)) != 0
}

func (b *bitset) set(id int32) {
	word := int(id >> 6)
	for word >= len(*b) {
		*b = append(*b, 0)
	}
	(*b)[word] |= 1 << (id & 63)
}

func (b bitset) clear(id int32) {
	if word := int(id >> 6); word < len(b) {
		b[word] &^= 1 << (id & 63)
	}
}

// put adds or removes.
func (b *bitset) put(id int32, member bool) {
	if member {
		b.set(id)
	} else {
		b.clear(id)
	}
}

func (b *bitset) add(others bitset) {
	for word := len(*b); word < len(others); word++ {
		*b = append(*b, 0)
	}
	for word, members := range others {
		(*b)[word] |= members
	}
}

func (b bitset) count() int {
	n := 0
	for _, word := range b {
		n += bits.OnesCount64(word)
	}
	return n
}

func (b bitset) empty() bool {
	for _, word := range b {
		if word != 0 {
			return false
		}
	}
	return true
}

func (b bitset) intersects(others bitset) bool {
	for word := range min(len(b), len(others)) {
		if b[word]&others[word] != 0 {
			return true
		}
	}
	return false
}

// all yields the members by id.
func (b bitset) all() iter.Seq[int32] {
	return func(yield func(int32) bool) {
		for word, members := range b {
			for ; members != 0; members &= members - 1 {
				if !yield(int32(word<<6 + bits.TrailingZeros64(members))) {
					return
				}
			}
		}
	}
}
