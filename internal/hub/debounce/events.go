package debounce

import (
	"context"
	"maps"
	"time"

	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

type queue = workqueue.TypedRateLimitingInterface[reconcile.Request]

// ByName enqueues what the function maps an object to, some time after the event; the queue merges what is enqueued meanwhile. Of an event
// of no object, as those of a channel may be, it is nil.
func ByName(delay time.Duration, of handler.MapFunc) handler.EventHandler {
	return handler.Funcs{
		CreateFunc: func(ctx context.Context, e event.CreateEvent, q queue) { add(q, delay, of(ctx, e.Object)) },
		DeleteFunc: func(ctx context.Context, e event.DeleteEvent, q queue) { add(q, delay, of(ctx, e.Object)) },
		UpdateFunc: func(ctx context.Context, e event.UpdateEvent, q queue) { add(q, delay, of(ctx, e.ObjectNew)) },

		GenericFunc: func(ctx context.Context, e event.GenericEvent, q queue) { add(q, delay, of(ctx, e.Object)) },
	}
}

// ByLabels is like ByName for mappings by labels: when these change, what the object before the change is mapped to is enqueued, too.
func ByLabels(delay time.Duration, of handler.MapFunc) handler.EventHandler {
	byName := ByName(delay, of)
	return handler.Funcs{
		CreateFunc: byName.Create, DeleteFunc: byName.Delete, GenericFunc: byName.Generic,
		UpdateFunc: func(ctx context.Context, e event.UpdateEvent, q queue) {
			byName.Update(ctx, e, q)
			if !maps.Equal(e.ObjectOld.GetLabels(), e.ObjectNew.GetLabels()) {
				add(q, delay, of(ctx, e.ObjectOld))
			}
		},
	}
}

func add(q queue, after time.Duration, requests []reconcile.Request) {
	for _, request := range requests {
		q.AddAfter(request, after)
	}
}
