package placement

import (
	"cmp"
	"math/bits"
	"slices"
)

// index32 converts a position of a candidate, of which there are far fewer than 2³¹.
func index32(i int) int32 {
	return int32(i) //nolint:gosec // the number of clusters is far below the limit
}

// bitset is a set of positions. The zero value is empty.
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

func (b *bitset) union(others bitset) {
	for word := len(*b); word < len(others); word++ {
		*b = append(*b, 0)
	}
	for word, members := range others {
		(*b)[word] |= members
	}
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

// intersect removes all members that are not in others.
func (b bitset) intersect(others bitset) {
	for word := range b {
		if word < len(others) {
			b[word] &= others[word]
		} else {
			b[word] = 0
		}
	}
}

// first is the member with the lowest id.
func (b bitset) first() (id int32, ok bool) {
	for word, members := range b {
		if members != 0 {
			return index32(word<<6 + bits.TrailingZeros64(members)), true
		}
	}
	return 0, false
}

// sparseWord is one word of a bitset that has members. A sorted list of them is a set that takes little memory for few members, and is
// combined with a bitset word by word.
type sparseWord struct {
	word    int32
	members uint64
}

// appendSparse adds an id that is higher than all others.
func appendSparse(chunks []sparseWord, id int32) []sparseWord {
	word, member := id>>6, uint64(1)<<(id&63)
	if last := len(chunks) - 1; last >= 0 && chunks[last].word == word {
		chunks[last].members |= member
		return chunks
	}
	return append(chunks, sparseWord{word: word, members: member})
}

func deleteSparse(chunks []sparseWord, id int32) []sparseWord {
	at, found := slices.BinarySearchFunc(chunks, id>>6, func(c sparseWord, word int32) int { return cmp.Compare(c.word, word) })
	if !found {
		return chunks
	}
	if chunks[at].members &^= 1 << (id & 63); chunks[at].members == 0 {
		return slices.Delete(chunks, at, at+1)
	}
	return chunks
}

// addSparse adds members. The bitset must have all their words.
func (b bitset) addSparse(chunks []sparseWord) {
	for _, c := range chunks {
		b[c.word] |= c.members
	}
}

// removeSparse removes members. The bitset must have all their words.
func (b bitset) removeSparse(chunks []sparseWord) {
	for _, c := range chunks {
		b[c.word] &^= c.members
	}
}
