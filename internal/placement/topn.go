package placement

import (
	"container/heap"
	"iter"
)

// topN returns the n best clusters, in no order. n is at least 1.
func topN(clusters iter.Seq[scoredCluster], n int) []scoredCluster {
	top := make(worstFirst, 0, n)
	for c := range clusters {
		switch {
		case len(top) < n:
			if top = append(top, c); len(top) == n {
				heap.Init(&top)
			}
		case c.before(top[0]):
			top[0] = c
			heap.Fix(&top, 0)
		}
	}
	return top
}

// worstFirst is a heap of clusters whose root is the worst of them.
type worstFirst []scoredCluster

func (h worstFirst) Len() int           { return len(h) }
func (h worstFirst) Less(i, j int) bool { return h[j].before(h[i]) }
func (h worstFirst) Swap(i, j int)      { h[i], h[j] = h[j], h[i] }
func (h *worstFirst) Push(x any)        { *h = append(*h, x.(scoredCluster)) }

func (h *worstFirst) Pop() any {
	last := (*h)[len(*h)-1]
	*h = (*h)[:len(*h)-1]
	return last
}
