// Package single watches objects one by one, each by its name. Of a cluster that holds thousands of Secrets and Leases an agent
// then reads, keeps and needs rights to the few that are of its add-ons.
package single

import (
	"context"
	"sync"

	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	ctrlcache "sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/capstan-io/capstan/internal/agent/relist"
)

// Objects are watched objects of one resource. They are a Source of the controller that they are for.
type Objects[T client.Object] struct {
	getter   cache.Getter
	resource string
	example  T

	mu      sync.Mutex
	ctx     context.Context //nolint:containedctx // that of the source, which ends all watches
	queue   workqueue.TypedRateLimitingInterface[reconcile.Request]
	watches map[types.NamespacedName]map[types.NamespacedName]*watch
}

type watch struct {
	store cache.Store
	known <-chan struct{}
	end   context.CancelFunc
}

// New returns Objects of a resource, read by the REST client of its group. The example is an empty object.
func New[T client.Object](getter cache.Getter, resource string, example T) *Objects[T] {
	return &Objects[T]{getter: getter, resource: resource, example: example,
		watches: map[types.NamespacedName]map[types.NamespacedName]*watch{}}
}

// Start is called by the controller before it reconciles.
func (o *Objects[T]) Start(ctx context.Context, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.ctx, o.queue = ctx, queue
	return nil
}

// Follow watches the named objects, and no others, for an owner, who is reconciled whenever one of them changes, and once when
// it is known how they are.
func (o *Objects[T]) Follow(owner types.NamespacedName, names ...types.NamespacedName) {
	o.mu.Lock()
	defer o.mu.Unlock()
	before := o.watches[owner]
	now := make(map[types.NamespacedName]*watch, len(names))
	for _, name := range names {
		if now[name] = before[name]; now[name] == nil {
			now[name] = o.startWatch(owner, name)
		}
	}
	for name, old := range before {
		if now[name] == nil {
			old.end()
		}
	}
	if o.watches[owner] = now; len(now) == 0 {
		delete(o.watches, owner)
	}
}

// Get returns an object that is followed for the owner. Before known, nothing can be said of it.
func (o *Objects[T]) Get(owner, name types.NamespacedName) (object T, found, known bool) {
	o.mu.Lock()
	w := o.watches[owner][name]
	o.mu.Unlock()
	if w == nil {
		return object, false, false
	}
	select {
	case <-w.known:
	default:
		return object, false, false
	}
	for _, item := range w.store.List() {
		object, found = item.(T)
	}
	return object, found, true
}

// Read gets an object from the API server: a watch may be behind.
func (o *Objects[T]) Read(ctx context.Context, name types.NamespacedName) (object T, err error) {
	object, _ = o.example.DeepCopyObject().(T)
	return object, o.getter.Get().Namespace(name.Namespace).Resource(o.resource).Name(name.Name).Do(ctx).Into(object)
}

func (o *Objects[T]) startWatch(owner, name types.NamespacedName) *watch {
	ctx, end := context.WithCancel(o.ctx)
	changed := func() { o.queue.Add(reconcile.Request{NamespacedName: owner}) }
	store, informer := cache.NewInformerWithOptions(cache.InformerOptions{
		ListerWatcher: relist.AfterOutage(cache.NewListWatchFromClient(o.getter, o.resource, name.Namespace,
			fields.OneTermEqualSelector("metadata.name", name.Name))),
		ObjectType: o.example,
		Handler: cache.ResourceEventHandlerFuncs{
			AddFunc: func(any) { changed() }, UpdateFunc: func(any, any) { changed() }, DeleteFunc: func(any) { changed() },
		},
		Transform: ctrlcache.TransformStripManagedFields(),
	})
	w := &watch{store: store, known: informer.HasSyncedChecker().Done(), end: end}
	go informer.RunWithContext(ctx)
	go func() {
		select {
		case <-ctx.Done():
		case <-w.known:
			changed()
		}
	}()
	return w
}
