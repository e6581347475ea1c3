package frame

import (
	"context"
	"sync"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// Source enqueues custom resources in their controller when something changes that no cache of the manager has, such as what is installed
// on another cluster. It is a source for one controller. Its zero value is ready to use.
type Source struct {
	mu    sync.Mutex
	queue workqueue.TypedRateLimitingInterface[reconcile.Request]
}

// Start implements source.Source.
func (s *Source) Start(_ context.Context, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.queue = queue
	return nil
}

// started reports whether the controller runs, and Add does something.
func (s *Source) started() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.queue != nil
}

// Add enqueues the custom resource with that name. What changes before the controller runs, its first reconcile sees.
func (s *Source) Add(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.queue != nil {
		s.queue.Add(Request(name))
	}
}

// Request is that for a custom resource without a namespace.
func Request(name string) reconcile.Request {
	return reconcile.Request{NamespacedName: types.NamespacedName{Name: name}}
}
