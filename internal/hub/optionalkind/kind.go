// Package optionalkind follows objects of a kind that others define: its CustomResourceDefinition may be installed after the hub, or never.
package optionalkind

import (
	"context"
	"fmt"
	"sync"

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
	mgr ctrl.Manager

	mu sync.Mutex
	// followed is nil while the hub has not the kind.
	followed *followed
	changed  chan struct{} // closed when there is another followed
}

// followed are the objects in a version.
type followed struct {
	kind  schema.GroupVersionKind
	cache cache.Cache
}

// Add returns a Kind that the manager starts.
func Add(mgr ctrl.Manager, o Options) (*Kind, error) {
	k := &Kind{Options: o, mgr: mgr, changed: make(chan struct{})}
	if err := mgr.Add(k); err != nil {
		return nil, fmt.Errorf("follow %s: %w", o.CRD, err)
	}
	return k, nil
}

// Reader returns where the objects are read; nil while the hub has not the kind.
func (k *Kind) Reader() client.Reader {
	reader, _ := k.Object()
	return reader
}

// Object returns where the objects are read, and one to read into, in the version that is followed; nil while the hub has not the kind.
func (k *Kind) Object() (client.Reader, *unstructured.Unstructured) {
	f, _ := k.current()
	if f == nil {
		return nil, nil
	}
	return f.cache, newObject(f.kind)
}

func (k *Kind) current() (*followed, <-chan struct{}) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.followed, k.changed
}

func (k *Kind) set(f *followed) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.followed = f
	close(k.changed)
	k.changed = make(chan struct{})
}

func newObject(kind schema.GroupVersionKind) *unstructured.Unstructured {
	object := &unstructured.Unstructured{}
	object.SetGroupVersionKind(kind)
	return object
}

// Start implements manager.Runnable: it waits for the kind, and follows its objects then, in another version if theirs is no longer served.
func (k *Kind) Start(ctx context.Context) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	crd := newObject(crdKind)
	watched, err := k.newCache(crd, cache.ByObject{
		Field: fields.OneTermEqualSelector("metadata.name", k.CRD), Transform: withoutSchemas})
	if err != nil {
		return err
	}
	informer, err := watched.GetInformer(ctx, crd, cache.BlockUntilSynced(false))
	if err != nil {
		return fmt.Errorf("watch the CustomResourceDefinition %s: %w", k.CRD, err)
	}
	ended := make(chan error, 2)
	s := &switcher{Options: k.Options, follow: func(version string) (end func()) {
		return start(ctx, ended, func(ctx context.Context) error { return k.follow(ctx, version) })
	}}
	if _, err := informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
		AddFunc: s.see, UpdateFunc: func(_, now any) { s.see(now) }}); err != nil {
		return fmt.Errorf("watch the CustomResourceDefinition %s: %w", k.CRD, err)
	}
	go func() { ended <- watched.Start(ctx) }()
	return <-ended
}

// start runs a function until end is called, which waits for it, or the function fails.
func start(ctx context.Context, failed chan<- error, run func(context.Context) error) (end func()) {
	ctx, stop := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := run(ctx); err != nil {
			failed <- err
		}
	}()
	return func() { stop(); <-done }
}

// switcher has objects followed in a version that is served. An informer calls it, one call after the other.
type switcher struct {
	Options
	// follow follows the objects in a version until the end is called.
	follow func(version string) (end func())

	version string
	end     func()
}

// see follows the objects in another version if a CustomResourceDefinition says so.
func (s *switcher) see(o any) {
	object, ok := o.(*unstructured.Unstructured)
	crd := &apiextensionsv1.CustomResourceDefinition{}
	if !ok || runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, crd) != nil {
		return
	}
	version := s.best(crd)
	if version == s.version {
		return
	}
	if s.end != nil {
		s.end()
	}
	s.version, s.end = version, s.follow(version)
}

// best is the version in which the objects are followed from now on: the one of now, unless that is not served and another one is.
func (s *switcher) best(crd *apiextensionsv1.CustomResourceDefinition) string {
	if !apihelpers.IsCRDConditionTrue(crd, apiextensionsv1.Established) || apihelpers.HasServedCRDVersion(crd, s.version) {
		return s.version
	}
	for _, version := range s.Versions {
		if apihelpers.HasServedCRDVersion(crd, version) {
			return version
		}
	}
	return s.version
}

// withoutSchemas drops what is large of a CustomResourceDefinition.
func withoutSchemas(o any) (any, error) {
	crd, ok := o.(*unstructured.Unstructured)
	if !ok {
		return o, nil
	}
	crd.SetManagedFields(nil)
	crd.SetAnnotations(nil)
	all, _, err := unstructured.NestedFieldNoCopy(crd.Object, "spec", "versions")
	if err != nil {
		return nil, err
	}
	versions, _ := all.([]any)
	for _, version := range versions {
		if of, ok := version.(map[string]any); ok {
			delete(of, "schema")
		}
	}
	return crd, nil
}

// follow keeps the cache of the objects in a version. A kind that is established may take a moment to be found.
func (k *Kind) follow(ctx context.Context, version string) error {
	made := &followed{kind: k.GroupKind.WithVersion(version)}
	found := func(ctx context.Context) (bool, error) {
		_, err := k.mgr.GetRESTMapper().RESTMapping(k.GroupKind, version)
		if err == nil {
			made.cache, err = k.newCache(newObject(made.kind), k.Objects)
		}
		if err != nil {
			ctrl.LoggerFrom(ctx).Info("Objects cannot be watched yet", "kind", made.kind.String(), "reason", err.Error())
		}
		return err == nil, nil
	}
	if err := retry.Until(ctx, found); err != nil {
		return nil //nolint:nilerr // the process ends, or the version
	}
	ended := make(chan error, 1)
	go func() { ended <- made.cache.Start(ctx) }()
	if _, err := made.cache.GetInformer(ctx, newObject(made.kind)); err != nil {
		if ctx.Err() != nil {
			return nil //nolint:nilerr // as above
		}
		return fmt.Errorf("watch %s: %w", made.kind, err)
	}
	k.set(made)
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

// Events are those of the objects that the predicates match, from when the hub has their kind. Then, and when they are followed in another
// version, what another function returns is enqueued, too, unless it is nil.
func (k *Kind) Events(of handler.EventHandler, atFirst func(context.Context) []reconcile.Request,
	predicates ...predicate.Predicate) source.Source {
	return source.Func(func(ctx context.Context, q workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
		go func() {
			for ctx.Err() == nil {
				f, changed := k.current()
				if f != nil {
					f.enqueue(ctx, q, of, atFirst, predicates)
				}
				select {
				case <-ctx.Done():
				case <-changed:
				}
			}
		}()
		return nil
	})
}

func (f *followed) enqueue(ctx context.Context, q workqueue.TypedRateLimitingInterface[reconcile.Request], of handler.EventHandler,
	atFirst func(context.Context) []reconcile.Request, predicates []predicate.Predicate) {
	all := source.Kind[client.Object](f.cache, newObject(f.kind), of, predicates...)
	if err := all.Start(ctx, q); err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "Watch objects", "kind", f.kind.String())
		return
	}
	if atFirst == nil {
		return
	}
	for _, request := range atFirst(ctx) {
		q.Add(request)
	}
}
