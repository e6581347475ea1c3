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

// CA-02: what the first clusters answer is there before the last ones have answered, in the order of the clusters.
func TestSequenceStreamsInOrder(t *testing.T) {
	t.Parallel()
	s := newSequence(3, 100)
	put := func(cluster int, name string) {
		t.Helper()
		if err := s.put(t.Context(), cluster, Page{Cluster: name, size: 1}); err != nil {
			t.Fatal(err)
		}
	}
	put(1, "b")
	put(0, "a")
	if got := names(s.take()); got != "a" {
		t.Errorf("took %s while the first cluster may have more", got)
	}
	put(0, "A")
	s.end(0)
	if got := names(s.take()); got != "Ab" {
		t.Errorf("took %s", got)
	}
	s.end(1)
	put(2, "c")
	s.end(2)
	if got := names(s.take()); got != "c" || s.held != 0 {
		t.Errorf("took %s, and holds %d", got, s.held)
	}
	if got := s.take(); got != nil {
		t.Errorf("took %v after the end", got)
	}
}

// CA-02: a cluster waits when others before it have more to say than is to be held, and the one whose turn it is never does.
func TestSequenceIsBounded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newSequence(3, 10)
		defer s.wait(clock.RealClock{}, time.Hour)()
		var waiting sync.WaitGroup
		var interrupted error
		ctx, cancel := context.WithCancelCause(t.Context())
		if err := s.put(ctx, 2, Page{Cluster: "c", size: 10}); err != nil {
			t.Fatal(err)
		}
		waiting.Go(func() {
			interrupted = s.put(ctx, 1, Page{Cluster: "b", size: 1})
		})
		synctest.Wait()
		if s.held != 10 {
			t.Errorf("holds %d bytes", s.held)
		}
		if err := s.put(ctx, 0, Page{Cluster: "a", size: 100}); err != nil {
			t.Fatal(err)
		}
		if got := names(s.take()); got != "a" {
			t.Errorf("took %s", got)
		}
		ended := errors.New("ended")
		cancel(ended)
		waiting.Wait()
		if !errors.Is(interrupted, ended) {
			t.Errorf("interrupted with %v", interrupted)
		}
	})
}

// CA-02: answers that come soon are taken together.
func TestSequenceIsPatient(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newSequence(3, 100)
		defer s.wait(clock.RealClock{}, time.Second)()
		start := time.Now()
		_ = s.put(t.Context(), 0, Page{Cluster: "a"})
		s.end(0)
		go func() {
			<-time.After(time.Second / 2)
			_ = s.put(t.Context(), 1, Page{Cluster: "b"})
			s.end(1)
		}()
		if got := names(s.take()); got != "ab" || time.Since(start) != time.Second {
			t.Errorf("took %s after %s", got, time.Since(start))
		}
		s.end(2)
		if got := s.take(); got != nil {
			t.Errorf("took %v", got)
		}
	})
}
