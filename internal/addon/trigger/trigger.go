// Package trigger has controllers look at an add-on again though nothing that they watch has changed.
package trigger

import (
	"context"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"
)

// Trigger reaches the controllers that have a Source of it. Its zero value and nil reach none.
type Trigger struct {
	mu   sync.Mutex
	asks []func(addOn *metav1.PartialObjectMetadata)
}

// Source asks a controller for what an add-on, known by its namespace and name, is mapped to.
func (t *Trigger) Source(to handler.MapFunc) source.Source {
	return source.Func(func(ctx context.Context, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
		if t == nil {
			return nil
		}
		t.mu.Lock()
		defer t.mu.Unlock()
		t.asks = append(t.asks, func(addOn *metav1.PartialObjectMetadata) {
			for _, request := range to(ctx, addOn) {
				queue.Add(request)
			}
		})
		return nil
	})
}

// Fire has the controllers that run look at an add-on on a cluster. Those that do not run yet look at all of them when they start.
func (t *Trigger) Fire(cluster, addOn string) {
	t.mu.Lock()
	asks := t.asks
	t.mu.Unlock()
	for _, ask := range asks {
		ask(&metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Namespace: cluster, Name: addOn}})
	}
}
