package placement

import (
	"cmp"
	"slices"
	"sort"
)

// ranking keeps the seats of a standing sorted by key, and by name when those are equal: all of them in order, and in
// stacks those of clusters with equally many decisions. Balance is the same for a whole stack, so that it shifts stacks
// against each other but never reorders one, and need not be known here.
type ranking struct {
	byScore      []int32
	buckets      []bucket // by count
	bucketCounts []int32  // by seat: the stack it is in
	syncedTo     int      // position in the moves of the load up to which counts are right
	bucketed     bool     // whether stacks and counts are there
}

// bucket is the seats of clusters with as many decisions.
type bucket struct {
	count      int32
	candidates []int32
}

// reset starts anew.
func (b *ranking) reset(cs *candidateSet, nameRanks []int32) {
	b.bucketed = false
	b.byScore = slices.Grow(b.byScore[:0], len(cs.clusterIDs))[:len(cs.clusterIDs)]
	for index := range b.byScore {
		b.byScore[index] = index32(index)
	}
	slices.SortFunc(b.byScore, func(x, y int32) int { return cs.compare(nameRanks, x, y) })
}

// compare orders seats: the higher key first, then the earlier name.
func (cs *candidateSet) compare(nameRanks []int32, x, y int32) int {
	if order := cmp.Compare(cs.baseScores[y], cs.baseScores[x]); order != 0 {
		return order
	}
	return cmp.Compare(nameRanks[cs.clusterIDs[x]], nameRanks[cs.clusterIDs[y]])
}

// syncBuckets moves the seats of the clusters that were selected or deselected since the last time.
func (b *ranking) syncBuckets(cs *candidateSet, l *decisionCounts, nameRanks []int32) {
	moves, known := l.changesSince(b.syncedTo)
	if !b.bucketed || !known || len(moves) > len(cs.clusterIDs)/8 {
		b.rebuildBuckets(cs, l)
		return
	}
	for _, id := range moves {
		index, found := cs.indexOf(id)
		if !found || b.bucketCounts[index] == l.of(id) {
			continue
		}
		b.removeFromBucket(cs, index32(index), nameRanks)
		b.bucketCounts[index] = l.of(id)
		b.addToBucket(cs, index32(index), nameRanks)
	}
	b.syncedTo = l.position()
}

// rebuildBuckets makes stacks of the order, which leaves them sorted.
func (b *ranking) rebuildBuckets(cs *candidateSet, l *decisionCounts) {
	b.bucketCounts = slices.Grow(b.bucketCounts[:0], len(cs.clusterIDs))[:len(cs.clusterIDs)]
	b.buckets = b.buckets[:0]
	at := -1
	for _, index := range b.byScore {
		count := l.of(cs.clusterIDs[index])
		b.bucketCounts[index] = count
		if at < 0 || b.buckets[at].count != count {
			at = b.bucket(count)
		}
		b.buckets[at].candidates = append(b.buckets[at].candidates, index)
	}
	b.syncedTo, b.bucketed = l.position(), true
}

// bucket returns the index of the stack of a count, which may be a new one.
func (b *ranking) bucket(count int32) int {
	at, found := slices.BinarySearchFunc(b.buckets, count, func(s bucket, count int32) int { return cmp.Compare(s.count, count) })
	if !found {
		b.buckets = slices.Insert(b.buckets, at, bucket{count: count})
	}
	return at
}

func (b *ranking) addToBucket(cs *candidateSet, index int32, nameRanks []int32) {
	at := b.bucket(b.bucketCounts[index])
	b.buckets[at].candidates = slices.Insert(b.buckets[at].candidates, cs.search(b.buckets[at].candidates, index, nameRanks), index)
}

func (b *ranking) removeFromBucket(cs *candidateSet, index int32, nameRanks []int32) {
	at := b.bucket(b.bucketCounts[index])
	where := cs.search(b.buckets[at].candidates, index, nameRanks)
	b.buckets[at].candidates = slices.Delete(b.buckets[at].candidates, where, where+1)
	if len(b.buckets[at].candidates) == 0 {
		b.buckets = slices.Delete(b.buckets, at, at+1)
	}
}

// search is where a seat is, or belongs, among sorted ones.
func (cs *candidateSet) search(candidates []int32, index int32, nameRanks []int32) int {
	return sort.Search(len(candidates), func(i int) bool { return cs.compare(nameRanks, candidates[i], index) >= 0 })
}

// remove takes a seat out, before its key changes or it is given up.
func (b *ranking) remove(cs *candidateSet, index int32, nameRanks []int32) {
	where := cs.search(b.byScore, index, nameRanks)
	b.byScore = slices.Delete(b.byScore, where, where+1)
	if b.bucketed {
		b.removeFromBucket(cs, index, nameRanks)
	}
}

// insert puts a seat in, after its key has changed or it is new.
func (b *ranking) insert(cs *candidateSet, index int32, nameRanks []int32) {
	b.byScore = slices.Insert(b.byScore, cs.search(b.byScore, index, nameRanks), index)
	if b.bucketed {
		b.addToBucket(cs, index, nameRanks)
	}
}

// insertIndex makes room for a seat at that place.
func (b *ranking) insertIndex(index, count int32) {
	b.shiftIndexes(index, 1)
	if b.bucketed {
		b.bucketCounts = slices.Insert(b.bucketCounts, int(index), count)
	}
}

// removeIndex gives the place of a seat up that has left.
func (b *ranking) removeIndex(index int32) {
	b.shiftIndexes(index, -1)
	if b.bucketed {
		b.bucketCounts = slices.Delete(b.bucketCounts, int(index), int(index)+1)
	}
}

func (b *ranking) shiftIndexes(from, by int32) {
	shift := func(candidates []int32) {
		for i := range candidates {
			if candidates[i] >= from {
				candidates[i] += by
			}
		}
	}
	shift(b.byScore)
	if b.bucketed {
		for _, bucket := range b.buckets {
			shift(bucket.candidates)
		}
	}
}

// countBefore counts the seats that rank before a cluster of that key and count. byName says that names break ties; otherwise
// seats of the same total do not count.
func (b *ranking) countBefore(cs *candidateSet, nameRanks []int32, c *cluster, key int64, count int32, scale balanceTerm, byName bool) int {
	total, rank := key+scale.score(count), nameRanks[c.id]
	n := 0
	for _, bucket := range b.buckets {
		offset := scale.score(bucket.count)
		n += sort.Search(len(bucket.candidates), func(i int) bool {
			other := cs.baseScores[bucket.candidates[i]] + offset
			if other != total {
				return other < total
			}
			return !byName || nameRanks[cs.clusterIDs[bucket.candidates[i]]] >= rank
		})
	}
	return n
}

// balanceTerm is what Balance adds for a placement.
type balanceTerm struct {
	weight   int64
	maxCount int32
}

func (s balanceTerm) score(count int32) int64 {
	if s.weight == 0 {
		return 0
	}
	return s.weight * balanceScore(count, s.maxCount)
}
