package direct_test

import (
	"context"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/registry/generic"
	genericoptions "k8s.io/apiserver/pkg/server/options"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/apiserver/pkg/storage/storagebackend"

	"github.com/capstan-io/capstan/internal/controlplane/direct"
	"github.com/capstan-io/capstan/internal/controlplane/etcd"
)

// kept says of every resource that it is kept at an endpoint, in a way that the test does not want.
type kept string

func (k kept) GetRESTOptions(resource schema.GroupResource, _ runtime.Object) (generic.RESTOptions, error) {
	config := storagebackend.NewDefaultConfig("/registry",
		runtime.NewCodec(unstructured.UnstructuredJSONScheme, unstructured.UnstructuredJSONScheme))
	config.Transport.ServerList = []string{string(k)}
	return generic.RESTOptions{StorageConfig: config.ForResource(resource)}, nil
}

// start starts an etcd, on which secrets have no watch caches.
func start(t *testing.T, inReserve func() bool) (*direct.Storage, *etcd.Server) {
	t.Helper()
	server, err := etcd.Start(t.Context(), etcd.Options{Dir: t.TempDir(), NoFsync: true, Logger: logr.Discard()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(server.Close)
	options := genericoptions.NewEtcdOptions(storagebackend.NewDefaultConfig("/registry", nil))
	options.WatchCacheSizes = []string{"secrets#0"}
	all, err := direct.New(server.Client(), server.Endpoint(), *options, inReserve)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(all.Stop)
	return all, server
}

// What the API server keeps in the embedded etcd is written and watched without a connection, with and without a watch
// cache; what it keeps elsewhere is none of this package's business.
func TestDirect(t *testing.T) {
	t.Parallel()
	all, server := start(t, hasRoom)

	// Nobody answers there: it is where a connection would be made to.
	elsewhere, err := all.For(kept("unix:///nowhere")).GetRESTOptions(schema.GroupResource{Resource: "configmaps"}, nil)
	if err != nil || elsewhere.Decorator != nil {
		t.Errorf("what is kept elsewhere is decorated (%v)", err)
	}
	for _, resource := range []string{"configmaps", "secrets"} {
		t.Run(resource, func(t *testing.T) {
			options, err := all.For(kept(server.Endpoint())).GetRESTOptions(schema.GroupResource{Resource: resource}, nil)
			if err != nil {
				t.Fatal(err)
			}
			prefix, key := "/"+resource+"/", "/"+resource+"/default/a"
			store, destroy, err := options.Decorator(options.StorageConfig, prefix, func(runtime.Object) (string, error) { return key, nil },
				newObject, newList, attributes, nil, nil)
			if err != nil {
				t.Fatal(err)
			}
			defer destroy()
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()

			// A cache starts with a list, so that a watch can go on where it ended.
			if err := store.Create(ctx, key, newObject(), newObject(), 0); err != nil {
				t.Fatal(err)
			}
			if err := store.Get(ctx, key, storage.GetOptions{ResourceVersion: "0"}, newObject()); err != nil {
				t.Error(err)
			}
			if direct.HasCache(store) {
				t.Error("there is a watch cache that nobody needs")
			}
			list := &unstructured.UnstructuredList{}
			if err := store.GetList(ctx, prefix, storage.ListOptions{Predicate: everything, Recursive: true}, list); err != nil ||
				len(list.Items) != 1 {
				t.Fatalf("%d objects are listed (%v)", len(list.Items), err)
			}
			if cached := resource == "configmaps"; direct.HasCache(store) != cached {
				t.Errorf("has a watch cache: %t, want %t", !cached, cached)
			}
			if err := store.Delete(ctx, key, newObject(), nil, storage.ValidateAllObjectFunc, nil, storage.DeleteOptions{}); err != nil {
				t.Fatal(err)
			}
			events, err := store.Watch(ctx, prefix, storage.ListOptions{ResourceVersion: list.GetResourceVersion(), Predicate: everything,
				Recursive: true})
			if err != nil {
				t.Fatal(err)
			}
			if event := <-events.ResultChan(); event.Type != watch.Deleted {
				t.Errorf("event %v", event)
			}
		})
	}
}

// Whatever comes first, and however many at once, there is one cache, and none after the end.
func TestCacheOnDemand(t *testing.T) {
	t.Parallel()
	all, server := start(t, hasRoom)
	options, err := all.For(kept(server.Endpoint())).GetRESTOptions(schema.GroupResource{Resource: "things"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	open := func() (storage.Interface, func()) {
		store, destroy, err := options.Decorator(options.StorageConfig, "/things/", func(runtime.Object) (string, error) { return "", nil },
			newObject, newList, attributes, nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		return store, destroy
	}
	store, destroy := open()
	var watches errgroup.Group
	for range 20 {
		watches.Go(func() error {
			// On a busy machine a cache may fill for longer than a request waits.
			return wait.PollUntilContextCancel(t.Context(), time.Millisecond, true, func(ctx context.Context) (bool, error) {
				events, err := store.Watch(ctx, "/things/", storage.ListOptions{Predicate: everything, Recursive: true})
				if err == nil {
					events.Stop()
				}
				if apierrors.IsTooManyRequests(err) {
					return false, nil
				}
				return err == nil, err
			})
		})
	}
	if err := watches.Wait(); err != nil {
		t.Error(err)
	}
	if !direct.HasCache(store) {
		t.Error("there is no watch cache")
	}
	destroy()
	store, destroy = open()
	destroy()
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if events, err := store.Watch(ended, "/things/", storage.ListOptions{Predicate: everything, Recursive: true}); err == nil {
		events.Stop()
	}
	if direct.HasCache(store) {
		t.Error("a watch cache has begun after the end")
	}
}

func hasRoom() bool { return false }

func newObject() runtime.Object {
	return &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "Thing", "metadata": map[string]any{"name": "a"}}}
}

func newList() runtime.Object { return &unstructured.UnstructuredList{} }

var everything = storage.SelectionPredicate{Label: labels.Everything(), Field: fields.Everything(), GetAttrs: attributes}

func attributes(runtime.Object) (labels.Set, fields.Set, error) { return nil, nil, nil }
