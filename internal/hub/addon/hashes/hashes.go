// Package hashes knows the present hash of every configuration that the add-ons of the hub refer to, of whatever kind. It
// watches the kinds that are referred to, and no others, and holds nothing of the objects but their hashes.
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

// ErrNotYet is returned while the objects of a kind are being listed for the first time. Whoever asked is told when they
// are known.
var ErrNotYet = errors.New("the configurations have not been listed yet")

// State is a configuration as it is now.
type State struct {
	// Hash is its specHash.
	Hash string
	// Generation is its metadata.generation.
	Generation int64
}

// discoveryErrorTTL is how long the error of discovery for a kind is kept. All configurations of the kind are asked for one after
// the other, of which there may be thousands, and discovery reads everything that the hub serves.
const discoveryErrorTTL = 5 * time.Second

// Hashes knows the states of configurations.
type Hashes struct {
	client dynamic.Interface
	serves discovery.DiscoveryInterfaceWithContext
	clock  clock.PassiveClock

	mu      sync.Mutex
	ctx     context.Context // the life of the watches; nil before Start
	queue   workqueue.TypedRateLimitingInterface[reconcile.Request]
	watches map[schema.GroupResource]*watch
	wanted  map[string]map[addonv1beta1.AddOnConfig]bool // by ClusterManagementAddOn
	askers  map[addonv1beta1.AddOnConfig]map[string]bool // the same, the other way round
	wrong   map[schema.GroupResource]wrong               // kinds without a watch
	changes int                                          // of definitions
}

// wrong is why a kind cannot be watched, and until when that is kept.
type wrong struct {
	err   error
	until time.Time
}

// New returns Hashes that watches through the client what the hub serves.
func New(c dynamic.Interface, serves discovery.DiscoveryInterfaceWithContext, clk clock.PassiveClock) *Hashes {
	return &Hashes{
		client: c, serves: serves, clock: clk, watches: map[schema.GroupResource]*watch{}, wrong: map[schema.GroupResource]wrong{},
		wanted: map[string]map[addonv1beta1.AddOnConfig]bool{}, askers: map[addonv1beta1.AddOnConfig]map[string]bool{},
	}
}

// Source makes a controller of ClusterManagementAddOns look at those whose configurations have changed. It has to be given to
// one controller before anything else is asked.
func (h *Hashes) Source() source.Source {
	return source.Func(func(ctx context.Context, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
		h.mu.Lock()
		defer h.mu.Unlock()
		h.ctx, h.queue = ctx, queue
		return nil
	})
}

// Want says which configurations an add-on has to do with now, instead of those that were said before. Kinds that no add-on
// has to do with any more are not watched any longer.
func (h *Hashes) Want(addOn string, configs map[addonv1beta1.AddOnConfig]bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for config := range h.wanted[addOn] {
		if delete(h.askers[config], addOn); len(h.askers[config]) == 0 {
			delete(h.askers, config)
		}
	}
	delete(h.wanted, addOn)
	if len(configs) > 0 {
		h.wanted[addOn] = configs
	}
	kinds := map[schema.GroupResource]bool{}
	for config := range configs {
		if h.askers[config] == nil {
			h.askers[config] = map[string]bool{}
		}
		h.askers[config][addOn] = true
	}
	for config := range h.askers {
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

// Of is the present state of a configuration that an add-on wants. It fails with ErrNotYet, or with what is wrong and what
// to do about it.
func (h *Hashes) Of(config addonv1beta1.AddOnConfig) (State, error) {
	watch, err := h.watchFor(kindOf(config))
	if err != nil {
		return State{}, err
	}
	return watch.state(config)
}

// secrets are not for configurations: whoever may refer to one from an add-on could not read it, but would see its hash, by which what is
// short can be guessed.
var secrets = schema.GroupResource{Resource: "secrets"}

// watchFor starts the watch of a kind if there is none.
func (h *Hashes) watchFor(kind schema.GroupResource) (*watch, error) {
	found, changes, err := h.watchOf(kind)
	if found != nil || err != nil {
		return found, err
	}
	// Discovery takes a while, in which the others that are known have to be told of.
	gvr, err := h.find(kind)
	h.mu.Lock()
	defer h.mu.Unlock()
	if found := h.watches[kind]; found != nil {
		return found, nil
	}
	if err != nil {
		if h.changes == changes { // otherwise it is of before
			h.wrong[kind] = wrong{err: err, until: h.clock.Now().Add(discoveryErrorTTL)}
		}
		return nil, err
	}
	started, err := newWatch(h.ctx, h.client, gvr, callbacks{
		changed: func(name client.ObjectKey) { h.tell(kind, name) },
		ready:   func() { h.tellAll(kind) },
		missing: func(w *watch) { h.missing(kind, w) },
	})
	if err != nil {
		return nil, err
	}
	h.watches[kind] = started
	return started, nil
}

// watchOf is the watch of a kind, or why there cannot be one, as far as that is known. changes is as of when.
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

// find finds what to watch of a kind, or says what to do about it.
func (h *Hashes) find(kind schema.GroupResource) (schema.GroupVersionResource, error) {
	gvr, err := h.resolve(kind)
	switch {
	case meta.IsNoMatchError(err):
		return gvr, notServed(kind)
	case err != nil:
		return gvr, fmt.Errorf("look up %s: %w", kind, err)
	case gvr.GroupResource() == secrets: // by whatever name
		return gvr, errors.New("a Secret cannot be a configuration, the hash of which everybody can see: name a configuration of another kind that refers to the Secret")
	}
	return gvr, nil
}

// resolve finds the version in which the hub serves a kind now. It asks each time: definitions come and go, and so do their versions. Only
// the group that is named counts: a mapper of all of them would take another whose name begins alike.
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

// versions are the resources of a group, by version.
func versions(group string, lists []*metav1.APIResourceList) map[string][]metav1.APIResource {
	byVersion := map[string][]metav1.APIResource{}
	for _, list := range lists {
		if version, err := schema.ParseGroupVersion(list.GroupVersion); err == nil && version.Group == group {
			byVersion[version.Version] = list.APIResources
		}
	}
	return byVersion
}

// missing forgets a watch whose version the hub does not serve, so that the next one who asks gets the version that it does serve, or hears
// that there is none. One that has known objects is not to be trusted any more. One that has not may be a moment early, and goes on
// trying, unless there is another version.
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
	h.tellAll(kind)
}

func notServed(kind schema.GroupResource) error {
	return fmt.Errorf("the hub serves no %s: install the CustomResourceDefinition of the add-on's configurations, or correct the group and resource", kind)
}

// DefinitionChanged is to be called when the CustomResourceDefinition of the name has changed in any way. If it matters, what
// is known of its objects is forgotten, and the add-ons that want them are looked at again.
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
		h.tellAll(kind)
	}
}

// tell has the add-ons looked at that want a configuration.
func (h *Hashes) tell(kind schema.GroupResource, name client.ObjectKey) {
	h.mu.Lock()
	defer h.mu.Unlock()
	config := addonv1beta1.AddOnConfig{
		ConfigGroupResource: addonv1beta1.ConfigGroupResource{Group: kind.Group, Resource: kind.Resource},
		ConfigReferent:      addonv1beta1.ConfigReferent{Namespace: name.Namespace, Name: name.Name},
	}
	for addOn := range h.askers[config] {
		h.queue.Add(reconcile.Request{NamespacedName: client.ObjectKey{Name: addOn}})
	}
}

// tellAll has the add-ons looked at that want any configuration of a kind.
func (h *Hashes) tellAll(kind schema.GroupResource) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for config, addOns := range h.askers {
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

// explain says what to do about a list or watch that fails.
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

// absent says that a configuration does not exist.
func absent(config addonv1beta1.AddOnConfig) error {
	name := config.Name
	if config.Namespace != metav1.NamespaceNone {
		name = config.Namespace + "/" + config.Name
	}
	return fmt.Errorf("%s %s does not exist: create it, or correct the reference to it", kindOf(config), name)
}
