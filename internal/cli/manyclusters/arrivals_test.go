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
func TestArrivalsStream(t *testing.T) {
	t.Parallel()
	a := newArrivals(3, 100)
	put := func(cluster int, name string) {
		t.Helper()
		if err := a.put(t.Context(), cluster, Page{Cluster: name, size: 1}); err != nil {
			t.Fatal(err)
		}
	}
	put(1, "b")
	if got := names(a.take()); got != "b" {
		t.Errorf("took %s while the first cluster has not answered", got)
	}
	put(2, "c")
	put(0, "a")
	put(2, "C")
	put(0, "A")
	if got := names(a.take()); got != "aAcC" || a.held != 0 {
		t.Errorf("took %s, and holds %d", got, a.held)
	}
	a.end()
	a.end()
	put(1, "B")
	a.end()
	if got := names(a.take()); got != "B" {
		t.Errorf("took %s", got)
	}
	if got := a.take(); got != nil {
		t.Errorf("took %v after the end", got)
	}
}

// CA-02: clusters wait while more than is to be held has not been taken. A page alone is held whatever its size.
func TestArrivalsAreBounded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a := newArrivals(3, 10)
		defer a.wait(clock.RealClock{}, time.Hour)()
		var waiting sync.WaitGroup
		var interrupted error
		ctx, cancel := context.WithCancelCause(t.Context())
		if err := a.put(ctx, 2, Page{Cluster: "c", size: 100}); err != nil {
			t.Fatal(err)
		}
		waiting.Go(func() { _ = a.put(ctx, 1, Page{Cluster: "b", size: 10}) })
		synctest.Wait()
		if a.held != 100 {
			t.Errorf("holds %d bytes", a.held)
		}
		if got := names(a.take()); got != "c" {
			t.Errorf("took %s", got)
		}
		waiting.Wait()
		waiting.Go(func() { interrupted = a.put(ctx, 0, Page{Cluster: "a", size: 1}) })
		synctest.Wait()
		ended := errors.New("ended")
		cancel(ended)
		waiting.Wait()
		if !errors.Is(interrupted, ended) || names(a.take()) != "b" {
			t.Errorf("interrupted with %v", interrupted)
		}
	})
}

// CA-02: answers that come soon are taken together.
func TestArrivalsArePatient(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a := newArrivals(3, 100)
		defer a.wait(clock.RealClock{}, time.Second)()
		start := time.Now()
		_ = a.put(t.Context(), 1, Page{Cluster: "b"})
		a.end()
		go func() {
			<-time.After(time.Second / 2)
			_ = a.put(t.Context(), 0, Page{Cluster: "a"})
			a.end()
		}()
		if got := names(a.take()); got != "ab" || time.Since(start) != time.Second {
			t.Errorf("took %s after %s", got, time.Since(start))
		}
		a.end()
		if got := a.take(); got != nil {
			t.Errorf("took %v", got)
		}
	})
}
