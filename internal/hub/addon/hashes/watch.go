package hashes

import (
	"context"
	"fmt"
	"strings"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/tools/cache"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	addonv1beta1 "github.com/capstan-io/capstan/api/addon/v1beta1"
	"github.com/capstan-io/capstan/internal/machinery/addon/config"
)

// annotationHash has the hash in the stripped objects of the cache.
const annotationHash = "hash"

// watch keeps the hashes of all objects of a kind.
type watch struct {
	gvr      schema.GroupVersionResource
	informer cache.SharedIndexInformer
	stop     context.CancelFunc

	mu      sync.Mutex
	failure error // of the last list or watch
}

// callbacks are the functions that a watch calls.
type callbacks struct {
	// changed is called for each object whose hash has changed.
	changed func(client.ObjectKey)
	// ready is called when all objects have been listed, or when listing has failed.
	ready func()
	// missing is called, at each attempt, when the hub does not serve the version of the watch.
	missing func(*watch)
}

// newWatch starts a watch.
func newWatch(parent context.Context, c dynamic.Interface, gvr schema.GroupVersionResource, notify callbacks) (*watch, error) {
	ctx, stop := context.WithCancel(parent)
	w := &watch{
		gvr: gvr, stop: stop,
		informer: dynamicinformer.NewFilteredDynamicInformer(c, gvr, metav1.NamespaceAll, 0, cache.Indexers{}, nil).Informer(),
	}
	fail := func(err error) (*watch, error) {
		stop()
		return nil, fmt.Errorf("watch %s: %w", gvr.GroupResource(), err)
	}
	if err := w.informer.SetTransform(onlyHash); err != nil {
		return fail(err)
	}
	if err := w.informer.SetWatchErrorHandlerWithContext(func(ctx context.Context, _ *cache.Reflector, err error) {
		if w.fail(err) {
			ctrl.LoggerFrom(ctx).Error(err, "Watch configurations of add-ons", "resource", gvr.GroupResource().String())
			notify.ready()
		}
		if apierrors.IsNotFound(err) {
			notify.missing(w)
		}
	}); err != nil {
		return fail(err)
	}
	registration, err := w.informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: func(o any) { notify.changed(keyOf(o)) },
		UpdateFunc: func(old, o any) {
			if stateOf(old) != stateOf(o) {
				notify.changed(keyOf(o))
			}
		},
		DeleteFunc: func(o any) { notify.changed(keyOf(o)) },
	})
	if err != nil {
		return fail(err)
	}
	go w.informer.RunWithContext(ctx)
	go func() {
		if cache.WaitForCacheSync(ctx.Done(), registration.HasSynced) {
			notify.ready()
		}
	}()
	return w, nil
}

// fail records why the kind cannot be watched, and reports whether that is a new reason.
func (w *watch) fail(err error) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	isNew := !w.informer.HasSynced() && (w.failure == nil || w.failure.Error() != err.Error())
	w.failure = err
	return isNew
}

// hasFailed reports whether a list or watch has ever failed. Then it may fail again, and be late.
func (w *watch) hasFailed() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.failure != nil
}

// problem returns why the states of the kind are not known.
func (w *watch) problem() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.informer.HasSynced() || w.failure == nil {
		return nil
	}
	return explain(w.gvr, w.failure)
}

func (w *watch) state(of addonv1beta1.AddOnConfig) (State, error) {
	if err := w.problem(); err != nil {
		return State{}, err
	}
	if !w.informer.HasSynced() {
		return State{}, ErrNotYet
	}
	found, exists, err := w.informer.GetStore().GetByKey(strings.TrimPrefix(of.Namespace+"/"+of.Name, "/"))
	if err != nil {
		return State{}, fmt.Errorf("look up %s %s/%s: %w", w.gvr.GroupResource(), of.Namespace, of.Name, err)
	}
	if !exists {
		return State{}, absent(of)
	}
	return stateOf(found), nil
}

// onlyHash strips an object down to its hash.
func onlyHash(o any) (any, error) {
	object, ok := o.(*unstructured.Unstructured)
	if !ok {
		return o, nil
	}
	hash, err := config.Hash(object)
	if err != nil {
		return nil, err
	}
	return &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{
		Namespace: object.GetNamespace(), Name: object.GetName(), ResourceVersion: object.GetResourceVersion(),
		Generation: object.GetGeneration(), Annotations: map[string]string{annotationHash: hash},
	}}, nil
}

func stateOf(o any) State {
	object, ok := o.(*metav1.PartialObjectMetadata)
	if !ok {
		return State{}
	}
	return State{Hash: object.Annotations[annotationHash], Generation: object.Generation}
}

func keyOf(o any) client.ObjectKey {
	if gone, ok := o.(cache.DeletedFinalStateUnknown); ok {
		o = gone.Obj
	}
	object, ok := o.(*metav1.PartialObjectMetadata)
	if !ok {
		return client.ObjectKey{}
	}
	return client.ObjectKeyFromObject(object)
}
