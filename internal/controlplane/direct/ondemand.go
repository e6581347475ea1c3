package direct

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/apiserver/pkg/storage/cacher"
)

// fillTime is how long a request waits for a watch cache to be filled. After it, the request is to be retried.
const fillTime = 10 * time.Second

// onDemand is a storage that gets a watch cache when a client first lists or watches its objects, and does without until then.
//
// A watch cache holds all objects, and the history of some minutes, as they are served. Of kinds that are served in several
// versions, it is one for each version, and hardly ever more than one of them is used.
type onDemand struct {
	storage.Interface
	config cacher.Config

	mu      sync.Mutex // held while it starts or ends
	stopped bool
	cache   atomic.Pointer[watchCache]
}

type watchCache struct {
	*cacher.CacheDelegator
	cacher *cacher.Cacher
	// filled is whether it ever was: one that has lost its etcd answers so, and has clients retry.
	filled atomic.Bool
}

// started is the storage with its cache, filled if the context lasts long enough.
func (s *onDemand) started(ctx context.Context) (storage.Interface, error) {
	cache := s.cache.Load()
	if cache == nil {
		var err error
		if cache, err = s.start(); err != nil || cache == nil {
			return s.Interface, err
		}
	}
	if !cache.filled.Load() {
		ctx, cancel := context.WithTimeout(ctx, fillTime)
		defer cancel()
		// Whatever comes of it, the request finds out for itself.
		if cache.cacher.Wait(ctx) == nil {
			cache.filled.Store(true)
		}
	}
	return cache, nil
}

// start returns nil if the storage has been stopped.
func (s *onDemand) start() (*watchCache, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if cache := s.cache.Load(); cache != nil || s.stopped {
		return cache, nil
	}
	c, err := cacher.NewCacherFromConfig(s.config)
	if err != nil {
		return nil, err
	}
	cache := &watchCache{CacheDelegator: cacher.NewCacheDelegator(c, s.Interface), cacher: c}
	s.cache.Store(cache)
	return cache, nil
}

// stop ends the cache. None starts after it.
func (s *onDemand) stop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stopped = true
	if cache := s.cache.Load(); cache != nil {
		cache.CacheDelegator.Stop()
		cache.cacher.Stop()
	}
}

// now is the storage with its cache if it has one.
func (s *onDemand) now() storage.Interface {
	if cache := s.cache.Load(); cache != nil {
		return cache
	}
	return s.Interface
}

// Watch implements storage.Interface.
func (s *onDemand) Watch(ctx context.Context, key string, opts storage.ListOptions) (watch.Interface, error) {
	store, err := s.started(ctx)
	if err != nil {
		return nil, err
	}
	return store.Watch(ctx, key, opts)
}

// GetList implements storage.Interface. A watch is to go on where a list ended, so the cache has to start before the list.
func (s *onDemand) GetList(ctx context.Context, key string, opts storage.ListOptions, list runtime.Object) error {
	store, err := s.started(ctx)
	if err != nil {
		return err
	}
	return store.GetList(ctx, key, opts, list)
}

// Get implements storage.Interface.
func (s *onDemand) Get(ctx context.Context, key string, opts storage.GetOptions, object runtime.Object) error {
	return s.now().Get(ctx, key, opts, object)
}

// Delete implements storage.Interface.
func (s *onDemand) Delete(ctx context.Context, key string, out runtime.Object, preconditions *storage.Preconditions,
	validate storage.ValidateObjectFunc, existing runtime.Object, opts storage.DeleteOptions) error {
	return s.now().Delete(ctx, key, out, preconditions, validate, existing, opts)
}

// GuaranteedUpdate implements storage.Interface.
func (s *onDemand) GuaranteedUpdate(ctx context.Context, key string, destination runtime.Object, ignoreNotFound bool,
	preconditions *storage.Preconditions, update storage.UpdateFunc, existing runtime.Object) error {
	return s.now().GuaranteedUpdate(ctx, key, destination, ignoreNotFound, preconditions, update, existing)
}

// CompactRevision implements storage.Interface.
func (s *onDemand) CompactRevision() int64 { return s.now().CompactRevision() }
