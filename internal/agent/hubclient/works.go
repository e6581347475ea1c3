package hubclient

import (
	"context"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/cluster"

	workv1 "github.com/capstan-io/capstan/api/work/v1"
	"github.com/capstan-io/capstan/internal/agent/relist"
)

// WorksByName has the cache of works go on with the works that it knows when the agent may not list any: it reads each by its name. That is
// all that the agent of a denied cluster may do, and how it learns that one of them was deleted. The cache does so at intervals that grow
// to half a minute, until it may list works again.
//
// No cache starts with a watch in place of a list: a list of what is in one namespace is short, and a hub may end it only within a second,
// or refuse such a watch.
func WorksByName(hub client.Reader) cluster.Option {
	return func(o *cluster.Options) {
		o.Cache.NewInformer = func(lw toolscache.ListerWatcher, kind runtime.Object, resync time.Duration,
			indexers toolscache.Indexers) toolscache.SharedIndexInformer {
			ofHub := toolscache.ToListerWatcherWithContext(relist.AfterOutage(lw))
			if _, works := kind.(*workv1.ManifestWork); !works {
				return toolscache.NewSharedIndexInformer(listFirst(ofHub.ListWithContext, ofHub.WatchWithContext), kind, resync, indexers)
			}
			works := &worksByName{ListerWatcherWithContext: ofHub, hub: hub}
			informer := toolscache.NewSharedIndexInformer(listFirst(works.list, works.watch), kind, resync, indexers)
			works.known = informer.GetStore()
			return informer
		}
	}
}

// listFirst returns what lists before it watches.
func listFirst(list toolscache.ListWithContextFunc, watch toolscache.WatchFuncWithContext) toolscache.ListerWatcher {
	return toolscache.ToListWatcherWithWatchListSemantics(
		&toolscache.ListWatch{ListWithContextFunc: list, WatchFuncWithContext: watch}, withoutWatchList{})
}

// withoutWatchList is a client for [toolscache.ToListWatcherWithWatchListSemantics].
type withoutWatchList struct{}

// IsWatchListSemanticsUnSupported says that a list does not come as a watch.
func (withoutWatchList) IsWatchListSemanticsUnSupported() bool { return true }

// worksByName lists and watches works, or reads those of the store by name.
type worksByName struct {
	toolscache.ListerWatcherWithContext
	hub   client.Reader
	known toolscache.Store
}

func (w *worksByName) list(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
	list, err := w.ListWithContext(ctx, options)
	if !w.readsByName(err) {
		return list, err
	}
	return w.read(ctx)
}

// readsByName reports whether works are read by name as the hub has forbidden all else. What a proxy forbids is tried again.
func (w *worksByName) readsByName(err error) bool {
	return apierrors.IsForbidden(err) && !apierrors.IsUnexpectedServerError(err) && len(w.known.ListKeys()) > 0
}

// read returns the works of the store that still exist, as they are now.
func (w *worksByName) read(ctx context.Context) (*workv1.ManifestWorkList, error) {
	list := &workv1.ManifestWorkList{}
	for _, key := range w.known.ListKeys() {
		namespace, name, _ := strings.Cut(key, "/")
		work := &workv1.ManifestWork{}
		switch err := w.hub.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, work); {
		case err == nil:
			list.Items = append(list.Items, *work)
		case !apierrors.IsNotFound(err), apierrors.IsUnexpectedServerError(err):
			return nil, err
		}
	}
	return list, nil
}

// watch answers that the list is too old where nothing may be watched, so that the cache lists again after its interval.
func (w *worksByName) watch(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
	watching, err := w.WatchWithContext(ctx, options)
	if w.readsByName(err) {
		return nil, apierrors.NewResourceExpired("works may not be watched: " + err.Error())
	}
	return watching, err
}
