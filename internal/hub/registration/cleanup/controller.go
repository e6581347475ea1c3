// Package cleanup empties the namespace of a cluster that is being deleted, in order: what the agent has to undo is deleted while the
// agent still has its rights.
package cleanup

import (
	"context"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/source"

	addonv1beta1 "github.com/capstan-io/capstan/api/addon/v1beta1"
	clusterv1 "github.com/capstan-io/capstan/api/cluster/v1"
	workv1 "github.com/capstan-io/capstan/api/work/v1"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
	"github.com/capstan-io/capstan/internal/machinery/patch"
	"github.com/capstan-io/capstan/internal/machinery/predicates"
	"github.com/capstan-io/capstan/internal/machinery/retry"
)

const (
	// workers is how many clusters are emptied at once.
	workers = 10
	// safetyNet is how often a namespace is checked without an event. A watch normally reports when the remaining objects are gone.
	safetyNet = time.Minute
)

// DefaultResources returns what is deleted from the namespace of a deleted cluster, in this order.
func DefaultResources() []schema.GroupVersionResource {
	return []schema.GroupVersionResource{
		addonv1beta1.GroupVersion.WithResource("managedclusteraddons"),
		workv1.GroupVersion.WithResource("manifestworks"),
	}
}

// Options configure the controller.
type Options struct {
	// Disabled leaves the namespaces of deleted clusters as they are.
	Disabled bool
	// Resources are deleted one after the other. Those that the hub does not serve are skipped.
	Resources []schema.GroupVersionResource
	// Timeout is how long the deletion of a cluster that is not available waits for its agent. After that, the controller removes the
	// finalizers that only the agent removes. 0 waits without a limit. AnnotationDeletionTimeout of a cluster overrides it.
	Timeout time.Duration
	// Clock is the source of time.
	Clock clock.PassiveClock
}

// Controller reconciles the deletion of ManagedClusters.
type Controller struct {
	Options
	client   client.Client
	live     client.Reader
	objects  metadata.Interface
	recorder events.EventRecorder
	leaving  *leaving
}

// New returns a Controller that reads and writes clusters through the client, and the objects in their namespaces through objects. It
// reads what is left of deleted clusters through live. It sends an event to changes when these objects change.
func New(c client.Client, live client.Reader, objects metadata.Interface, recorder events.EventRecorder, changes chan<- event.GenericEvent,
	o Options) *Controller {
	return &Controller{Options: o, client: c, live: live, objects: objects, recorder: recorder, leaving: newLeaving(objects, changes)}
}

// Register adds the controller to the manager.
func Register(mgr ctrl.Manager, o Options) error {
	objects, err := metadata.NewForConfigAndClient(mgr.GetConfig(), mgr.GetHTTPClient())
	if err != nil {
		return fmt.Errorf("make a client for the metadata of objects: %w", err)
	}
	changes := make(chan event.GenericEvent)
	c := New(mgr.GetClient(), mgr.GetAPIReader(), objects, mgr.GetEventRecorder("gc-controller"), changes, o)
	if err := mgr.Add(c.leaving); err != nil {
		return err
	}
	return ctrl.NewControllerManagedBy(mgr).Named("registration-managedcluster-cleanup").
		For(&clusterv1.ManagedCluster{}, builder.WithPredicates(predicate.Or[client.Object](
			predicates.Generation(), predicate.AnnotationChangedPredicate{}, availabilityChanged()))).
		Watches(&corev1.Namespace{}, handler.EnqueueRequestsFromMapFunc(clusterOfNamespace), builder.WithPredicates(present())).
		WatchesRawSource(source.Channel(changes, &handler.EnqueueRequestForObject{})).
		WithOptions(controller.Options{MaxConcurrentReconciles: workers, RateLimiter: retry.Limiter()}).
		Complete(retry.Conflicts(c))
}

// availabilityChanged matters to a deletion that may have to continue without the agent.
func availabilityChanged() predicate.Predicate {
	return predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		before, ok1 := e.ObjectOld.(*clusterv1.ManagedCluster)
		after, ok2 := e.ObjectNew.(*clusterv1.ManagedCluster)
		return ok1 && ok2 && available(before) != available(after)
	}}
}

// available reports whether the agent can be expected to clean up.
func available(cluster *clusterv1.ManagedCluster) bool {
	return cluster.Spec.HubAcceptsClient && meta.IsStatusConditionTrue(cluster.Status.Conditions, fleet.ConditionClusterAvailable)
}

// Reconcile sets the finalizer of a cluster, and, when the cluster is being deleted, deletes the next objects.
func (c *Controller) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	cluster := &clusterv1.ManagedCluster{}
	err := c.client.Get(ctx, req.NamespacedName, cluster)
	if apierrors.IsNotFound(err) {
		return c.abandon(ctx, req.Name)
	}
	if err != nil {
		return ctrl.Result{}, fmt.Errorf("get ManagedCluster %s: %w", req.Name, err)
	}
	before := cluster.DeepCopy()
	if c.Disabled {
		// A deletion must not wait for a cleanup that is switched off.
		controllerutil.RemoveFinalizer(cluster, fleet.FinalizerResourceCleanup)
		_, err := patch.Object(ctx, c.client, cluster, before)
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if cluster.DeletionTimestamp.IsZero() {
		controllerutil.AddFinalizer(cluster, fleet.FinalizerResourceCleanup)
		_, err := patch.Object(ctx, c.client, cluster, before)
		return ctrl.Result{}, err
	}
	if !controllerutil.ContainsFinalizer(cluster, fleet.FinalizerResourceCleanup) {
		return ctrl.Result{}, nil
	}
	deadline, err := c.deadline(cluster)
	if err != nil {
		return ctrl.Result{}, c.fail(ctx, cluster, err)
	}
	rest, err := c.next(ctx, cluster.Name, func(metav1.Object) bool { return deadline.passed })
	if err != nil {
		return ctrl.Result{}, c.fail(ctx, cluster, err)
	}
	if len(rest.objects) > 0 {
		return c.wait(ctx, cluster, rest, deadline)
	}
	return ctrl.Result{}, c.finalize(ctx, cluster)
}

// next deletes the next objects in the namespace of a cluster, and returns those that remain.
func (c *Controller) next(ctx context.Context, cluster string, givenUp func(metav1.Object) bool) (remaining, error) {
	for _, resource := range c.Resources {
		objects, err := c.empty(ctx, cluster, resource, givenUp)
		if err != nil {
			return remaining{}, fmt.Errorf("delete %s: %w", resource.GroupResource(), err)
		}
		if len(objects) > 0 {
			return remaining{resource, objects}, nil
		}
	}
	return remaining{}, nil
}

// wait reports what remains, and is due when the time of the agent is up; the watch may enqueue the cluster earlier.
func (c *Controller) wait(ctx context.Context, cluster *clusterv1.ManagedCluster, rest remaining, d deadline) (ctrl.Result, error) {
	message := fmt.Sprintf("%d %s remain in the namespace %s and are being deleted%s%s", len(rest.objects), rest.resource.Resource,
		cluster.Name, rest.blockedBy(d.passed), d.explain(cluster))
	if err := c.report(ctx, cluster, metav1.ConditionFalse, fleet.ReasonResourceRemaining, message); err != nil {
		return ctrl.Result{}, err
	}
	return ctrl.Result{RequeueAfter: d.again(c.Clock.Now())}, nil
}

// fail reports why the deletion does not continue, and returns the cause, for the caller to retry.
func (c *Controller) fail(ctx context.Context, cluster *clusterv1.ManagedCluster, cause error) error {
	c.recorder.Eventf(cluster, nil, corev1.EventTypeWarning, fleet.EventResourceCleanupFail, "Delete", "%s",
		strings.ReplaceAll(cause.Error(), "\n", "; "))
	if err := c.report(ctx, cluster, metav1.ConditionFalse, fleet.ReasonDeletingError, cause.Error()); err != nil {
		return err
	}
	return cause
}

func (c *Controller) finalize(ctx context.Context, cluster *clusterv1.ManagedCluster) error {
	if err := c.report(ctx, cluster, metav1.ConditionTrue, fleet.ReasonNoResource,
		"Nothing remains in the namespace of the cluster"); err != nil {
		return err
	}
	before := cluster.DeepCopy()
	controllerutil.RemoveFinalizer(cluster, fleet.FinalizerResourceCleanup)
	if _, err := patch.Object(ctx, c.client, cluster, before); err != nil {
		return client.IgnoreNotFound(err)
	}
	c.recorder.Eventf(cluster, nil, corev1.EventTypeNormal, fleet.EventResourceCleanupCompleted, "Delete",
		"Nothing remains in the namespace of the cluster")
	return nil
}

func (c *Controller) report(ctx context.Context, cluster *clusterv1.ManagedCluster, status metav1.ConditionStatus, reason,
	message string) error {
	before := cluster.DeepCopy()
	meta.SetStatusCondition(&cluster.Status.Conditions, metav1.Condition{
		Type: fleet.ConditionDeleting, Status: status, Reason: reason, Message: message, LastTransitionTime: metav1.NewTime(c.Clock.Now()),
	})
	_, err := patch.Status(ctx, c.client, cluster, before)
	return client.IgnoreNotFound(err)
}
