package placement

import (
	"cmp"
	"slices"
	"sort"
)

// ranking keeps the candidates of a candidateSet, by index, sorted by base score, highest first, and by name where scores are equal.
// byScore has all of them. buckets has them once more, divided by the number of decisions that name the cluster: all candidates of a
// bucket have the same Balance score, whatever placement is scheduled. So the order within a bucket holds for every placement, and the
// best candidates are found by merging buckets from their heads.
type ranking struct {
	byScore      []int32
	buckets      []bucket // sorted by count
	bucketCounts []int32  // by index: the count of the bucket that the candidate is in
	syncedTo     int      // position in decisionCounts up to which the buckets are up to date
	bucketed     bool     // whether buckets and bucketCounts are filled
}

// bucket has the candidates whose clusters are named by count decisions.
type bucket struct {
	count      int32
	candidates []int32
}

// reset sorts all candidates. Buckets are filled when they are needed.
func (r *ranking) reset(cs *candidateSet, nameRanks []int32) {
	r.bucketed = false
	r.byScore = slices.Grow(r.byScore[:0], len(cs.clusterIDs))[:len(cs.clusterIDs)]
	for index := range r.byScore {
		r.byScore[index] = index32(index)
	}
	slices.SortFunc(r.byScore, func(x, y int32) int { return cs.compare(nameRanks, x, y) })
}

// compare orders two indexes: the higher base score first, then the earlier name.
func (cs *candidateSet) compare(nameRanks []int32, x, y int32) int {
	if order := cmp.Compare(cs.baseScores[y], cs.baseScores[x]); order != 0 {
		return order
	}
	return cmp.Compare(nameRanks[cs.clusterIDs[x]], nameRanks[cs.clusterIDs[y]])
}

// syncBuckets moves the candidates whose numbers of decisions have changed since the last call to their buckets.
func (r *ranking) syncBuckets(cs *candidateSet, counts *decisionCounts, nameRanks []int32) {
	moves, known := counts.changesSince(r.syncedTo)
	if !r.bucketed || !known || len(moves) > len(cs.clusterIDs)/8 {
		r.rebuildBuckets(cs, counts)
		return
	}
	for _, id := range moves {
		index, found := cs.indexOf(id)
		if !found || r.bucketCounts[index] == counts.of(id) {
			continue
		}
		r.removeFromBucket(cs, index32(index), nameRanks)
		r.bucketCounts[index] = counts.of(id)
		r.addToBucket(cs, index32(index), nameRanks)
	}
	r.syncedTo = counts.position()
}

// rebuildBuckets divides byScore into buckets, which keeps them sorted.
func (r *ranking) rebuildBuckets(cs *candidateSet, counts *decisionCounts) {
	r.bucketCounts = slices.Grow(r.bucketCounts[:0], len(cs.clusterIDs))[:len(cs.clusterIDs)]
	r.buckets = r.buckets[:0]
	at := -1
	for _, index := range r.byScore {
		count := counts.of(cs.clusterIDs[index])
		r.bucketCounts[index] = count
		if at < 0 || r.buckets[at].count != count {
			at = r.bucket(count)
		}
		r.buckets[at].candidates = append(r.buckets[at].candidates, index)
	}
	r.syncedTo, r.bucketed = counts.position(), true
}

// bucket returns the position of the bucket of a count, which it adds if there is none.
func (r *ranking) bucket(count int32) int {
	at, found := slices.BinarySearchFunc(r.buckets, count, func(s bucket, count int32) int { return cmp.Compare(s.count, count) })
	if !found {
		r.buckets = slices.Insert(r.buckets, at, bucket{count: count})
	}
	return at
}

func (r *ranking) addToBucket(cs *candidateSet, index int32, nameRanks []int32) {
	at := r.bucket(r.bucketCounts[index])
	r.buckets[at].candidates = slices.Insert(r.buckets[at].candidates, cs.search(r.buckets[at].candidates, index, nameRanks), index)
}

func (r *ranking) removeFromBucket(cs *candidateSet, index int32, nameRanks []int32) {
	at := r.bucket(r.bucketCounts[index])
	where := cs.search(r.buckets[at].candidates, index, nameRanks)
	r.buckets[at].candidates = slices.Delete(r.buckets[at].candidates, where, where+1)
	if len(r.buckets[at].candidates) == 0 {
		r.buckets = slices.Delete(r.buckets, at, at+1)
	}
}

// search returns the position of an index in a sorted list, or where it is to be inserted.
func (cs *candidateSet) search(candidates []int32, index int32, nameRanks []int32) int {
	return sort.Search(len(candidates), func(i int) bool { return cs.compare(nameRanks, candidates[i], index) >= 0 })
}

// remove removes a candidate, before its base score changes or its index is given up.
func (r *ranking) remove(cs *candidateSet, index int32, nameRanks []int32) {
	where := cs.search(r.byScore, index, nameRanks)
	r.byScore = slices.Delete(r.byScore, where, where+1)
	if r.bucketed {
		r.removeFromBucket(cs, index, nameRanks)
	}
}

// insert inserts a candidate, after its base score has changed or an index was inserted for it.
func (r *ranking) insert(cs *candidateSet, index int32, nameRanks []int32) {
	r.byScore = slices.Insert(r.byScore, cs.search(r.byScore, index, nameRanks), index)
	if r.bucketed {
		r.addToBucket(cs, index, nameRanks)
	}
}

// insertIndex shifts the indexes from index on by one, to make room for a new candidate.
func (r *ranking) insertIndex(index, count int32) {
	r.shiftIndexes(index, 1)
	if r.bucketed {
		r.bucketCounts = slices.Insert(r.bucketCounts, int(index), count)
	}
}

// removeIndex closes the gap of an index whose candidate was removed.
func (r *ranking) removeIndex(index int32) {
	r.shiftIndexes(index, -1)
	if r.bucketed {
		r.bucketCounts = slices.Delete(r.bucketCounts, int(index), int(index)+1)
	}
}

func (r *ranking) shiftIndexes(from, by int32) {
	shift := func(candidates []int32) {
		for i := range candidates {
			if candidates[i] >= from {
				candidates[i] += by
			}
		}
	}
	shift(r.byScore)
	if r.bucketed {
		for _, bucket := range r.buckets {
			shift(bucket.candidates)
		}
	}
}

// countBefore counts the candidates that rank before a cluster of a base score and a number of decisions. If byName is set, names decide
// between equal scores; otherwise candidates of the same score do not count.
func (r *ranking) countBefore(cs *candidateSet, nameRanks []int32, c *cluster, baseScore int64, count int32, term balanceTerm,
	byName bool) int {
	total, rank := baseScore+term.score(count), nameRanks[c.id]
	n := 0
	for _, bucket := range r.buckets {
		offset := term.score(bucket.count)
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

// balanceTerm computes what Balance adds to the score of a cluster for one placement: weight times a score that depends on the number of
// decisions. maxCount is the highest number of decisions of any cluster, without those of the placement.
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
