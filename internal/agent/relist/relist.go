// Package relist has caches list again once their API server answers again after an outage.
package relist

import (
	"context"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"

	"github.com/capstan-io/capstan/internal/machinery/retry"
)

// AfterOutage returns a source for a cache that lists again once the API server answers again. Without it, a cache is behind for up to two
// minutes: its pauses grow to a minute, and it takes two of them, because an API server that has started anew refuses to go on from the
// version that the cache has. One that was restored from a backup might not even know that version, and never send anything.
func AfterOutage(lw cache.ListerWatcher) cache.ListerWatcher {
	source := answering{cache.ToListerWatcherWithContext(lw)}
	return cache.ToListWatcherWithWatchListSemantics(
		&cache.ListWatch{ListWithContextFunc: source.ListWithContext, WatchFuncWithContext: source.WatchWithContext}, lw)
}

// NewInformer is for the options of a cache of controller-runtime.
func NewInformer(lw cache.ListerWatcher, kind runtime.Object, resync time.Duration, indexers cache.Indexers) cache.SharedIndexInformer {
	return cache.NewSharedIndexInformer(AfterOutage(lw), kind, resync, indexers)
}

// answering waits until the API server answers.
type answering struct{ cache.ListerWatcherWithContext }

// ListWithContext implements cache.ListerWithContext.
func (a answering) ListWithContext(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
	return retry.UntilAnswered(ctx, func(ctx context.Context) (runtime.Object, error) {
		return a.ListerWatcherWithContext.ListWithContext(ctx, options)
	})
}

// WatchWithContext implements cache.WatcherWithContext. A watch that takes the place of a list waits as that does, unless the API server
// fails to answer it: then the cache lists.
func (a answering) WatchWithContext(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
	if options.SendInitialEvents != nil {
		return retry.UntilReached(ctx, func(ctx context.Context) (watch.Interface, error) {
			return a.ListerWatcherWithContext.WatchWithContext(ctx, options)
		})
	}
	watching, err := a.ListerWatcherWithContext.WatchWithContext(ctx, options)
	if retry.IsUnreached(err) { // after any other failure, a cache lists as well
		return nil, apierrors.NewResourceExpired("the API server was away: " + err.Error())
	}
	return watching, err
}
