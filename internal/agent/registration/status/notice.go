package status

import (
	"context"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"
)

// Notice is a condition that another part of the agent wants the hub to know. It goes out with the rest of the status.
type Notice struct {
	mu      sync.Mutex
	cond    *metav1.Condition
	changed func()
}

// Set replaces the condition.
func (n *Notice) Set(cond metav1.Condition) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.cond != nil && *n.cond == cond {
		return
	}
	n.cond = &cond
	if n.changed != nil {
		n.changed()
	}
}

// get reports false if there is nothing to know yet.
func (n *Notice) get() (metav1.Condition, bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.cond == nil {
		return metav1.Condition{}, false
	}
	return *n.cond, true
}

// source enqueues the requests whenever the condition changes.
func (n *Notice) source(requests []reconcile.Request) source.Source {
	return source.Func(func(_ context.Context, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
		n.mu.Lock()
		defer n.mu.Unlock()
		n.changed = func() {
			for _, r := range requests {
				queue.Add(r)
			}
		}
		return nil
	})
}
