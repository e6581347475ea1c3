// Package installation deploys an add-on to a cluster and removes it again. It has everything that a manager does for a
// ManagedClusterAddOn, except the certificates of the agent.
package installation

import (
	"context"
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"

	"github.com/capstan-io/capstan/addon/internal/catalogue"
	"github.com/capstan-io/capstan/addon/internal/requeue"
	addonv1beta1 "github.com/capstan-io/capstan/api/addon/v1beta1"
	clusterv1 "github.com/capstan-io/capstan/api/cluster/v1"
	"github.com/capstan-io/capstan/internal/machinery/patch"
	"github.com/capstan-io/capstan/internal/machinery/retry"
)

// workers is how many add-ons are reconciled at once. Each takes a few requests and the rendering of its manifests.
const workers = 10

// Options configure a Controller.
type Options struct {
	// Manager identifies the manager that runs the controller. It has to stay the same: what the controller applies on the hub has a
	// label with it, by which the controller finds it again.
	Manager string
	// Catalogue has the add-ons that the controller reconciles.
	Catalogue catalogue.Catalogue
	// Configs are the types of configurations that any of its add-ons may read.
	Configs []schema.GroupVersionResource
	// Requeue enqueues single add-ons again; nil enqueues none.
	Requeue *requeue.AddOns
	// Clock is the source of time.
	Clock clock.PassiveClock
}

// Controller reconciles ManagedClusterAddOns.
type Controller struct {
	Options
	client client.Client
	// live reads what the caches do not have.
	live   client.Reader
	hosted hosted
}

// New returns a Controller that works through the client, which has to read from a cache with the package's indexes. live reads from the
// API server.
func New(c client.Client, live client.Reader, o Options) *Controller {
	return &Controller{client: c, live: live, Options: o}
}

// Register adds the controller to the manager.
func Register(mgr ctrl.Manager, o Options) error {
	c := New(mgr.GetClient(), mgr.GetAPIReader(), o)
	if err := c.index(mgr.GetFieldIndexer()); err != nil {
		return err
	}
	builder := ctrl.NewControllerManagedBy(mgr).Named("addon-managedclusteraddon-deploy").
		WithOptions(controller.Options{MaxConcurrentReconciles: workers, RateLimiter: retry.Limiter()})
	if err := c.watch(builder, mgr.GetRESTMapper()); err != nil {
		return err
	}
	return builder.Complete(retry.Conflicts(c))
}

// Reconcile takes the add-on as far as it can go now, and reports in its status. Events enqueue the add-on when what it waits for
// happens.
func (c *Controller) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	addOn := &addonv1beta1.ManagedClusterAddOn{}
	err := c.client.Get(ctx, req.NamespacedName, addOn)
	if apierrors.IsNotFound(err) {
		c.hosted.set(req.NamespacedName, "")
		return ctrl.Result{}, c.withdraw(ctx, req.NamespacedName)
	}
	if err != nil {
		return ctrl.Result{}, err
	}
	agent, err := c.Catalogue.Agent(ctx, addOn)
	if err != nil {
		return ctrl.Result{}, fmt.Errorf("find the add-on %s: %w", req.Name, err)
	}
	if agent == nil {
		// It may have belonged to this manager before. What runs on the cluster is left to its new manager.
		c.hosted.set(req.NamespacedName, "")
		return ctrl.Result{}, c.withdraw(ctx, req.NamespacedName)
	}
	p := &reconciliation{Controller: c, agent: agent, options: agent.Options(), before: addOn, addOn: addOn.DeepCopy()}
	if err := p.read(ctx); err != nil {
		return ctrl.Result{}, err
	}
	if p.installation.Cluster == nil {
		return ctrl.Result{}, p.abandon(ctx)
	}
	p.register(ctx)
	p.deploy(ctx)
	p.reportHealth()
	_, err = patch.Status(ctx, c.client, p.addOn, p.before)
	if apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	// These errors may never go away; an add-on that can be released does not wait for that.
	if err := errors.Join(append(p.problems, err, p.release(ctx))...); err != nil {
		return ctrl.Result{}, err
	}
	return ctrl.Result{RequeueAfter: p.after}, nil
}

// cluster returns the ManagedCluster of a name, or nil if it does not exist.
func (c *Controller) cluster(ctx context.Context, name string) (*clusterv1.ManagedCluster, error) {
	cluster := &clusterv1.ManagedCluster{}
	err := c.client.Get(ctx, client.ObjectKey{Name: name}, cluster)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("get ManagedCluster %s: %w", name, err)
	}
	return cluster, nil
}
