package placement

import (
	"cmp"
	"iter"
	"math/bits"
	"slices"
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

// keep removes all but others.
func (b bitset) keep(others bitset) {
	for word := range b {
		if word < len(others) {
			b[word] &= others[word]
		} else {
			b[word] = 0
		}
	}
}

// remove removes others.
func (b bitset) remove(others bitset) {
	for word := range min(len(b), len(others)) {
		b[word] &^= others[word]
	}
}

// first is the member with the lowest id.
func (b bitset) first() (id int32, ok bool) {
	for word, members := range b {
		if members != 0 {
			return int32(word<<6 + bits.TrailingZeros64(members)), true
		}
	}
	return 0, false
}

// chunk is the members of one word of a bitset. A list of them, by word, is a set that takes little for few members, and no
// more steps than a bitset for many.
type chunk struct {
	word    int32
	members uint64
}

// appendMember adds an id that is higher than all others.
func appendMember(chunks []chunk, id int32) []chunk {
	word, member := id>>6, uint64(1)<<(id&63)
	if last := len(chunks) - 1; last >= 0 && chunks[last].word == word {
		chunks[last].members |= member
		return chunks
	}
	return append(chunks, chunk{word: word, members: member})
}

func removeMember(chunks []chunk, id int32) []chunk {
	at, found := slices.BinarySearchFunc(chunks, id>>6, func(c chunk, word int32) int { return cmp.Compare(c.word, word) })
	if !found {
		return chunks
	}
	if chunks[at].members &^= 1 << (id & 63); chunks[at].members == 0 {
		return slices.Delete(chunks, at, at+1)
	}
	return chunks
}

// include adds members; b has a word for each.
func (b bitset) include(chunks []chunk) {
	for _, c := range chunks {
		b[c.word] |= c.members
	}
}

// exclude removes members; b has a word for each.
func (b bitset) exclude(chunks []chunk) {
	for _, c := range chunks {
		b[c.word] &^= c.members
	}
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
