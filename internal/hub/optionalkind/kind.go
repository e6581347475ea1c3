// Package optionalkind follows objects of a kind that others define: its CustomResourceDefinition may be installed after the hub, or never.
package optionalkind

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"

	"k8s.io/apiextensions-apiserver/pkg/apihelpers"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/capstan-io/capstan/internal/machinery/retry"
)

var crdKind = apiextensionsv1.SchemeGroupVersion.WithKind("CustomResourceDefinition")

// Options say which objects to follow.
type Options struct {
	// CRD is the name of the CustomResourceDefinition.
	CRD string
	// GroupKind is the kind that it defines.
	GroupKind schema.GroupKind
	// Versions are those in which the objects can be read, the best one first.
	Versions []string
	// Objects narrows which are cached, and what of them.
	Objects cache.ByObject
}

// Kind has the objects of a kind from the moment when the hub serves it. Until then, its CustomResourceDefinition is all that is watched.
type Kind struct {
	Options
	mgr   ctrl.Manager
	known chan struct{} // closed when followed has them
	// followed is nil while the hub has not the kind.
	followed atomic.Pointer[followed]
}

// followed are the objects in the version that was found.
type followed struct {
	kind  schema.GroupVersionKind
	cache cache.Cache
}

// Add returns a Kind that the manager starts.
func Add(mgr ctrl.Manager, o Options) (*Kind, error) {
	k := &Kind{Options: o, mgr: mgr, known: make(chan struct{})}
	if err := mgr.Add(k); err != nil {
		return nil, fmt.Errorf("follow %s: %w", o.CRD, err)
	}
	return k, nil
}

// Reader returns where the objects are read; nil while the hub has not the kind.
func (k *Kind) Reader() client.Reader {
	if f := k.followed.Load(); f != nil {
		return f.cache
	}
	return nil
}

// New returns an object to read one into, in the version that the hub serves. While there is a Reader, it is one that this can read.
func (k *Kind) New() *unstructured.Unstructured {
	if f := k.followed.Load(); f != nil {
		return newObject(f.kind)
	}
	return newObject(k.GroupKind.WithVersion(k.Versions[0]))
}

func newObject(kind schema.GroupVersionKind) *unstructured.Unstructured {
	object := &unstructured.Unstructured{}
	object.SetGroupVersionKind(kind)
	return object
}

// Start implements manager.Runnable: it waits for the kind, and follows its objects then.
func (k *Kind) Start(ctx context.Context) error {
	crd := newObject(crdKind)
	watched, err := k.newCache(crd, cache.ByObject{Field: fields.OneTermEqualSelector("metadata.name", k.CRD)})
	if err != nil {
		return err
	}
	informer, err := watched.GetInformer(ctx, crd, cache.BlockUntilSynced(false))
	if err != nil {
		return fmt.Errorf("watch the CustomResourceDefinition %s: %w", k.CRD, err)
	}
	served := make(chan struct{})
	var once sync.Once
	seen := func(o any) {
		if crd, ok := o.(*unstructured.Unstructured); ok && established(crd) {
			once.Do(func() { close(served) })
		}
	}
	if _, err := informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
		AddFunc: seen, UpdateFunc: func(_, now any) { seen(now) }}); err != nil {
		return fmt.Errorf("watch the CustomResourceDefinition %s: %w", k.CRD, err)
	}
	waiting, stop := context.WithCancel(ctx)
	defer stop()
	ended := make(chan error, 1)
	go func() { ended <- watched.Start(waiting) }()
	select {
	case <-served:
		stop()
		if err := <-ended; err != nil {
			return fmt.Errorf("watch the CustomResourceDefinition %s: %w", k.CRD, err)
		}
	case err := <-ended:
		return err
	}
	return k.follow(ctx)
}

// follow keeps the cache of the objects. A kind that is established may take a moment to be found.
func (k *Kind) follow(ctx context.Context) error {
	var made followed
	found := func(ctx context.Context) (bool, error) {
		mapping, err := k.mgr.GetRESTMapper().RESTMapping(k.GroupKind, k.Versions...)
		if err == nil {
			made.kind = mapping.GroupVersionKind
			made.cache, err = k.newCache(newObject(made.kind), k.Objects)
		}
		if err != nil {
			ctrl.LoggerFrom(ctx).Info("Objects cannot be watched yet", "kind", k.GroupKind.String(), "reason", err.Error())
		}
		return err == nil, nil
	}
	if err := retry.Until(ctx, found); err != nil {
		return nil //nolint:nilerr // the process ends
	}
	ended := make(chan error, 1)
	go func() { ended <- made.cache.Start(ctx) }()
	if _, err := made.cache.GetInformer(ctx, newObject(made.kind)); err != nil {
		if ctx.Err() != nil {
			return nil //nolint:nilerr // as above
		}
		return fmt.Errorf("watch %s: %w", k.GroupKind, err)
	}
	k.followed.Store(&made)
	close(k.known)
	return <-ended
}

func (k *Kind) newCache(kind client.Object, which cache.ByObject) (cache.Cache, error) {
	made, err := cache.New(k.mgr.GetConfig(), cache.Options{
		HTTPClient: k.mgr.GetHTTPClient(), Scheme: k.mgr.GetScheme(), Mapper: k.mgr.GetRESTMapper(),
		DefaultTransform: cache.TransformStripManagedFields(), ByObject: map[client.Object]cache.ByObject{kind: which},
	})
	if err != nil {
		return nil, fmt.Errorf("make the cache of %s: %w", kind.GetObjectKind().GroupVersionKind().Kind, err)
	}
	return made, nil
}

// established reports whether objects of a CustomResourceDefinition are served.
func established(crd *unstructured.Unstructured) bool {
	typed := &apiextensionsv1.CustomResourceDefinition{}
	err := runtime.DefaultUnstructuredConverter.FromUnstructured(crd.Object, typed)
	return err == nil && apihelpers.IsCRDConditionTrue(typed, apiextensionsv1.Established)
}

// Events are those of the objects that the predicates match, from when the hub has their kind. Then, what another function returns is
// enqueued, too, unless it is nil.
func (k *Kind) Events(of handler.EventHandler, atFirst func(context.Context) []reconcile.Request,
	predicates ...predicate.Predicate) source.Source {
	return source.Func(func(ctx context.Context, q workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
		go func() {
			select {
			case <-ctx.Done():
				return
			case <-k.known:
			}
			f := k.followed.Load()
			all := source.Kind[client.Object](f.cache, newObject(f.kind), of, predicates...)
			if err := all.Start(ctx, q); err != nil {
				ctrl.LoggerFrom(ctx).Error(err, "Watch objects", "kind", k.GroupKind.String())
				return
			}
			if atFirst == nil {
				return
			}
			for _, request := range atFirst(ctx) {
				q.Add(request)
			}
		}()
		return nil
	})
}
