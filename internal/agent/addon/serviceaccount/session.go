package serviceaccount

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	authenticationv1beta1 "github.com/capstan-io/capstan/api/authentication/v1beta1"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
)

// session is the time in which the add-on is switched on, with its watches: before and after, the hub does not allow them.
type session struct {
	// namespace has the service accounts on the managed cluster.
	namespace string
	// hub has the ManagedServiceAccounts and their Secrets, managed their service accounts.
	hub, managed cache.Cache
	end          context.CancelFunc
	known        chan struct{}

	mu      sync.Mutex
	failure map[string]error // by the resource whose watch fails
	// early are the names in events from before everything was known.
	early map[string]bool
}

type queue = workqueue.TypedRateLimitingInterface[reconcile.Request]

// side is a cluster of which a session keeps a cache.
type side struct {
	config *rest.Config
	http   *http.Client
	scheme *runtime.Scheme
	mapper meta.RESTMapper
	// within is the namespace that is watched.
	within string
}

// startSession watches, and enqueues what changes: a ManagedServiceAccount by its name, and, when it is known what there is, and when a
// watch fails, the add-on.
func (c *Controller) startSession(ctx context.Context, namespace string, queue queue) (*session, error) {
	ctx, end := context.WithCancel(ctx)
	s := &session{namespace: namespace, end: end, known: make(chan struct{}), failure: map[string]error{}, early: map[string]bool{}}
	marked := cache.ByObject{Label: labels.SelectorFromSet(labels.Set{fleet.LabelManagedServiceAccount: fleet.LabelTrue})}
	var err error
	if s.hub, err = c.cacheOf(s, c.hubSide, queue, map[client.Object]cache.ByObject{&corev1.Secret{}: marked}); err != nil {
		end()
		return nil, err
	}
	there := c.managedSide
	there.within = namespace
	if s.managed, err = c.cacheOf(s, there, queue, map[client.Object]cache.ByObject{&corev1.ServiceAccount{}: marked}); err != nil {
		end()
		return nil, err
	}
	byName := func(o any) {
		if tombstone, gone := o.(toolscache.DeletedFinalStateUnknown); gone {
			o = tombstone.Obj
		}
		if o, err := meta.Accessor(o); err == nil {
			s.addPending(o.GetName())
			queue.Add(c.request(o.GetName()))
		}
	}
	for _, watched := range []struct {
		cache  cache.Cache
		object client.Object
	}{
		{s.hub, &authenticationv1beta1.ManagedServiceAccount{}}, {s.hub, &corev1.Secret{}}, {s.managed, &corev1.ServiceAccount{}},
	} {
		informer, err := watched.cache.GetInformer(ctx, watched.object, cache.BlockUntilSynced(false))
		if err == nil {
			_, err = informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
				AddFunc: byName, UpdateFunc: func(before, after any) {
					if matters(before, after) {
						byName(after)
					}
				}, DeleteFunc: byName,
			})
		}
		if err != nil {
			end()
			return nil, fmt.Errorf("watch %T: %w", watched.object, err)
		}
	}
	for _, one := range []cache.Cache{s.hub, s.managed} {
		go one.Start(ctx) //nolint:errcheck // it ends with the context
	}
	go func() {
		for _, name := range s.waitForSync(ctx) {
			queue.Add(c.request(name))
		}
		queue.Add(c.request(""))
	}()
	return s, nil
}

// matters reports whether a change is one that this controller has not made itself in a status.
func matters(before, after any) bool {
	was, ok := before.(*authenticationv1beta1.ManagedServiceAccount)
	is, too := after.(*authenticationv1beta1.ManagedServiceAccount)
	return !ok || !too || was.UID != is.UID || was.Generation != is.Generation ||
		was.DeletionTimestamp.IsZero() != is.DeletionTimestamp.IsZero()
}

func (c *Controller) cacheOf(s *session, of side, queue queue, by map[client.Object]cache.ByObject) (cache.Cache, error) {
	made, err := cache.New(of.config, cache.Options{
		HTTPClient: of.http, Scheme: of.scheme, Mapper: of.mapper, DefaultTransform: cache.TransformStripManagedFields(),
		DefaultNamespaces: map[string]cache.Config{of.within: {}}, ByObject: by,
		DefaultWatchErrorHandler: func(ctx context.Context, r *toolscache.Reflector, err error) {
			if s.fails(r.TypeDescription(), err) {
				queue.Add(c.request(""))
			}
			toolscache.DefaultWatchErrorHandler(ctx, r, err)
		},
	})
	if err != nil {
		return nil, fmt.Errorf("make a cache of %s: %w", of.config.Host, err)
	}
	return made, nil
}

// addPending remembers a name until everything is known: before, nothing can be done about it.
func (s *session) addPending(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.hasSynced() {
		s.early[name] = true
	}
}

// waitForSync returns the pending names.
func (s *session) waitForSync(ctx context.Context) []string {
	if !s.hub.WaitForCacheSync(ctx) || !s.managed.WaitForCacheSync(ctx) {
		return nil // the session ends first
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	close(s.known)
	return slices.Collect(maps.Keys(s.early))
}

// fails remembers why a watch fails, and reports whether that is news. Watches that have started end all the time, and are started again.
func (s *session) fails(what string, err error) bool {
	if s.hasSynced() {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	before := s.failure[what]
	s.failure[what] = err
	return before == nil || before.Error() != err.Error()
}

// hasSynced reports whether the session knows all that there is.
func (s *session) hasSynced() bool {
	select {
	case <-s.known:
		return true
	default:
		return false
	}
}

// failures returns why it does not.
func (s *session) failures() (all []error) {
	if s.hasSynced() {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, err := range s.failure {
		all = append(all, err)
	}
	return all
}
