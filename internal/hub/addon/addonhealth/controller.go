// Package addonhealth sets the condition Available of the add-ons of an unavailable cluster to Unknown, and labels each
// ManagedCluster with the state of its add-ons. It runs with the controllers of registration, as in Open Cluster Management: it is needed
// without the controllers of add-ons, too, and a hub may have those of Open Cluster Management.
package addonhealth

import (
	"context"
	"fmt"
	"maps"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	addonv1beta1 "github.com/capstan-io/capstan/api/addon/v1beta1"
	clusterv1 "github.com/capstan-io/capstan/api/cluster/v1"
	"github.com/capstan-io/capstan/internal/hub/addon/lookup"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
	"github.com/capstan-io/capstan/internal/machinery/patch"
	"github.com/capstan-io/capstan/internal/machinery/retry"
)

const (
	// workers is how many clusters are reconciled at once: many may be lost together.
	workers = 10
	// writers is how many add-ons of one cluster are written at once.
	writers = 4
	// untilServed is how long the controller waits for the add-ons at its start. A webhook converts them, which may be down: the other
	// controllers of registration do not end for that.
	untilServed = 365 * 24 * time.Hour
)

// Options configure the controller.
type Options struct {
	// Clock is the source of time.
	Clock clock.PassiveClock
}

// Controller reconciles the conditions of the add-ons of an unavailable ManagedCluster, and the labels of a ManagedCluster.
type Controller struct {
	client   client.Client
	recorder events.EventRecorder
	clock    clock.PassiveClock

	mu sync.Mutex
	// doubted has the add-ons whose conditions were replaced because they were later than the hub's clock, and when their clusters were lost.
	doubted map[client.ObjectKey]time.Time
}

// New returns a Controller that works through the client.
func New(c client.Client, recorder events.EventRecorder, o Options) *Controller {
	return &Controller{client: c, recorder: recorder, clock: o.Clock, doubted: map[client.ObjectKey]time.Time{}}
}

// Register adds the controller to the manager.
func Register(mgr ctrl.Manager, o Options) error {
	c := New(mgr.GetClient(), mgr.GetEventRecorder("addon-health-controller"), o)
	return ctrl.NewControllerManagedBy(mgr).Named("registration-managedcluster-addons").
		For(&clusterv1.ManagedCluster{}, builder.WithPredicates(predicate.Or[client.Object](
			predicate.LabelChangedPredicate{}, predicate.Funcs{UpdateFunc: availabilityChanged}))).
		Watches(&addonv1beta1.ManagedClusterAddOn{}, lookup.Later(clusterOf),
			builder.WithPredicates(predicate.Funcs{UpdateFunc: availabilityChanged})).
		WithOptions(controller.Options{MaxConcurrentReconciles: workers, RateLimiter: retry.Limiter(), CacheSyncTimeout: untilServed}).
		Complete(retry.Conflicts(c))
}

// clusterOf returns the cluster of an add-on. The add-ons of a cluster are reconciled together.
func clusterOf(_ context.Context, addOn client.Object) []reconcile.Request {
	return []reconcile.Request{{NamespacedName: client.ObjectKey{Name: addOn.GetNamespace()}}}
}

// availabilityChanged matches a cluster or add-on whose availability has changed, or which is being deleted now.
func availabilityChanged(e event.UpdateEvent) bool {
	return e.ObjectNew.GetDeletionTimestamp().IsZero() != e.ObjectOld.GetDeletionTimestamp().IsZero() ||
		!equality.Semantic.DeepEqual(availability(e.ObjectNew), availability(e.ObjectOld))
}

// availability returns the condition about the availability of a cluster or add-on, or nil.
func availability(o client.Object) *metav1.Condition {
	switch o := o.(type) {
	case *clusterv1.ManagedCluster:
		return meta.FindStatusCondition(o.Status.Conditions, fleet.ConditionClusterAvailable)
	case *addonv1beta1.ManagedClusterAddOn:
		return meta.FindStatusCondition(o.Status.Conditions, fleet.ConditionAvailable)
	default:
		return nil
	}
}

// Reconcile passes the condition of the cluster on to its add-ons, and then labels the cluster with the state of its add-ons.
func (c *Controller) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	cluster := &clusterv1.ManagedCluster{}
	if err := c.client.Get(ctx, req.NamespacedName, cluster); apierrors.IsNotFound(err) {
		c.trust(req.Name)
		return ctrl.Result{}, nil
	} else if err != nil {
		return ctrl.Result{}, err
	}
	available := availability(cluster)
	if available == nil || available.Status != metav1.ConditionUnknown {
		c.trust(req.Name)
	}
	if available == nil || !cluster.DeletionTimestamp.IsZero() {
		return ctrl.Result{}, nil
	}
	list := &addonv1beta1.ManagedClusterAddOnList{}
	if err := c.client.List(ctx, list, client.InNamespace(cluster.Name)); err != nil {
		return ctrl.Result{}, fmt.Errorf("list the add-ons of cluster %s: %w", cluster.Name, err)
	}
	if available.Status == metav1.ConditionUnknown {
		if err := c.propagate(ctx, list.Items, available); err != nil {
			return ctrl.Result{}, err
		}
	}
	before := cluster.DeepCopy()
	label(cluster, list.Items)
	_, err := patch.Object(ctx, c.client, cluster, before)
	return ctrl.Result{}, client.IgnoreNotFound(err)
}

// propagate sets the condition of a cluster without heartbeats on its add-ons. If the condition of an add-on is another one after that, its
// manager observes it otherwise and may know better; this controller does not contradict it again. A time that the hub has not reached
// is of a clock that is ahead, and may be before the loss: such a condition is replaced once.
func (c *Controller) propagate(ctx context.Context, addOns []addonv1beta1.ManagedClusterAddOn, unknown *metav1.Condition) error {
	var group errgroup.Group
	group.SetLimit(writers)
	now := after(c.clock.Now(), unknown.LastTransitionTime.Time)
	for i := range addOns {
		addOn := &addOns[i]
		tooLate := isAfter(availability(addOn), now)
		if isAfter(availability(addOn), unknown.LastTransitionTime) && (!tooLate || c.hasDoubted(addOn, unknown)) {
			continue
		}
		group.Go(func() error {
			before := addOn.DeepCopy()
			meta.SetStatusCondition(&addOn.Status.Conditions, metav1.Condition{
				Type: fleet.ConditionAvailable, Status: metav1.ConditionUnknown, Reason: unknown.Reason, Message: unknown.Message,
				LastTransitionTime: now,
			})
			// The time changes even if the add-on was Unknown for another reason: see propagate.
			availability(addOn).LastTransitionTime = now
			changed, err := patch.Status(ctx, c.client, addOn, before)
			if tooLate && err == nil {
				c.recordReplaced(addOn, unknown)
			}
			if changed && err == nil {
				c.recorder.Eventf(addOn, nil, corev1.EventTypeWarning, fleet.EventManagedClusterAddOnStatusUpdated, "UpdateCondition",
					"It is not known whether the add-on %s is available: %s", addOn.Name, unknown.Message)
			}
			return client.IgnoreNotFound(err)
		})
	}
	return group.Wait()
}

// isAfter reports whether a condition got its status after that time.
func isAfter(condition *metav1.Condition, then metav1.Time) bool {
	return condition != nil && condition.LastTransitionTime.After(then.Time)
}

// recordReplaced records that the condition of an add-on was replaced though its time is after the loss of its cluster.
func (c *Controller) recordReplaced(addOn client.Object, unknown *metav1.Condition) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.doubted[client.ObjectKeyFromObject(addOn)] = unknown.LastTransitionTime.Time
}

// hasDoubted reports whether that was done since the cluster was lost. Once is enough: an add-on whose clock is ahead would contradict
// again each time.
func (c *Controller) hasDoubted(addOn client.Object, unknown *metav1.Condition) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	lost, found := c.doubted[client.ObjectKeyFromObject(addOn)]
	return found && lost.Equal(unknown.LastTransitionTime.Time)
}

// trust forgets the doubts in add-ons of a cluster that is not lost.
func (c *Controller) trust(cluster string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	maps.DeleteFunc(c.doubted, func(addOn client.ObjectKey, _ time.Time) bool { return addOn.Namespace == cluster })
}

// after returns now, or, because times on the wire are whole seconds, the first time after then.
func after(now, then time.Time) metav1.Time {
	if first := then.Add(time.Second); now.Before(first) {
		return metav1.NewTime(first)
	}
	return metav1.NewTime(now)
}

// label sets the labels of a cluster that say the state of its add-ons.
func label(cluster *clusterv1.ManagedCluster, addOns []addonv1beta1.ManagedClusterAddOn) {
	labels := map[string]string{}
	for i := range addOns {
		addOn := &addOns[i]
		key := fleet.AddOnFeatureLabel(addOn.Name)
		// Names of add-ons may be longer than labels.
		if addOn.DeletionTimestamp.IsZero() && len(validation.IsQualifiedName(key)) == 0 {
			labels[key] = feature(availability(addOn))
		}
	}
	for key := range cluster.Labels {
		if _, desired := labels[key]; !desired && strings.HasPrefix(key, fleet.LabelAddOnFeaturePrefix) {
			delete(cluster.Labels, key)
		}
	}
	if cluster.Labels == nil {
		cluster.Labels = map[string]string{}
	}
	maps.Copy(cluster.Labels, labels)
}

func feature(available *metav1.Condition) string {
	switch {
	case available == nil:
		return fleet.AddOnFeatureUnreachable
	case available.Status == metav1.ConditionTrue:
		return fleet.AddOnFeatureAvailable
	case available.Status == metav1.ConditionFalse:
		return fleet.AddOnFeatureUnhealthy
	default:
		return fleet.AddOnFeatureUnreachable
	}
}
