//go:build bench

package bench

import (
	"sync"
	"testing"
	"time"

	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	workv1 "github.com/capstan-io/capstan/api/work/v1"
	"github.com/capstan-io/capstan/test/env"
)

// workWatch sees all works of a hub.
type workWatch struct{ informer cache.Informer }

func watchAllWorks(t *testing.T, hub *env.Server) workWatch {
	config, err := hub.Config()
	if err != nil {
		t.Fatal(err)
	}
	works, err := cache.New(config, cache.Options{Scheme: env.Scheme(), DefaultTransform: cache.TransformStripManagedFields()})
	if err != nil {
		t.Fatal(err)
	}
	informer, err := works.GetInformer(t.Context(), &workv1.ManifestWork{}, cache.BlockUntilSynced(false))
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		if err := works.Start(t.Context()); err != nil {
			t.Error(err)
		}
	}()
	if !works.WaitForCacheSync(t.Context()) {
		t.Fatal("the informer of works does not start")
	}
	return workWatch{informer}
}

// tally is when each work was first seen to be as wanted.
type tally struct {
	what string
	want int
	mu   sync.Mutex
	at   map[client.ObjectKey]time.Time
	all  chan struct{}
}

// count begins a tally of so many works.
func (w workWatch) count(t *testing.T, what string, want int, wanted func(*workv1.ManifestWork) bool) *tally {
	c := &tally{what: what, want: want, at: map[client.ObjectKey]time.Time{}, all: make(chan struct{})}
	see := func(o any) {
		if work, ok := o.(*workv1.ManifestWork); ok && wanted(work) {
			c.add(client.ObjectKeyFromObject(work))
		}
	}
	w.begin(t, c, toolscache.ResourceEventHandlerFuncs{AddFunc: see, UpdateFunc: func(_, o any) { see(o) }})
	return c
}

// countGone begins a tally of so many works that go.
func (w workWatch) countGone(t *testing.T, want int) *tally {
	c := &tally{what: "gone", want: want, at: map[client.ObjectKey]time.Time{}, all: make(chan struct{})}
	w.begin(t, c, toolscache.ResourceEventHandlerFuncs{DeleteFunc: func(o any) {
		if key, err := toolscache.DeletionHandlingObjectToName(o); err == nil {
			c.add(client.ObjectKey{Namespace: key.Namespace, Name: key.Name})
		}
	}})
	return c
}

func (w workWatch) begin(t *testing.T, c *tally, handler toolscache.ResourceEventHandler) {
	registration, err := w.informer.AddEventHandler(handler)
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		select {
		case <-c.all:
		case <-t.Context().Done():
		}
		_ = w.informer.RemoveEventHandler(registration)
	}()
}

func (c *tally) add(work client.ObjectKey) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, seen := c.at[work]; seen || len(c.at) == c.want {
		return
	}
	if c.at[work] = time.Now(); len(c.at) == c.want {
		close(c.all)
	}
}

// await returns when the last was seen.
func (c *tally) await(t *testing.T) time.Time {
	timeout := 10*time.Minute + time.Duration(c.want)*writeEach
	select {
	case <-c.all:
	case <-time.After(timeout):
		c.mu.Lock()
		defer c.mu.Unlock()
		t.Fatalf("after %s, %d of %d works are %s", timeout, len(c.at), c.want, c.what)
	}
	var times []time.Time
	for _, at := range c.at {
		times = append(times, at)
	}
	return latest(times)
}

// ofCluster narrows down what is wanted to the works of one cluster.
func ofCluster(cluster string, wanted func(*workv1.ManifestWork) bool) func(*workv1.ManifestWork) bool {
	return func(w *workv1.ManifestWork) bool { return w.Namespace == cluster && wanted(w) }
}
