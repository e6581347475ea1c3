package requeue_test

import (
	"context"
	"testing"

	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/capstan-io/capstan/addon/internal/requeue"
)

func itself(_ context.Context, o client.Object) []reconcile.Request {
	return []reconcile.Request{{NamespacedName: client.ObjectKeyFromObject(o)}}
}

// AF-23: the add-on is enqueued in every controller that runs.
func TestAdd(t *testing.T) {
	t.Parallel()
	addOns := &requeue.AddOns{}
	addOns.Add("c1", "too-early")
	var queues []workqueue.TypedRateLimitingInterface[reconcile.Request]
	for range 2 {
		queue := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[reconcile.Request]())
		t.Cleanup(queue.ShutDown)
		if err := addOns.Source(itself).Start(t.Context(), queue); err != nil {
			t.Fatal(err)
		}
		queues = append(queues, queue)
	}
	addOns.Add("c1", "hello")
	for i, queue := range queues {
		if queue.Len() != 1 {
			t.Fatalf("controller %d has %d add-ons in its queue", i, queue.Len())
		}
		if request, _ := queue.Get(); request.String() != "c1/hello" {
			t.Errorf("controller %d has %s in its queue", i, request)
		}
	}
	if err := (*requeue.AddOns)(nil).Source(itself).Start(t.Context(), queues[0]); err != nil {
		t.Error(err)
	}
}
