package trigger_test

import (
	"context"
	"testing"

	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/capstan-io/capstan/internal/addon/trigger"
)

func itself(_ context.Context, o client.Object) []reconcile.Request {
	return []reconcile.Request{{NamespacedName: client.ObjectKeyFromObject(o)}}
}

// AF-23: every controller that runs is asked, and nobody waits for those that do not.
func TestFire(t *testing.T) {
	t.Parallel()
	tr := &trigger.Trigger{}
	tr.Fire("c1", "too-early")
	var queues []workqueue.TypedRateLimitingInterface[reconcile.Request]
	for range 2 {
		queue := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[reconcile.Request]())
		t.Cleanup(queue.ShutDown)
		if err := tr.Source(itself).Start(t.Context(), queue); err != nil {
			t.Fatal(err)
		}
		queues = append(queues, queue)
	}
	tr.Fire("c1", "hello")
	for i, queue := range queues {
		if queue.Len() != 1 {
			t.Fatalf("controller %d is asked for %d add-ons", i, queue.Len())
		}
		if request, _ := queue.Get(); request.String() != "c1/hello" {
			t.Errorf("controller %d is asked for %s", i, request)
		}
	}
	if err := (*trigger.Trigger)(nil).Source(itself).Start(t.Context(), queues[0]); err != nil {
		t.Error(err)
	}
}
