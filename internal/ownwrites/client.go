// Package ownwrites lets controllers read from a cache and yet see what they have written themselves, or a reconcile would write
// again what the one before it wrote.
package ownwrites

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

// patience is how long a read waits for the cache to hear of a write. Mostly that takes no time. But an API server that has gone
// tells of a write of before when it is back, and never of one to an object that was deleted meanwhile, or deleted and made
// anew: a controller that waited for that would do nothing else.
const patience = 10 * time.Second

// deafness is for how long reads do not wait for what one has waited for in vain.
const deafness = time.Minute

// NewClient is a client.NewClientFunc. Reads see what was written by the client before, unless the cache does not hear of it for
// ten seconds; then they see what the cache has, and the API server refuses updates that are based on it.
func NewClient(config *rest.Config, options client.Options) (client.Client, error) {
	options.Cache.EnableReadYourWritesConsistency = new(true)
	c, err := client.New(config, options)
	if err != nil {
		return nil, err
	}
	return newPatient(c), nil
}

type patient struct {
	client.Client

	mu sync.Mutex
	// deaf is until when the cache is taken not to hear of what was written, by what is read.
	deaf map[string]time.Time
}

func newPatient(c client.Client) *patient { return &patient{Client: c, deaf: map[string]time.Time{}} }

// Get implements client.Client.
func (c *patient) Get(ctx context.Context, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
	what := nameOf(obj) + " " + key.String()
	waited, err := c.wait(ctx, what, func(ctx context.Context) error { return c.Client.Get(ctx, key, obj, opts...) })
	if waited {
		return c.Client.Get(ctx, key, obj, append(slices.Clone(opts), client.DisableReadYourWritesConsistency)...)
	}
	return err
}

// List implements client.Client.
func (c *patient) List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	waited, err := c.wait(ctx, nameOf(list), func(ctx context.Context) error { return c.Client.List(ctx, list, opts...) })
	if waited {
		return c.Client.List(ctx, list, append(slices.Clone(opts), client.DisableReadYourWritesConsistency)...)
	}
	return err
}

// nameOf tells types from each other, and what has no type of its own by the kind that it says.
func nameOf(o runtime.Object) string {
	return fmt.Sprintf("%T %s", o, o.GetObjectKind().GroupVersionKind())
}

// wait tells whether reading was given up because it took too long, now or a moment ago.
func (c *patient) wait(ctx context.Context, what string, read func(context.Context) error) (waited bool, err error) {
	if c.isDeaf(what) {
		return true, nil
	}
	bounded, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	err = read(bounded)
	waited = errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil
	if waited {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.deaf[what] = time.Now().Add(deafness)
	}
	return waited, err
}

func (c *patient) isDeaf(what string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	until, deaf := c.deaf[what]
	if deaf && time.Now().After(until) {
		delete(c.deaf, what)
		return false
	}
	return deaf
}
