// Package hashes knows the present hash of every configuration that the add-ons of the hub refer to, of whatever kind. It
// watches the kinds that are referred to, and no others, and holds nothing of the objects but their hashes.
package hashes

import (
	"context"
	"errors"
	"fmt"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/restmapper"
	"k8s.io/client-go/util/workqueue"
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

// Hashes knows the states of configurations.
type Hashes struct {
	client dynamic.Interface
	serves discovery.DiscoveryInterfaceWithContext

	mu      sync.Mutex
	ctx     context.Context // the life of the watches; nil before Start
	queue   workqueue.TypedRateLimitingInterface[reconcile.Request]
	watches map[schema.GroupResource]*watch
	wanted  map[string]map[addonv1beta1.AddOnConfig]bool // by ClusterManagementAddOn
	askers  map[addonv1beta1.AddOnConfig]map[string]bool // the same, the other way round
}

// New returns Hashes that watches through the client what the hub serves.
func New(c dynamic.Interface, serves discovery.DiscoveryInterfaceWithContext) *Hashes {
	return &Hashes{
		client: c, serves: serves, watches: map[schema.GroupResource]*watch{},
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
	h.mu.Lock()
	defer h.mu.Unlock()
	if found := h.watches[kind]; found != nil {
		return found, nil
	}
	if h.ctx == nil {
		return nil, ErrNotYet
	}
	gvr, err := h.resolve(kind)
	if meta.IsNoMatchError(err) {
		return nil, notServed(kind)
	} else if err != nil {
		return nil, fmt.Errorf("look up %s: %w", kind, err)
	}
	if gvr.GroupResource() == secrets { // by whatever name
		return nil, errors.New("a Secret cannot be a configuration, the hash of which everybody can see: name a configuration of another kind that refers to the Secret")
	}
	started, err := newWatch(h.ctx, h.client, gvr, events{
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

// resolve finds the version in which the hub serves a kind now. It asks each time: definitions come and go, and so do their versions. Only
// the group that is named counts: a mapper of all of them would take another whose name begins alike.
func (h *Hashes) resolve(kind schema.GroupResource) (schema.GroupVersionResource, error) {
	served, err := restmapper.GetAPIGroupResourcesWithContext(h.ctx, h.serves)
	if err != nil {
		return schema.GroupVersionResource{}, err
	}
	for _, group := range served {
		if group.Group.Name == kind.Group {
			return restmapper.NewDiscoveryRESTMapper([]*restmapper.APIGroupResources{group}).ResourceFor(kind.WithVersion(""))
		}
	}
	return schema.GroupVersionResource{}, &meta.NoResourceMatchError{PartialResource: kind.WithVersion("")}
}

// missing forgets a watch whose version the hub does not serve, so that the next one who asks gets the version that it does serve, or hears
// that there is none. One that has known objects is not to be believed any more. One that has not may be a moment early, and goes on
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
