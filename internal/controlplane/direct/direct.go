// Package direct has the API server call the embedded etcd, which is in the same process, without a connection to it: no
// serialization, no system calls and no goroutines in between. That is a tenth of what a write costs.
package direct

import (
	"slices"
	"sync"

	clientv3 "go.etcd.io/etcd/client/v3"
	etcdkubernetes "go.etcd.io/etcd/client/v3/kubernetes"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/features"
	"k8s.io/apiserver/pkg/registry/generic"
	genericoptions "k8s.io/apiserver/pkg/server/options"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/apiserver/pkg/storage/cacher"
	"k8s.io/apiserver/pkg/storage/etcd3"
	"k8s.io/apiserver/pkg/storage/storagebackend"
	"k8s.io/apiserver/pkg/storage/storagebackend/factory"
	"k8s.io/apiserver/pkg/storage/value/encrypt/identity"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"
)

// Storage is an etcd in this process, as the place where an API server keeps its objects.
type Storage struct {
	client    *etcdkubernetes.Client
	endpoint  string
	compactor compactor
	inReserve func() bool
	uncached  map[schema.GroupResource]bool
	trees     *fieldTrees
}

type compactor interface {
	etcd3.Compactor
	Stop()
}

// New returns the storage behind the client, for all that would be kept by the etcd at the endpoint. It does what the
// options say of compaction and watch caches, and all else is theirs. inReserve reports whether the etcd has hardly any room left.
func New(client *clientv3.Client, endpoint string, options genericoptions.EtcdOptions, inReserve func() bool) (*Storage, error) {
	sizes, err := genericoptions.ParseWatchCacheSizes(options.WatchCacheSizes)
	if err != nil {
		return nil, err
	}
	s := &Storage{endpoint: endpoint, inReserve: inReserve, uncached: map[schema.GroupResource]bool{}, trees: newFieldTrees()}
	for resource, size := range sizes {
		s.uncached[resource] = size == 0
	}
	s.client = &etcdkubernetes.Client{Client: client}
	s.client.KV = explaining{etcd3.NewETCDLatencyTracker(client.KV)}
	s.client.Kubernetes = s.client
	if interval := options.StorageConfig.CompactionInterval; interval > 0 {
		s.compactor = etcd3.NewCompactor(client, interval, clock.RealClock{}, nil)
	}
	return s, nil
}

// Stop ends what the storage does in the background. Nothing may use it any more.
func (s *Storage) Stop() {
	if s.compactor != nil {
		s.compactor.Stop()
	}
	// It has no connection whose end could fail.
	_ = s.client.Close()
}

// For makes what comes from the getter use the storage.
func (s *Storage) For(getter generic.RESTOptionsGetter) generic.RESTOptionsGetter {
	return restOptions{getter, s}
}

type restOptions struct {
	generic.RESTOptionsGetter
	storage *Storage
}

// GetRESTOptions implements generic.RESTOptionsGetter.
func (r restOptions) GetRESTOptions(resource schema.GroupResource, example runtime.Object) (generic.RESTOptions, error) {
	options, err := r.RESTOptionsGetter.GetRESTOptions(resource, example)
	if err != nil || !slices.Equal(options.StorageConfig.Transport.ServerList, []string{r.storage.endpoint}) {
		return options, err
	}
	options.Decorator = r.storage.cached
	if r.storage.uncached[resource] {
		options.Decorator = r.storage.plain
	}
	return options, nil
}

// plain is a generic.StorageDecorator: generic.UndecoratedStorage on this storage.
func (s *Storage) plain(config *storagebackend.ConfigForResource, prefix string, _ func(runtime.Object) (string, error),
	newFunc, newListFunc func() runtime.Object, _ storage.AttrFunc, _ storage.IndexerFuncs, _ *cache.Indexers) (storage.Interface,
	factory.DestroyFunc, error) {
	return s.open(config, config.Codec, prefix, newFunc, newListFunc)
}

// cached is a generic.StorageDecorator: that of genericregistry.StorageWithCacher on this storage, with a cache that starts with
// its first use.
func (s *Storage) cached(config *storagebackend.ConfigForResource, prefix string, keyFunc func(runtime.Object) (string, error),
	newFunc, newListFunc func() runtime.Object, attributes storage.AttrFunc, triggers storage.IndexerFuncs,
	indexers *cache.Indexers) (storage.Interface, factory.DestroyFunc, error) {
	store, destroy, err := s.open(config, config.Codec, prefix, newFunc, newListFunc)
	if err != nil {
		return nil, nil, err
	}
	// What requests change is not from the cache, so it shares nothing.
	source, destroySource, err := s.open(config, sharingFields{config.Codec, s.trees}, prefix, newFunc, newListFunc)
	if err != nil {
		destroy()
		return nil, nil, err
	}
	demanded := &onDemand{Interface: store, config: cacher.Config{
		Storage:             source,
		Versioner:           storage.APIObjectVersioner{},
		GroupResource:       config.GroupResource,
		EventsHistoryWindow: config.EventsHistoryWindow,
		ResourcePrefix:      prefix,
		KeyFunc:             keyFunc,
		NewFunc:             newFunc,
		NewListFunc:         newListFunc,
		GetAttrsFunc:        attributes,
		IndexerFuncs:        triggers,
		Indexers:            indexers,
		Codec:               config.Codec,
	}}
	return demanded, sync.OnceFunc(func() {
		demanded.stop()
		destroySource()
		destroy()
	}), nil
}

// open keeps a reserve for what makes room.
func (s *Storage) open(config *storagebackend.ConfigForResource, codec runtime.Codec, prefix string, newFunc,
	newListFunc func() runtime.Object) (storage.Interface, factory.DestroyFunc, error) {
	store, destroy, err := s.connect(config, codec, prefix, newFunc, newListFunc)
	if err != nil || goOn.Has(config.GroupResource.Group) {
		return store, destroy, err
	}
	return reserving{Interface: store, codec: codec, inReserve: s.inReserve}, destroy, nil
}

// connect does what the factory of storagebackend does with a connection.
func (s *Storage) connect(config *storagebackend.ConfigForResource, codec runtime.Codec, prefix string, newFunc,
	newListFunc func() runtime.Object) (storage.Interface, factory.DestroyFunc, error) {
	transformer := config.Transformer
	if transformer == nil {
		transformer = identity.NewEncryptCheckTransformer()
	}
	versioner := storage.APIObjectVersioner{}
	decoder := etcd3.NewDefaultDecoder(codec, versioner)
	deleteCorrupt := utilfeature.DefaultFeatureGate.Enabled(features.AllowUnsafeMalformedObjectDeletion)
	if deleteCorrupt {
		transformer, decoder = etcd3.WithCorruptObjErrorHandlingTransformer(transformer), etcd3.WithCorruptObjErrorHandlingDecoder(decoder)
	}
	store, err := etcd3.New(s.client, s.compactor, codec, newFunc, newListFunc, config.Prefix, prefix, config.GroupResource,
		transformer, config.LeaseManagerConfig, decoder, versioner)
	if err != nil {
		return nil, nil, err
	}
	destroy := sync.OnceFunc(store.Close)
	if deleteCorrupt {
		return etcd3.NewStoreWithUnsafeCorruptObjectDeletion(store, config.GroupResource), destroy, nil
	}
	return store, destroy, nil
}
