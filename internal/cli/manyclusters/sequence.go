package manyclusters

import (
	"context"
	"sync"
	"time"

	"k8s.io/utils/clock"
)

// sequence brings the pages of clusters that answer at any time into the order of the clusters. It holds no more than a number of
// bytes, but for those of the cluster whose turn it is.
type sequence struct {
	mu       sync.Mutex
	changed  *sync.Cond
	pages    [][]Page // by cluster, those that are not taken yet
	ended    []bool
	turn     int
	held     int
	limit    int
	patience bool // to wait for other clusters before anything is taken
}

func newSequence(clusters, limit int) *sequence {
	s := &sequence{pages: make([][]Page, clusters), ended: make([]bool, clusters), limit: limit}
	s.changed = sync.NewCond(&s.mu)
	return s
}

// wait has what comes within a time be taken together. It ends with the function that it returns.
func (s *sequence) wait(clk clock.WithDelayedExecution, patience time.Duration) (stop func() bool) {
	s.patience = patience > 0
	return clk.AfterFunc(patience, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.patience = false
		s.changed.Broadcast()
	}).Stop
}

// put adds a page of a cluster. It returns when there is room for it.
func (s *sequence) put(ctx context.Context, cluster int, page Page) error {
	defer context.AfterFunc(ctx, s.wake)()
	s.mu.Lock()
	defer s.mu.Unlock()
	for cluster != s.turn && s.held+page.size > s.limit && ctx.Err() == nil {
		s.patience = false
		s.changed.Broadcast()
		s.changed.Wait()
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	s.pages[cluster] = append(s.pages[cluster], page)
	s.held += page.size
	s.changed.Broadcast()
	return nil
}

// end says that a cluster has no more pages.
func (s *sequence) end(cluster int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ended[cluster] = true
	s.changed.Broadcast()
}

func (s *sequence) wake() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.changed.Broadcast()
}

// take returns the pages whose turn it is, and waits until there are some. None is the end.
func (s *sequence) take() []Page {
	s.mu.Lock()
	defer s.mu.Unlock()
	for {
		if !s.patience || s.allEnded() {
			if ready := s.ready(); len(ready) > 0 || s.turn == len(s.pages) {
				s.changed.Broadcast()
				return ready
			}
		}
		s.changed.Wait()
	}
}

func (s *sequence) allEnded() bool {
	for _, ended := range s.ended {
		if !ended {
			return false
		}
	}
	return true
}

// ready takes what there is, up to a cluster that may have more.
func (s *sequence) ready() []Page {
	var ready []Page
	for ; s.turn < len(s.pages); s.turn++ {
		for _, page := range s.pages[s.turn] {
			s.held -= page.size
			ready = append(ready, page)
		}
		s.pages[s.turn] = nil
		if !s.ended[s.turn] {
			break
		}
	}
	return ready
}
