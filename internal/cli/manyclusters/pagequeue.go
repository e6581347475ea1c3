package manyclusters

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	"k8s.io/utils/clock"
)

// pageQueue hands over the pages of clusters as they come, so that no cluster waits for another one. Those that are queued at the same time
// are in the order of the clusters. It has no more than a number of bytes, or one page.
type pageQueue struct {
	mu       sync.Mutex
	changed  *sync.Cond
	pages    []queuedPage // those that are not taken yet
	open     int          // clusters that may have more
	bytes    int
	limit    int
	batching bool // pages are queued for a while before any is taken
}

type queuedPage struct {
	cluster int
	page    Page
}

func newPageQueue(clusters, limit int) *pageQueue {
	q := &pageQueue{open: clusters, limit: limit}
	q.changed = sync.NewCond(&q.mu)
	return q
}

// batch has the pages that come within a time be taken together. It ends with the function that it returns.
func (q *pageQueue) batch(clk clock.WithDelayedExecution, delay time.Duration) (stop func() bool) {
	q.batching = delay > 0
	return clk.AfterFunc(delay, func() {
		q.mu.Lock()
		defer q.mu.Unlock()
		q.batching = false
		q.changed.Broadcast()
	}).Stop
}

// put adds a page of a cluster. It returns when there is room for it.
func (q *pageQueue) put(ctx context.Context, cluster int, page Page) error {
	defer context.AfterFunc(ctx, q.wake)()
	q.mu.Lock()
	defer q.mu.Unlock()
	for len(q.pages) > 0 && q.bytes+page.size > q.limit && ctx.Err() == nil {
		q.batching = false
		q.changed.Broadcast()
		q.changed.Wait()
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	q.pages = append(q.pages, queuedPage{cluster, page})
	q.bytes += page.size
	q.changed.Broadcast()
	return nil
}

// done says that a cluster has no more pages.
func (q *pageQueue) done() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.open--
	q.changed.Broadcast()
}

func (q *pageQueue) wake() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.changed.Broadcast()
}

// next takes the pages that are queued, and waits until there are some. None is the end.
func (q *pageQueue) next() []Page {
	q.mu.Lock()
	defer q.mu.Unlock()
	for q.open > 0 && (q.batching || len(q.pages) == 0) {
		q.changed.Wait()
	}
	slices.SortStableFunc(q.pages, func(x, y queuedPage) int { return cmp.Compare(x.cluster, y.cluster) })
	var pages []Page
	for i := range q.pages {
		pages = append(pages, q.pages[i].page)
	}
	q.pages, q.bytes = nil, 0
	q.changed.Broadcast()
	return pages
}
