package manyclusters

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	"k8s.io/utils/clock"
)

// arrivals hands over the pages of clusters as they come, so that no cluster waits for another one. Those that are there at the same time
// are in the order of the clusters. It holds no more than a number of bytes, or one page.
type arrivals struct {
	mu       sync.Mutex
	changed  *sync.Cond
	pages    []arrival // those that are not taken yet
	open     int       // clusters that may have more
	held     int
	limit    int
	patience bool // to wait for other clusters before anything is taken
}

type arrival struct {
	cluster int
	page    Page
}

func newArrivals(clusters, limit int) *arrivals {
	a := &arrivals{open: clusters, limit: limit}
	a.changed = sync.NewCond(&a.mu)
	return a
}

// wait has what comes within a time be taken together. It ends with the function that it returns.
func (a *arrivals) wait(clk clock.WithDelayedExecution, patience time.Duration) (stop func() bool) {
	a.patience = patience > 0
	return clk.AfterFunc(patience, func() {
		a.mu.Lock()
		defer a.mu.Unlock()
		a.patience = false
		a.changed.Broadcast()
	}).Stop
}

// put adds a page of a cluster. It returns when there is room for it.
func (a *arrivals) put(ctx context.Context, cluster int, page Page) error {
	defer context.AfterFunc(ctx, a.wake)()
	a.mu.Lock()
	defer a.mu.Unlock()
	for len(a.pages) > 0 && a.held+page.size > a.limit && ctx.Err() == nil {
		a.patience = false
		a.changed.Broadcast()
		a.changed.Wait()
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	a.pages = append(a.pages, arrival{cluster, page})
	a.held += page.size
	a.changed.Broadcast()
	return nil
}

// end says that a cluster has no more pages.
func (a *arrivals) end() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.open--
	a.changed.Broadcast()
}

func (a *arrivals) wake() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.changed.Broadcast()
}

// take returns the pages that are there, and waits until there are some. None is the end.
func (a *arrivals) take() []Page {
	a.mu.Lock()
	defer a.mu.Unlock()
	for a.open > 0 && (a.patience || len(a.pages) == 0) {
		a.changed.Wait()
	}
	slices.SortStableFunc(a.pages, func(x, y arrival) int { return cmp.Compare(x.cluster, y.cluster) })
	var taken []Page
	for i := range a.pages {
		taken = append(taken, a.pages[i].page)
	}
	a.pages, a.held = nil, 0
	a.changed.Broadcast()
	return taken
}
