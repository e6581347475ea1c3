package direct_test

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/storage"

	"github.com/capstan-io/capstan/internal/controlplane/direct"
)

// SC-10: of a storage that is nearly full, the rest is for deletions, and for what keeps the hub and its agents going: nothing else is
// created, or grows by more than a little.
func TestReserve(t *testing.T) {
	t.Parallel()
	create := func(ctx context.Context, store storage.Interface, key string) error {
		return store.Create(ctx, key, newObject(), newObject(), 0)
	}
	change := func(mayCreate bool, change func(*unstructured.Unstructured)) func(context.Context, storage.Interface, string) error {
		return func(ctx context.Context, store storage.Interface, key string) error {
			return store.GuaranteedUpdate(ctx, key, newObject(), mayCreate, nil,
				func(object runtime.Object, _ storage.ResponseMeta) (runtime.Object, *uint64, error) {
					changed := object.(*unstructured.Unstructured)
					change(changed)
					return changed, nil, nil
				}, nil)
		}
	}
	note := func(length int) func(*unstructured.Unstructured) {
		return func(o *unstructured.Unstructured) {
			o.SetAnnotations(map[string]string{"note": strings.Repeat("x", length)})
		}
	}
	deleting := func(o *unstructured.Unstructured) { o.SetDeletionTimestamp(&metav1.Time{Time: time.Now()}) }
	for name, test := range map[string]struct {
		resource schema.GroupResource
		// key is that of the object; the default is that of a thing.
		key string
		// listed is that a client has listed first, so that there is a watch cache.
		listed bool
		// exists is what there is before the storage is nearly full, and nil that there is nothing.
		exists  func(*unstructured.Unstructured)
		write   func(ctx context.Context, store storage.Interface, key string) error
		refuses bool
	}{
		"creation": {write: create, refuses: true},
		"creation without a watch cache": {
			resource: schema.GroupResource{Resource: "secrets"}, write: create, refuses: true,
		},
		"creation by a change": {
			write: change(true, func(o *unstructured.Unstructured) { o.Object = newObject().(*unstructured.Unstructured).Object }), refuses: true,
		},
		"a small change":                            {exists: note(0), write: change(false, note(100))},
		"a large change":                            {exists: note(0), write: change(false, note(10_000)), refuses: true},
		"creation with a watch cache":               {listed: true, write: create, refuses: true},
		"a small change with a watch cache":         {listed: true, exists: note(0), write: change(false, note(100))},
		"a large change with a watch cache":         {listed: true, exists: note(0), write: change(false, note(10_000)), refuses: true},
		"a change of a part":                        {exists: note(10_000), write: change(false, note(10_001))},
		"a smaller object":                          {exists: note(10_000), write: change(false, note(0))},
		"the deletion of an object with finalizers": {exists: note(10_000), write: change(false, deleting)},
		"a large change of what is being deleted": {
			exists: deleting, write: change(false, func(o *unstructured.Unstructured) { deleting(o); note(10_000)(o) }),
		},
		"the deletion of another object": {exists: note(0), write: func(ctx context.Context, store storage.Interface, key string) error {
			return store.Delete(ctx, key, newObject(), nil, storage.ValidateAllObjectFunc, nil, storage.DeleteOptions{})
		}},
		"creation of a namespace of the hub": {
			resource: schema.GroupResource{Resource: "namespaces"}, key: "/namespaces/open-cluster-management-hub", write: create,
		},
		"creation of another namespace": {
			resource: schema.GroupResource{Resource: "namespaces"}, key: "/namespaces/prod1", write: create, refuses: true,
		},
		"creation of what withholds works": {
			resource: schema.GroupResource{Resource: "configmaps"}, key: "/configmaps/open-cluster-management-hub/works-held", write: create,
		},
		"creation of a Lease": {resource: schema.GroupResource{Group: "coordination.k8s.io", Resource: "leases"}, write: create},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var nearlyFull atomic.Bool
			all, server := start(t, nearlyFull.Load)
			if test.resource.Resource == "" {
				test.resource = schema.GroupResource{Group: "example.com", Resource: "things"}
			}
			key := cmp.Or(test.key, "/things/default/a")
			prefix := "/" + strings.Split(key, "/")[1] + "/"
			options, err := all.For(kept(server.Endpoint())).GetRESTOptions(test.resource, nil)
			if err != nil {
				t.Fatal(err)
			}
			store, destroy, err := options.Decorator(options.StorageConfig, prefix, func(runtime.Object) (string, error) { return key, nil },
				newObject, newList, attributes, nil, nil)
			if err != nil {
				t.Fatal(err)
			}
			defer destroy()
			if test.exists != nil {
				object := newObject().(*unstructured.Unstructured)
				test.exists(object)
				if err := store.Create(t.Context(), key, object, newObject(), 0); err != nil {
					t.Fatal(err)
				}
			}
			if test.listed {
				every := storage.ListOptions{Predicate: everything, Recursive: true}
				if err := store.GetList(t.Context(), prefix, every, newList()); err != nil || !direct.HasCache(store) {
					t.Fatalf("it has a watch cache: %t (%v)", direct.HasCache(store), err)
				}
			}
			nearlyFull.Store(true)
			err = test.write(t.Context(), store, key)
			var refusal apierrors.APIStatus
			refused := errors.As(err, &refusal) && refusal.Status().Code == http.StatusInsufficientStorage
			if refused != test.refuses || err != nil && !refused {
				t.Errorf("it ends with %v", err)
			}
			nearlyFull.Store(false)
			if refused {
				if err := test.write(t.Context(), store, key); err != nil {
					t.Errorf("with room again, it ends with %v", err)
				}
			}
		})
	}
}
