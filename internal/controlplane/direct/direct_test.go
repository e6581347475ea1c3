package direct_test

import (
	"context"
	"testing"
	"time"

	"github.com/go-logr/logr"
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
	config := storagebackend.NewDefaultConfig("/registry", runtime.NewCodec(unstructured.UnstructuredJSONScheme, unstructured.UnstructuredJSONScheme))
	config.Transport.ServerList = []string{string(k)}
	return generic.RESTOptions{StorageConfig: config.ForResource(resource)}, nil
}

// What the API server keeps in the embedded etcd is written and watched without a connection, with and without a watch
// cache; what it keeps elsewhere is none of this package's business.
func TestDirect(t *testing.T) {
	t.Parallel()
	server, err := etcd.Start(t.Context(), etcd.Options{Dir: t.TempDir(), NoFsync: true, Logger: logr.Discard()})
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	options := genericoptions.NewEtcdOptions(storagebackend.NewDefaultConfig("/registry", nil))
	options.WatchCacheSizes = []string{"secrets#0"}
	direct, err := direct.New(server.Client(), server.Endpoint(), *options)
	if err != nil {
		t.Fatal(err)
	}
	defer direct.Stop()

	// Nobody answers there: it is where a connection would be made to.
	elsewhere, err := direct.For(kept("unix:///nowhere")).GetRESTOptions(schema.GroupResource{Resource: "configmaps"}, nil)
	if err != nil || elsewhere.Decorator != nil {
		t.Errorf("what is kept elsewhere is decorated (%v)", err)
	}
	for _, resource := range []string{"configmaps", "secrets"} {
		t.Run(resource, func(t *testing.T) {
			options, err := direct.For(kept(server.Endpoint())).GetRESTOptions(schema.GroupResource{Resource: resource}, nil)
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
			var events watch.Interface
			// A watch cache that has just begun to fill asks for patience.
			err = wait.PollUntilContextCancel(ctx, time.Millisecond, true, func(ctx context.Context) (bool, error) {
				events, err = store.Watch(ctx, prefix, storage.ListOptions{Predicate: everything, Recursive: true})
				return err == nil, ignoreInitializing(err)
			})
			if err != nil {
				t.Fatal(err)
			}
			if err := store.Create(ctx, key, newObject(), newObject(), 0); err != nil {
				t.Fatal(err)
			}
			if event := <-events.ResultChan(); event.Type != watch.Added {
				t.Errorf("event %v", event)
			}
		})
	}
}

func ignoreInitializing(err error) error {
	if apierrors.IsTooManyRequests(err) {
		return nil
	}
	return err
}

func newObject() runtime.Object {
	return &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "Thing", "metadata": map[string]any{"name": "a"}}}
}

func newList() runtime.Object { return &unstructured.UnstructuredList{} }

var everything = storage.SelectionPredicate{Label: labels.Everything(), Field: fields.Everything(), GetAttrs: attributes}

func attributes(runtime.Object) (labels.Set, fields.Set, error) { return nil, nil, nil }
