// Package hashes provides the hash of every configuration that the add-ons of the hub refer to, of whatever kind. It watches only kinds
// that are referred to, and keeps only the hashes of the objects.
package hashes

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/restmapper"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	addonv1beta1 "github.com/capstan-io/capstan/api/addon/v1beta1"
)

// ErrNotYet is returned while the objects of a kind are being listed for the first time. The add-ons that need them are enqueued when the
// list is complete.
var ErrNotYet = errors.New("the configurations have not been listed yet")

// State is the present state of a configuration.
type State struct {
	// Hash is its specHash.
	Hash string
	// Generation is its metadata.generation.
	Generation int64
}

// discoveryErrorTTL is how long a discovery error for a kind is cached. There may be thousands of configurations of a kind, which are
// read one after the other, and discovery reads everything that the hub serves.
const discoveryErrorTTL = 5 * time.Second

// Hashes provides the states of configurations.
type Hashes struct {
	client dynamic.Interface
	serves discovery.DiscoveryInterfaceWithContext
	clock  clock.PassiveClock

	mu       sync.Mutex
	ctx      context.Context // the life of the watches; nil before Start
	queue    workqueue.TypedRateLimitingInterface[reconcile.Request]
	watches  map[schema.GroupResource]*watch
	required map[string]map[addonv1beta1.AddOnConfig]bool // by ClusterManagementAddOn
	addOnsOf map[addonv1beta1.AddOnConfig]map[string]bool // the same, the other way round
	wrong    map[schema.GroupResource]wrong               // kinds without a watch
	changes  int                                          // of definitions
}

// wrong is why a kind cannot be watched, and until when that is cached.
type wrong struct {
	err   error
	until time.Time
}

// New returns Hashes that watch through the client. serves reports which kinds the hub serves.
func New(c dynamic.Interface, serves discovery.DiscoveryInterfaceWithContext, clk clock.PassiveClock) *Hashes {
	return &Hashes{
		client: c, serves: serves, clock: clk, watches: map[schema.GroupResource]*watch{}, wrong: map[schema.GroupResource]wrong{},
		required: map[string]map[addonv1beta1.AddOnConfig]bool{}, addOnsOf: map[addonv1beta1.AddOnConfig]map[string]bool{},
	}
}

// Source returns a source for a controller of ClusterManagementAddOns, which enqueues those whose configurations have changed. One
// controller has to have it before the other methods are called.
func (h *Hashes) Source() source.Source {
	return source.Func(func(ctx context.Context, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
		h.mu.Lock()
		defer h.mu.Unlock()
		h.ctx, h.queue = ctx, queue
		return nil
	})
}

// Require replaces the configurations whose states an add-on needs. Kinds that no add-on needs are no longer watched.
func (h *Hashes) Require(addOn string, configs map[addonv1beta1.AddOnConfig]bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for config := range h.required[addOn] {
		if delete(h.addOnsOf[config], addOn); len(h.addOnsOf[config]) == 0 {
			delete(h.addOnsOf, config)
		}
	}
	delete(h.required, addOn)
	if len(configs) > 0 {
		h.required[addOn] = configs
	}
	kinds := map[schema.GroupResource]bool{}
	for config := range configs {
		if h.addOnsOf[config] == nil {
			h.addOnsOf[config] = map[string]bool{}
		}
		h.addOnsOf[config][addOn] = true
	}
	for config := range h.addOnsOf {
		kinds[kindOf(config)] = true
	}
	for kind, watch := range h.watches {
		if !kinds[kind] {
			watch.stop()
			delete(h.watches, kind)
		}
	}
	maps.DeleteFunc(h.wrong, func(kind schema.GroupResource, _ wrong) bool { return !kinds[kind] })
}

// Of returns the present state of a configuration that an add-on wants. It fails with ErrNotYet, or with an error that says what is
// wrong and what to do.
func (h *Hashes) Of(config addonv1beta1.AddOnConfig) (State, error) {
	watch, err := h.watchFor(kindOf(config))
	if err != nil {
		return State{}, err
	}
	return watch.state(config)
}

// secrets may not be configurations: a user who may refer to a Secret from an add-on, but not read it, would see its hash, from which
// short contents can be guessed.
var secrets = schema.GroupResource{Resource: "secrets"}

// watchFor returns the watch of a kind, which it starts if there is none.
func (h *Hashes) watchFor(kind schema.GroupResource) (*watch, error) {
	found, changes, err := h.watchOf(kind)
	if found != nil || err != nil {
		return found, err
	}
	// Discovery takes a while, during which other kinds have to be available.
	gvr, err := h.find(kind)
	h.mu.Lock()
	defer h.mu.Unlock()
	if found := h.watches[kind]; found != nil {
		return found, nil
	}
	if err != nil {
		if h.changes == changes { // otherwise the result is outdated
			h.wrong[kind] = wrong{err: err, until: h.clock.Now().Add(discoveryErrorTTL)}
		}
		return nil, err
	}
	started, err := newWatch(h.ctx, h.client, gvr, callbacks{
		changed: func(name client.ObjectKey) { h.enqueue(kind, name) },
		ready:   func() { h.enqueueKind(kind) },
		missing: func(w *watch) { h.missing(kind, w) },
	})
	if err != nil {
		return nil, err
	}
	h.watches[kind] = started
	return started, nil
}

// watchOf returns the watch of a kind, or the cached reason why there is none. changes is the number of definition changes so far.
func (h *Hashes) watchOf(kind schema.GroupResource) (found *watch, changes int, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.ctx == nil {
		return nil, h.changes, ErrNotYet
	}
	if known := h.wrong[kind]; h.watches[kind] == nil && h.clock.Now().Before(known.until) {
		err = known.err
	}
	return h.watches[kind], h.changes, err
}

// find returns the resource to watch for a kind, or an error that says what to do.
func (h *Hashes) find(kind schema.GroupResource) (schema.GroupVersionResource, error) {
	gvr, err := h.resolve(kind)
	switch {
	case meta.IsNoMatchError(err):
		return gvr, notServed(kind)
	case err != nil:
		return gvr, fmt.Errorf("look up %s: %w", kind, err)
	case gvr.GroupResource() == secrets: // by whatever name
		return gvr, errors.New("a Secret cannot be a configuration, the hash of which everybody can see: name a configuration of another kind that refers " +
			"to the Secret")
	}
	return gvr, nil
}

// resolve returns the version in which the hub serves a kind now. It uses discovery each time, because definitions and their versions
// change. Only the named group counts: a REST mapper of all groups would also match a group whose name starts alike.
func (h *Hashes) resolve(kind schema.GroupResource) (schema.GroupVersionResource, error) {
	groups, lists, err := h.serves.ServerGroupsAndResourcesWithContext(h.ctx)
	failed, partial := discovery.GroupDiscoveryFailedErrorGroups(err)
	if err != nil && !partial {
		return schema.GroupVersionResource{}, err
	}
	for version, err := range failed {
		if version.Group == kind.Group {
			return schema.GroupVersionResource{}, fmt.Errorf("what serves %s does not answer, get its APIService to be available: %w", version, err)
		}
	}
	for _, group := range groups {
		if group.Name == kind.Group {
			served := &restmapper.APIGroupResources{Group: *group, VersionedResources: versions(group.Name, lists)}
			return restmapper.NewDiscoveryRESTMapper([]*restmapper.APIGroupResources{served}).ResourceFor(kind.WithVersion(""))
		}
	}
	return schema.GroupVersionResource{}, &meta.NoResourceMatchError{PartialResource: kind.WithVersion("")}
}

// versions returns the resources of a group, by version.
func versions(group string, lists []*metav1.APIResourceList) map[string][]metav1.APIResource {
	byVersion := map[string][]metav1.APIResource{}
	for _, list := range lists {
		if version, err := schema.ParseGroupVersion(list.GroupVersion); err == nil && version.Group == group {
			byVersion[version.Version] = list.APIResources
		}
	}
	return byVersion
}

// missing forgets a watch whose version the hub does not serve, so that the next call watches the version that it does serve, or fails.
// What a watch has listed before is outdated then. A watch that has listed nothing may have started a moment before the hub serves the
// version; it tries again, unless there is another version.
func (h *Hashes) missing(kind schema.GroupResource, w *watch) {
	if !w.informer.HasSynced() {
		if now, err := h.resolve(kind); now == w.gvr || err != nil && !meta.IsNoMatchError(err) {
			return
		}
	}
	h.mu.Lock()
	if h.watches[kind] == w {
		w.stop()
		delete(h.watches, kind)
	}
	h.mu.Unlock()
	h.enqueueKind(kind)
}

func notServed(kind schema.GroupResource) error {
	return fmt.Errorf("the hub serves no %s: install the CustomResourceDefinition of the add-on's configurations, or correct the group and resource", kind)
}

// DefinitionChanged has to be called when the CustomResourceDefinition of the name has changed in any way. If the change matters, the
// states of its objects are forgotten, and the add-ons that want them are enqueued.
func (h *Hashes) DefinitionChanged(name string) {
	kind := schema.ParseGroupResource(name)
	h.mu.Lock()
	h.changes++
	delete(h.wrong, kind)
	if watch := h.watches[kind]; watch != nil && watch.hasFailed() {
		watch.stop()
		delete(h.watches, kind)
	}
	_, watched := h.watches[kind]
	h.mu.Unlock()
	if !watched {
		h.enqueueKind(kind)
	}
}

// enqueue enqueues the add-ons that want a configuration.
func (h *Hashes) enqueue(kind schema.GroupResource, name client.ObjectKey) {
	h.mu.Lock()
	defer h.mu.Unlock()
	config := addonv1beta1.AddOnConfig{
		ConfigGroupResource: addonv1beta1.ConfigGroupResource{Group: kind.Group, Resource: kind.Resource},
		ConfigReferent:      addonv1beta1.ConfigReferent{Namespace: name.Namespace, Name: name.Name},
	}
	for addOn := range h.addOnsOf[config] {
		h.queue.Add(reconcile.Request{NamespacedName: client.ObjectKey{Name: addOn}})
	}
}

// enqueueKind enqueues the add-ons that want any configuration of a kind.
func (h *Hashes) enqueueKind(kind schema.GroupResource) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for config, addOns := range h.addOnsOf {
		if kindOf(config) == kind {
			for addOn := range addOns {
				h.queue.Add(reconcile.Request{NamespacedName: client.ObjectKey{Name: addOn}})
			}
		}
	}
}

func kindOf(config addonv1beta1.AddOnConfig) schema.GroupResource {
	return schema.GroupResource{Group: config.Group, Resource: config.Resource}
}

// explain adds to the error of a list or watch what to do about it.
func explain(gvr schema.GroupVersionResource, err error) error {
	switch {
	case apierrors.IsNotFound(err):
		return notServed(gvr.GroupResource())
	case apierrors.IsForbidden(err):
		return fmt.Errorf("the hub may not read %s: grant its controllers the verbs get, list and watch on them (%w)", gvr.GroupResource(), err)
	default:
		return fmt.Errorf("the hub cannot list %s: %w", gvr.GroupResource(), err)
	}
}

// absent returns the error for a configuration that does not exist.
func absent(config addonv1beta1.AddOnConfig) error {
	name := config.Name
	if config.Namespace != metav1.NamespaceNone {
		name = config.Namespace + "/" + config.Name
	}
	return fmt.Errorf("%s %s does not exist: create it, or correct the reference to it", kindOf(config), name)
}
