package manyclusters

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/utils/clock"
)

func names(pages []Page) (all string) {
	for _, page := range pages {
		all += page.Cluster
	}
	return all
}

// CA-02: what a cluster answers is there before others have answered, and what is there at the same time is in the order of the clusters.
func TestPageQueueStreams(t *testing.T) {
	t.Parallel()
	q := newPageQueue(3, 100)
	put := func(cluster int, name string) {
		t.Helper()
		if err := q.put(t.Context(), cluster, Page{Cluster: name, size: 1}); err != nil {
			t.Fatal(err)
		}
	}
	put(1, "b")
	if got := names(q.next()); got != "b" {
		t.Errorf("took %s while the first cluster has not answered", got)
	}
	put(2, "c")
	put(0, "a")
	put(2, "C")
	put(0, "A")
	if got := names(q.next()); got != "aAcC" || q.bytes != 0 {
		t.Errorf("took %s, and holds %d", got, q.bytes)
	}
	q.done()
	q.done()
	put(1, "B")
	q.done()
	if got := names(q.next()); got != "B" {
		t.Errorf("took %s", got)
	}
	if got := q.next(); got != nil {
		t.Errorf("took %v after the end", got)
	}
}

// CA-02: clusters wait while more than the limit has not been taken. A page alone is queued whatever its size.
func TestPageQueueIsBounded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		q := newPageQueue(3, 10)
		defer q.batch(clock.RealClock{}, time.Hour)()
		var waiting sync.WaitGroup
		var interrupted error
		ctx, cancel := context.WithCancelCause(t.Context())
		if err := q.put(ctx, 2, Page{Cluster: "c", size: 100}); err != nil {
			t.Fatal(err)
		}
		waiting.Go(func() { _ = q.put(ctx, 1, Page{Cluster: "b", size: 10}) })
		synctest.Wait()
		if q.bytes != 100 {
			t.Errorf("holds %d bytes", q.bytes)
		}
		if got := names(q.next()); got != "c" {
			t.Errorf("took %s", got)
		}
		waiting.Wait()
		waiting.Go(func() { interrupted = q.put(ctx, 0, Page{Cluster: "a", size: 1}) })
		synctest.Wait()
		ended := errors.New("ended")
		cancel(ended)
		waiting.Wait()
		if !errors.Is(interrupted, ended) || names(q.next()) != "b" {
			t.Errorf("interrupted with %v", interrupted)
		}
	})
}

// CA-02: answers that come soon are taken together.
func TestPageQueueBatches(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		q := newPageQueue(3, 100)
		defer q.batch(clock.RealClock{}, time.Second)()
		start := time.Now()
		_ = q.put(t.Context(), 1, Page{Cluster: "b"})
		q.done()
		go func() {
			<-time.After(time.Second / 2)
			_ = q.put(t.Context(), 0, Page{Cluster: "a"})
			q.done()
		}()
		if got := names(q.next()); got != "ab" || time.Since(start) != time.Second {
			t.Errorf("took %s after %s", got, time.Since(start))
		}
		q.done()
		if got := q.next(); got != nil {
			t.Errorf("took %v", got)
		}
	})
}
