// Package ownwrites lets controllers read from a cache and yet see what they have written themselves, or a reconcile would write
// again what the one before it wrote.
package ownwrites

import (
	"context"
	"errors"
	"slices"
	"time"

	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// patience is how long a read waits for the cache to hear of a write. Mostly that takes no time. But an API server that has gone
// tells of a write of before when it is back, and never of one to an object that was deleted meanwhile: a controller that
// waited for that would do nothing else.
const patience = 10 * time.Second

// NewClient is a client.NewClientFunc. Reads see what was written by the client before, unless the cache does not hear of it for
// ten seconds; then they see what the cache has, and the API server refuses updates that are based on it.
func NewClient(config *rest.Config, options client.Options) (client.Client, error) {
	options.Cache.EnableReadYourWritesConsistency = new(true)
	c, err := client.New(config, options)
	if err != nil {
		return nil, err
	}
	return patient{c}, nil
}

type patient struct{ client.Client }

func (c patient) Get(ctx context.Context, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
	waited, err := wait(ctx, func(ctx context.Context) error { return c.Client.Get(ctx, key, obj, opts...) })
	if waited {
		return c.Client.Get(ctx, key, obj, append(slices.Clone(opts), client.DisableReadYourWritesConsistency)...)
	}
	return err
}

func (c patient) List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	waited, err := wait(ctx, func(ctx context.Context) error { return c.Client.List(ctx, list, opts...) })
	if waited {
		return c.Client.List(ctx, list, append(slices.Clone(opts), client.DisableReadYourWritesConsistency)...)
	}
	return err
}

// wait tells whether reading was given up because it took too long.
func wait(ctx context.Context, read func(context.Context) error) (waited bool, err error) {
	bounded, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	err = read(bounded)
	return errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil, err
}
