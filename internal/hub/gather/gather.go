// Package gather has many events cost one look: those of a thousand clusters come one by one, and what they are about is often one object.
package gather

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

// ByName asks, a while after an event, for what an object has to do with by its name.
func ByName(during time.Duration, of handler.MapFunc) handler.EventHandler {
	return handler.Funcs{
		CreateFunc: func(ctx context.Context, e event.CreateEvent, q queue) { add(q, during, of(ctx, e.Object)) },
		DeleteFunc: func(ctx context.Context, e event.DeleteEvent, q queue) { add(q, during, of(ctx, e.Object)) },
		UpdateFunc: func(ctx context.Context, e event.UpdateEvent, q queue) { add(q, during, of(ctx, e.ObjectNew)) },
	}
}

// ByLabels asks, a while after an event, for what an object has to do with by its labels, and by those that it had before.
func ByLabels(during time.Duration, of handler.MapFunc) handler.EventHandler {
	byName := ByName(during, of)
	return handler.Funcs{
		CreateFunc: byName.Create, DeleteFunc: byName.Delete,
		UpdateFunc: func(ctx context.Context, e event.UpdateEvent, q queue) {
			byName.Update(ctx, e, q)
			if !maps.Equal(e.ObjectOld.GetLabels(), e.ObjectNew.GetLabels()) {
				add(q, during, of(ctx, e.ObjectOld))
			}
		},
	}
}

func add(q queue, after time.Duration, requests []reconcile.Request) {
	for _, request := range requests {
		q.AddAfter(request, after)
	}
}
