package pull

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/capstan-io/capstan/internal/machinery/fleet"
	"github.com/capstan-io/capstan/internal/machinery/retry"
)

var crdKind = schema.GroupVersionKind{Group: "apiextensions.k8s.io", Version: "v1", Kind: "CustomResourceDefinition"}

// applications are those that clusters pull, from the moment when the hub has their kind. Until then, its CRD is all that is watched.
type applications struct {
	mgr   ctrl.Manager
	known chan struct{} // closed when the cache has them
	cache atomic.Pointer[cache.Cache]
}

// reader returns where they are read; nil while the hub has not the kind.
func (a *applications) reader() client.Reader {
	if read := a.cache.Load(); read != nil {
		return *read
	}
	return nil
}

// Start waits for the kind.
func (a *applications) Start(ctx context.Context) error {
	crd := &unstructured.Unstructured{}
	crd.SetGroupVersionKind(crdKind)
	watched, err := a.newCache(crd, cache.ByObject{Field: fields.OneTermEqualSelector("metadata.name", crdName)})
	if err != nil {
		return err
	}
	informer, err := watched.GetInformer(ctx, crd, cache.BlockUntilSynced(false))
	if err != nil {
		return fmt.Errorf("watch the CRD of Applications: %w", err)
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
		return fmt.Errorf("watch the CRD of Applications: %w", err)
	}
	waiting, stop := context.WithCancel(ctx)
	defer stop()
	ended := make(chan error, 1)
	go func() { ended <- watched.Start(waiting) }()
	select {
	case <-served:
		stop()
		if err := <-ended; err != nil {
			return fmt.Errorf("watch the CRD of Applications: %w", err)
		}
	case err := <-ended:
		return err
	}
	return a.follow(ctx)
}

// follow keeps the cache of Applications. A kind that is established may take a moment to be found.
func (a *applications) follow(ctx context.Context) error {
	var made cache.Cache
	found := func(ctx context.Context) (bool, error) {
		_, err := a.mgr.GetRESTMapper().RESTMapping(applicationKind.GroupKind(), applicationKind.Version)
		if err == nil {
			made, err = a.newCache(newApplication(), cache.ByObject{
				Label: labels.SelectorFromSet(labels.Set{fleet.LabelArgoPull: fleet.LabelTrue})})
		}
		if err != nil {
			ctrl.LoggerFrom(ctx).Info("Applications cannot be watched yet", "reason", err.Error())
		}
		return err == nil, nil
	}
	if err := retry.Until(ctx, found); err != nil {
		return nil //nolint:nilerr // the process ends
	}
	ended := make(chan error, 1)
	go func() { ended <- made.Start(ctx) }()
	if _, err := made.GetInformer(ctx, newApplication()); err != nil {
		if ctx.Err() != nil {
			return nil //nolint:nilerr // as above
		}
		return fmt.Errorf("watch Applications: %w", err)
	}
	a.cache.Store(&made)
	close(a.known)
	return <-ended
}

func (a *applications) newCache(kind client.Object, which cache.ByObject) (cache.Cache, error) {
	made, err := cache.New(a.mgr.GetConfig(), cache.Options{
		HTTPClient: a.mgr.GetHTTPClient(), Scheme: a.mgr.GetScheme(), Mapper: a.mgr.GetRESTMapper(),
		DefaultTransform: cache.TransformStripManagedFields(), ByObject: map[client.Object]cache.ByObject{kind: which},
	})
	if err != nil {
		return nil, fmt.Errorf("make the cache of %s: %w", kind.GetObjectKind().GroupVersionKind().Kind, err)
	}
	return made, nil
}

// established tells whether objects of a CRD are served.
func established(crd *unstructured.Unstructured) bool {
	conditions, _, _ := unstructured.NestedSlice(crd.Object, fieldStatus, "conditions")
	return slices.ContainsFunc(conditions, func(condition any) bool {
		of, ok := condition.(map[string]any)
		return ok && of["type"] == "Established" && of[fieldStatus] == "True"
	})
}

// events are those of the Applications, from when the hub has their kind. Then, what another function returns is enqueued, too.
func (a *applications) events(of handler.EventHandler, atFirst func(context.Context) []reconcile.Request) source.Source {
	return source.Func(func(ctx context.Context, q workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
		go func() {
			select {
			case <-ctx.Done():
				return
			case <-a.known:
			}
			all := source.Kind[client.Object](*a.cache.Load(), newApplication(), of)
			if err := all.Start(ctx, q); err != nil {
				ctrl.LoggerFrom(ctx).Error(err, "Watch Applications")
				return
			}
			for _, request := range atFirst(ctx) {
				q.Add(request)
			}
		}()
		return nil
	})
}
