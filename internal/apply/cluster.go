// Package apply keeps the objects of installations on a cluster: it applies them, notices when another writer changes or deletes one,
// and deletes those that an installation no longer has.
//
// An installation is what one ClusterManager or Klusterlet consists of. Its objects have a label with its name.
package apply

import (
	"context"
	"fmt"
	"slices"
	"sync"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/selection"
	"k8s.io/apimachinery/pkg/types"
	authorizationv1client "k8s.io/client-go/kubernetes/typed/authorization/v1"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"

	"github.com/capstan-io/capstan/internal/machinery/repair"
	"github.com/capstan-io/capstan/internal/rights"
)

// Options describe the installations on a cluster.
type Options struct {
	// Label is the key of the label that names the installation of an object.
	Label string
	// FieldManager is the manager of the fields that are applied.
	FieldManager string
	// Kinds are those of all objects that installations may have on the cluster.
	Kinds []schema.GroupVersionKind
	// Optional are those of the kinds that an installation works without: their objects are left out where the API server does not serve
	// them, or does not let them be watched or written.
	Optional []schema.GroupVersionKind
	// Scheme knows the types of the kinds.
	Scheme *runtime.Scheme
	// Version is that of the program, which CRDs are marked with.
	Version string
	// Changed is called with the name of an installation when an object of it appears, changes or goes. It must not block.
	Changed func(installation string)
}

// Cluster is a cluster with installations. It watches the metadata of their objects, and Deployments whole. What it may not watch, it
// applies all the same, but does not notice when others change it, nor find it when it is to be pruned. A Cluster has to be started, and
// is used once its cache is filled; see [Cluster.Start] and [Cluster.WaitForCacheSync].
type Cluster struct {
	Options
	// Client reads and writes without a cache.
	Client client.Client
	cache  cache.Cache
	// reviewer reviews what may be watched, and rulesReviewer what may be granted.
	reviewer      rights.Reviewer
	rulesReviewer rights.RulesReviewer

	mu       sync.Mutex
	applied  map[reference]state
	unserved map[schema.GroupVersionKind]bool
	// unwatched are the kinds that may not be watched, and unwritten the rules that would permit writing what was left out.
	unwatched map[schema.GroupVersionKind]bool
	unwritten map[schema.GroupVersionKind]string
	// ungranted are the rules that roles are applied without, because they may not be granted.
	ungranted map[reference][]string
	// backoff says how soon an object may be applied again that others keep changing or deleting.
	backoff *repair.Backoff
}

// reference names an object on a cluster.
type reference struct {
	schema.GroupVersionKind
	types.NamespacedName
}

// state is what is known about an object after it was applied: the content that was applied, and the object that resulted.
type state struct {
	hash            string
	uid             types.UID
	resourceVersion string
}

// Deployments is their kind. They are watched whole, because their status reports whether an installation works.
var Deployments = appsv1.SchemeGroupVersion.WithKind("Deployment")

// NewCluster returns the cluster that the configuration leads to. Nothing is sent to the cluster yet.
func NewCluster(config *rest.Config, options Options) (*Cluster, error) {
	config = rest.CopyConfig(config)
	config.WarningHandler = rest.NoWarnings{} // warnings are for users, who do not read this log
	http, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, err
	}
	mapper, err := apiutil.NewDynamicRESTMapper(config, http)
	if err != nil {
		return nil, err
	}
	direct, err := client.New(config, client.Options{HTTPClient: http, Scheme: options.Scheme, Mapper: mapper})
	if err != nil {
		return nil, err
	}
	installed, err := labels.NewRequirement(options.Label, selection.Exists, nil)
	if err != nil {
		return nil, err
	}
	watched, err := cache.New(config, cache.Options{
		HTTPClient: http, Scheme: options.Scheme, Mapper: mapper,
		DefaultLabelSelector: labels.NewSelector().Add(*installed),
		DefaultTransform:     cache.TransformStripManagedFields(),
	})
	if err != nil {
		return nil, err
	}
	reviews, err := authorizationv1client.NewForConfigAndClient(config, http)
	if err != nil {
		return nil, err
	}
	return &Cluster{Options: options, Client: direct, cache: watched,
		reviewer: reviews.SelfSubjectAccessReviews(), rulesReviewer: reviews.SelfSubjectRulesReviews(),
		applied: map[reference]state{}, unserved: map[schema.GroupVersionKind]bool{},
		unwatched: map[schema.GroupVersionKind]bool{}, unwritten: map[schema.GroupVersionKind]string{}, ungranted: map[reference][]string{},
		backoff: repair.NewBackoff(clock.RealClock{}, repair.AtOnceByControllers)}, nil
}

// Start implements manager.Runnable: it watches the objects until the context ends, or until it may watch more than when it started.
func (c *Cluster) Start(ctx context.Context) error {
	watched, missing, err := c.watchable(ctx)
	if err != nil {
		return err
	}
	for _, kind := range watched {
		informer, err := c.cache.GetInformer(ctx, c.prototype(kind), cache.BlockUntilSynced(false))
		if err != nil {
			return fmt.Errorf("watch %s: %w", kind.Kind, err)
		}
		if _, err := informer.AddEventHandler(c.handler()); err != nil {
			return fmt.Errorf("watch %s: %w", kind.Kind, err)
		}
	}
	running, stop := context.WithCancel(ctx)
	defer stop()
	ended := make(chan error, 1)
	go func() { ended <- c.cache.Start(running) }()
	recheck := rights.Recheck{Reviewer: c.reviewer, Watches: missing}
	if err := recheck.Start(running); err != nil {
		return err
	}
	return <-ended
}

// watchable are the kinds that are served and may be watched, and the watches that are not permitted.
func (c *Cluster) watchable(ctx context.Context) (watched []schema.GroupVersionKind, missing []rights.Watch, err error) {
	for _, kind := range c.Kinds {
		served, err := c.serves(kind)
		if err != nil {
			return nil, nil, err
		}
		if !served {
			continue
		}
		denied, err := rights.Missing(ctx, c.reviewer, rights.Watch{GroupVersionKind: kind})
		if err != nil {
			return nil, nil, err
		}
		if len(denied) == 0 {
			watched = append(watched, kind)
			continue
		}
		missing = append(missing, denied...)
		c.mu.Lock()
		c.unwatched[kind] = true
		c.mu.Unlock()
	}
	return watched, missing, nil
}

// MissingRules are the rules, as in a ClusterRole, without which something is left out, also of the roles that are applied, or changes of
// others go unnoticed.
func (c *Cluster) MissingRules() (rules []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for kind := range c.unwatched {
		if slices.Contains(c.Optional, kind) {
			rules = append(rules, rights.Rule(kind.GroupKind(), "", "", allVerbs...))
		} else {
			rules = append(rules, rights.Watch{GroupVersionKind: kind}.Rule())
		}
	}
	for _, rule := range c.unwritten {
		rules = append(rules, rule)
	}
	for _, ungranted := range c.ungranted {
		rules = append(rules, ungranted...)
	}
	slices.Sort(rules)
	return rules
}

// allVerbs are those that the objects of a kind need.
var allVerbs = []string{"get", "list", "watch", "create", "update", "patch", "delete"}

// serves reports whether the API server serves a kind. One that need not be served and is not is left out from now on.
func (c *Cluster) serves(kind schema.GroupVersionKind) (bool, error) {
	_, err := c.Client.RESTMapper().RESTMapping(kind.GroupKind(), kind.Version)
	if meta.IsNoMatchError(err) && slices.Contains(c.Optional, kind) {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.unserved[kind] = true
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("find out whether %s is served: %w", kind.Kind, err)
	}
	return true, nil
}

// leftOut reports whether the objects of a kind are left out.
func (c *Cluster) leftOut(kind schema.GroupVersionKind) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.unserved[kind] || c.unwatched[kind] && slices.Contains(c.Optional, kind)
}

// watches reports whether the cache has the objects of a kind.
func (c *Cluster) watches(kind schema.GroupVersionKind) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return !c.unserved[kind] && !c.unwatched[kind]
}

// reader reads objects of a kind from the cache, or from the API server if they may not be watched.
func (c *Cluster) reader(kind schema.GroupVersionKind) client.Reader {
	if c.watches(kind) {
		return c.cache
	}
	return c.Client
}

// WaitForCacheSync waits until the objects of all installations are known that may be watched, and reports whether they are.
func (c *Cluster) WaitForCacheSync(ctx context.Context) bool {
	return c.cache.WaitForCacheSync(ctx)
}

// NeedLeaderElection implements manager.LeaderElectionRunnable: only the process that acts watches.
func (c *Cluster) NeedLeaderElection() bool { return true }

func (c *Cluster) prototype(kind schema.GroupVersionKind) client.Object {
	if kind == Deployments {
		return &appsv1.Deployment{}
	}
	object := &metav1.PartialObjectMetadata{}
	object.SetGroupVersionKind(kind)
	return object
}

func (c *Cluster) handler() toolscache.ResourceEventHandler {
	changed := func(object any) {
		if gone, ok := object.(toolscache.DeletedFinalStateUnknown); ok {
			object = gone.Obj
		}
		if o, ok := object.(client.Object); ok {
			c.Changed(o.GetLabels()[c.Label])
		}
	}
	return toolscache.ResourceEventHandlerFuncs{
		AddFunc:    changed,
		DeleteFunc: changed,
		UpdateFunc: func(before, after any) {
			changed(before) // an object may have gone over to another installation
			changed(after)
		},
	}
}

// Deployment returns a Deployment of an installation as it was last seen. The error is NotFound while it is not there, or not known yet.
func (c *Cluster) Deployment(ctx context.Context, key types.NamespacedName) (*appsv1.Deployment, error) {
	deployment := &appsv1.Deployment{}
	return deployment, c.reader(Deployments).Get(ctx, key, deployment)
}
