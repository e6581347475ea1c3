package agent

import (
	"context"
	"fmt"
	"math"
	"net/http"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/selection"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/cluster"
	ctrlconfig "sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/log"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	aboutv1alpha1 "github.com/capstan-io/capstan/api/about/v1alpha1"
	addonv1beta1 "github.com/capstan-io/capstan/api/addon/v1beta1"
	clusterv1 "github.com/capstan-io/capstan/api/cluster/v1"
	clusterv1alpha1 "github.com/capstan-io/capstan/api/cluster/v1alpha1"
	workv1 "github.com/capstan-io/capstan/api/work/v1"
	"github.com/capstan-io/capstan/internal/agent/hubclient"
	"github.com/capstan-io/capstan/internal/agent/registration/heartbeat"
	"github.com/capstan-io/capstan/internal/agent/registration/monitor"
	"github.com/capstan-io/capstan/internal/agent/relist"
	"github.com/capstan-io/capstan/internal/featuregates"
	"github.com/capstan-io/capstan/internal/machinery/consistentclient"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
)

// serve works on the hub under the stored credential, until the context ends, or the credential or the hub kubeconfig changes, or the
// hub refuses the agent or, where there are several, does not answer.
func (a *Agent) serve(ctx context.Context) error {
	kubeconfig := a.watchHubKubeconfig()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	config, err := a.store.Connect(ctx, a.identity.Cluster)
	if err != nil {
		return fmt.Errorf("use the hub kubeconfig: %w", err)
	}
	if a.hubHash, err = a.hubHashOf(config); err != nil { // before the credential follows the bootstrap kubeconfig
		return err
	}
	transport, err := rest.HTTPClientFor(config) // one connection for all, which costs the hub memory
	if err != nil {
		return fmt.Errorf("connect to the hub: %w", err)
	}
	if config.Transport == nil { // otherwise the connections belong to others
		defer utilnet.CloseIdleConnectionsFor(transport.Transport)
	}
	uncached, err := hubclient.NewOver(transport, config)
	if err != nil {
		return fmt.Errorf("connect to the hub: %w", err)
	}
	connection := monitor.New(uncached, a.identity.Cluster, a.hubTimeout(), a.clock)
	// The first to end ends the others.
	all, ctx := errgroup.WithContext(ctx)
	all.Go(func() error { return kubeconfig.Start(ctx) })
	all.Go(func() error { return a.keepCRDs(ctx) })
	if a.parts.Registration {
		all.Go(func() error { return a.bootstrap.Follow(ctx) })
		all.Go(func() error { return connection.Start(ctx) })
	}
	all.Go(func() error { return a.control(ctx, config, transport, uncached, connection) })
	return all.Wait()
}

// control runs the controllers once the hub lets them work.
func (a *Agent) control(ctx context.Context, config *rest.Config, transport *http.Client, uncached client.WithWatch,
	connection *monitor.Monitor) error {
	if err := a.awaitRights(ctx, uncached, connection); err != nil {
		return err
	}
	hub, err := hubclient.NewCluster(config, a.hubOptions, hubclient.Over(transport), a.onWatchErrors(connection),
		hubclient.WorksByName(uncached))
	if err != nil {
		return fmt.Errorf("connect to the hub %s: %w", config.Host, err)
	}
	mgr, err := ctrl.NewManager(a.managed, a.managerOptions(a.hubHash))
	if err != nil {
		return fmt.Errorf("connect to the managed cluster %s: %w", a.managed.Host, err)
	}
	if err := a.register(ctx, mgr, hub, uncached, connection); err != nil {
		return err
	}
	log.FromContext(ctx).Info("Connected to the hub", "hub", config.Host, "cluster", a.identity.Cluster, "agent", a.identity.Agent)
	return mgr.Start(ctx)
}

func (a *Agent) register(ctx context.Context, mgr ctrl.Manager, hub cluster.Cluster, uncached client.WithWatch,
	connection *monitor.Monitor) error {
	if err := mgr.Add(hub); err != nil {
		return err
	}
	if err := mgr.Add(&a.working); err != nil {
		return err
	}
	hubEvents, err := startHubEvents(ctx, hub)
	if err != nil {
		return err
	}
	if a.parts.Registration {
		if err := a.registerRegistration(mgr, hub, uncached, connection, hubEvents); err != nil {
			return err
		}
	}
	if a.managesAddOns() {
		if err := a.registerAddOns(mgr, hub, uncached, hubEvents); err != nil {
			return err
		}
	}
	if a.parts.Work {
		return a.registerWork(ctx, mgr, hub, hubEvents)
	}
	return nil
}

// hubOptions restrict the caches to the objects of the agent's own cluster.
func (a *Agent) hubOptions(o *cluster.Options) {
	o.Cache.DefaultTransform = cache.TransformStripManagedFields()
	o.Cache.ByObject = map[client.Object]cache.ByObject{
		&clusterv1.ManagedCluster{}:         {Field: fields.OneTermEqualSelector("metadata.name", a.identity.Cluster)},
		&addonv1beta1.ManagedClusterAddOn{}: {Namespaces: map[string]cache.Config{a.identity.Cluster: {}}},
		&workv1.ManifestWork{}:              {Namespaces: map[string]cache.Config{a.identity.Cluster: {}}},
	}
}

// unservedRetry is how long a cache of add-ons waits for a hub that does not serve them: one of an earlier version, or without their CRDs.
const unservedRetry = 10 * time.Minute

// onWatchErrors has the monitor check the hub when a cache is unauthorized: where the cluster is gone, there are no other requests. A hub
// that does not serve add-ons is no error; their controllers start when it does.
func (a *Agent) onWatchErrors(connection *monitor.Monitor) cluster.Option {
	var logUnserved sync.Once
	return func(o *cluster.Options) {
		o.Cache.DefaultWatchErrorHandler = func(ctx context.Context, r *toolscache.Reflector, err error) {
			if apierrors.IsUnauthorized(err) {
				connection.CheckNow()
			}
			if apierrors.IsNotFound(err) && isUnservedAddOn(r) {
				logUnserved.Do(func() {
					log.FromContext(ctx).Info("The hub does not serve ManagedClusterAddOns of "+addonv1beta1.GroupVersion.String()+
						"; upgrade it, or install their CRDs there, to have some. The agent tries again", "every", unservedRetry.String())
				})
				a.sleep(ctx, unservedRetry)
				return
			}
			toolscache.DefaultWatchErrorHandler(ctx, r, err)
		}
	}
}

// isUnservedAddOn reports whether a reflector is that of add-ons and has not listed any since it started.
func isUnservedAddOn(r *toolscache.Reflector) bool {
	return r.TypeDescription() == fmt.Sprintf("%T", &addonv1beta1.ManagedClusterAddOn{}) && r.LastSyncResourceVersion() == ""
}

func (a *Agent) managerOptions(hubHash string) ctrl.Options {
	managedNamespace, err := labels.NewRequirement(fleet.ManagedNamespaceLabel(hubHash), selection.Exists, nil)
	utilruntime.Must(err)
	return ctrl.Options{
		Scheme:    managedScheme(),
		Metrics:   metricsserver.Options{BindAddress: noEndpoint}, // served since the start of the process
		NewClient: consistentclient.NewClient,
		// A hub may not answer for a while, or keep some kinds from agents. Until it does, the others work.
		Controller: ctrlconfig.Controller{CacheSyncTimeout: math.MaxInt64},
		Cache: cache.Options{
			// Options of its own for a kind, such as Node, would be an error where the cluster does not have it.
			DefaultTransform: stripUnread,
			NewInformer:      relist.NewInformer,
			ByObject: map[client.Object]cache.ByObject{
				&corev1.Namespace{}: {Label: labels.NewSelector().Add(*managedNamespace)},
			},
		},
	}
}

func managedScheme() *runtime.Scheme {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		corev1.AddToScheme, apiextensionsv1.AddToScheme, aboutv1alpha1.AddToScheme, clusterv1alpha1.AddToScheme, workv1.AddToScheme,
	} {
		utilruntime.Must(add(scheme))
	}
	return scheme
}

// stripUnread strips objects of what the agent does not read; a Node to what the agent reports of it, since a cluster may have thousands.
func stripUnread(obj any) (any, error) {
	node, ok := obj.(*corev1.Node)
	if !ok {
		return cache.TransformStripManagedFields()(obj)
	}
	kept := &corev1.Node{}
	kept.Name, kept.UID, kept.ResourceVersion = node.Name, node.UID, node.ResourceVersion
	kept.Spec.Unschedulable = node.Spec.Unschedulable
	kept.Status.Capacity, kept.Status.Allocatable = node.Status.Capacity, node.Status.Allocatable
	return kept, nil
}

// servesNodes reports whether the managed cluster has nodes: a hub that is itself managed has none.
func servesNodes(mapper meta.RESTMapper) (bool, error) {
	_, err := mapper.RESTMapping(schema.GroupKind{Kind: "Node"}, "v1")
	if meta.IsNoMatchError(err) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("find out whether the managed cluster has nodes: %w", err)
	}
	return true, nil
}

// awaitRights returns when the hub lets the agent work. Caches that start earlier meet a refusal and then back off for longer.
func (a *Agent) awaitRights(ctx context.Context, hub client.Client, connection *monitor.Monitor) error {
	// The first delay covers the moment that the hub's authorizer lags behind its roles; there is no event for a right.
	backoff := wait.Backoff{Duration: 10 * time.Millisecond, Factor: 2, Steps: 16, Cap: 10 * time.Second}
	var delay time.Duration
	for logged := false; ; {
		err := a.tryRights(ctx, hub)
		if apierrors.IsForbidden(err) && delay > time.Second && a.parts.Work {
			err = a.tryWorks(ctx, hub) // those of a cluster that is being deleted are finalized without heartbeats
		}
		a.report.Attempted(ctx, err)
		if err == nil || ctx.Err() != nil {
			return ctx.Err()
		}
		if apierrors.IsUnauthorized(err) {
			connection.CheckNow()
		}
		delay = backoff.Step()
		if !logged && delay > time.Second {
			logged = true
			log.FromContext(ctx).Info("Waiting for the hub; if the cluster is not accepted there, accept it; a hub that was restored from a backup "+
				"may not have it any more", "reason", err.Error(),
				"command", "capstan accept --clusters "+a.identity.Cluster)
		}
		if !a.sleep(ctx, delay) {
			return ctx.Err()
		}
	}
}

// managesAddOns reports whether this process manages add-ons, if the hub has them.
func (a *Agent) managesAddOns() bool {
	return a.parts.Registration && a.FeatureGates.Enabled(featuregates.AddonManagement)
}

// tryRights fails if the hub does not let the agent work. The hub gives all rights of an agent together, so one request shows all of them:
// the read of the Lease for the first heartbeat, or a list of works if another process sends heartbeats.
func (a *Agent) tryRights(ctx context.Context, hub client.Client) (err error) {
	if !a.parts.Registration {
		return a.tryWorks(ctx, hub)
	}
	a.lease, err = heartbeat.ReadLease(ctx, hub, a.identity.Cluster)
	return client.IgnoreNotFound(err) // heartbeats wait for a Lease that is missing, and nothing else does
}

// tryWorks fails if the hub does not let the agent read its works.
func (a *Agent) tryWorks(ctx context.Context, hub client.Client) error {
	return hub.List(ctx, &workv1.ManifestWorkList{}, client.InNamespace(a.identity.Cluster), client.Limit(1))
}
