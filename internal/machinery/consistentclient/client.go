// Package consistentclient lets controllers read from a cache and yet see what they have written themselves, or a reconcile would write
// again what the one before it wrote.
package consistentclient

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// readTimeout is how long a read waits until the cache contains a write. Usually that takes no time. But an API server that was
// unreachable shows earlier writes only when it is back, and never of one to an object that has since been deleted, or deleted and
// created again: a controller that waited for that would do nothing else.
const readTimeout = 10 * time.Second

// staleFor is how long reads do not wait after one of the same object has reached readTimeout.
const staleFor = time.Minute

// NewClient is a client.NewClientFunc. Reads see what the client wrote before, unless the cache does not receive it within
// ten seconds; then they see what the cache has, and the API server refuses updates that are based on it.
func NewClient(config *rest.Config, options client.Options) (client.Client, error) {
	options.Cache.EnableReadYourWritesConsistency = new(true)
	c, err := client.New(config, options)
	if err != nil {
		return nil, err
	}
	return newConsistentClient(c), nil
}

type consistentClient struct {
	client.Client

	mu sync.Mutex
	// stale is until when reads do not wait for the cache, by what is read, and over when that ends for the last of them.
	stale map[string]time.Time
	over  time.Time
}

func newConsistentClient(c client.Client) *consistentClient {
	return &consistentClient{Client: c, stale: map[string]time.Time{}}
}

// Get implements client.Client.
func (c *consistentClient) Get(ctx context.Context, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
	what := func() string { return nameOf(obj) + " " + key.String() }
	waited, err := c.wait(ctx, what, func(ctx context.Context) error { return c.Client.Get(ctx, key, obj, opts...) })
	if waited {
		return c.Client.Get(ctx, key, obj, append(slices.Clone(opts), client.DisableReadYourWritesConsistency)...)
	}
	return err
}

// List implements client.Client.
func (c *consistentClient) List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	what := func() string { return nameOf(list) }
	waited, err := c.wait(ctx, what, func(ctx context.Context) error { return c.Client.List(ctx, list, opts...) })
	if waited {
		return c.Client.List(ctx, list, append(slices.Clone(opts), client.DisableReadYourWritesConsistency)...)
	}
	return err
}

// nameOf distinguishes types, and what has no type of its own by the kind that it says.
func nameOf(o runtime.Object) string {
	return fmt.Sprintf("%T %s", o, o.GetObjectKind().GroupVersionKind())
}

// wait reports whether reading was given up because it took too long, now or a moment ago. Most reads take a microsecond, and no longer
// than to name what is read, so that is not named unless it matters.
func (c *consistentClient) wait(ctx context.Context, what func() string, read func(context.Context) error) (waited bool, err error) {
	if c.isStale(what) {
		return true, nil
	}
	bounded, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	err = read(bounded)
	waited = errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil
	if waited {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.over = time.Now().Add(staleFor)
		c.stale[what()] = c.over
	}
	return waited, err
}

func (c *consistentClient) isStale(what func() string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.stale) == 0 {
		return false
	}
	now := time.Now()
	if now.After(c.over) {
		clear(c.stale)
		return false
	}
	until, stale := c.stale[what()]
	return stale && !now.After(until)
}
