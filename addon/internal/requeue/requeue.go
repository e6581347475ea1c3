// Package requeue enqueues add-ons in their controllers when nothing that the controllers watch has changed.
package requeue

import (
	"context"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"
)

// AddOns enqueues add-ons in all controllers that watch one of its Sources. Its zero value and nil have none.
type AddOns struct {
	mu     sync.Mutex
	queues []func(addOn *metav1.PartialObjectMetadata)
}

// Source returns a source for a controller that enqueues what an add-on, known by its namespace and name, is mapped to.
func (a *AddOns) Source(to handler.MapFunc) source.Source {
	return source.Func(func(ctx context.Context, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
		if a == nil {
			return nil
		}
		a.mu.Lock()
		defer a.mu.Unlock()
		a.queues = append(a.queues, func(addOn *metav1.PartialObjectMetadata) {
			for _, request := range to(ctx, addOn) {
				queue.Add(request)
			}
		})
		return nil
	})
}

// Add enqueues an add-on of a cluster in the controllers that run. The others reconcile all add-ons when they start.
func (a *AddOns) Add(cluster, addOn string) {
	a.mu.Lock()
	queues := a.queues
	a.mu.Unlock()
	for _, enqueue := range queues {
		enqueue(&metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Namespace: cluster, Name: addOn}})
	}
}
