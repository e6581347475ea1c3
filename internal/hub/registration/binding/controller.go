// Package binding reports for each ManagedClusterSetBinding whether its set exists.
package binding

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	clusterv1beta2 "github.com/capstan-io/capstan/api/cluster/v1beta2"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
	"github.com/capstan-io/capstan/internal/machinery/patch"
	"github.com/capstan-io/capstan/internal/machinery/predicates"
	"github.com/capstan-io/capstan/internal/machinery/retry"
)

// bySet is the index of bindings by their set.
const bySet = "spec.clusterSet"

// Options configure the controller.
type Options struct {
	// Clock is the source of time.
	Clock clock.PassiveClock
}

// Controller reconciles the condition Bound of a ManagedClusterSetBinding.
type Controller struct {
	client client.Client
	clock  clock.PassiveClock
}

// New returns a Controller that works through the client.
func New(c client.Client, o Options) *Controller { return &Controller{client: c, clock: o.Clock} }

// Register adds the controller to the manager.
func Register(mgr ctrl.Manager, o Options) error {
	err := mgr.GetFieldIndexer().IndexField(context.Background(), &clusterv1beta2.ManagedClusterSetBinding{}, bySet,
		func(o client.Object) []string {
			b, ok := o.(*clusterv1beta2.ManagedClusterSetBinding)
			if !ok {
				return nil
			}
			return []string{b.Spec.ClusterSet}
		})
	if err != nil {
		return fmt.Errorf("index ManagedClusterSetBindings by their set: %w", err)
	}
	c := New(mgr.GetClient(), o)
	return ctrl.NewControllerManagedBy(mgr).Named("registration-managedclustersetbinding-status").
		For(&clusterv1beta2.ManagedClusterSetBinding{}, builder.WithPredicates(predicates.Generation())).
		Watches(&clusterv1beta2.ManagedClusterSet{}, handler.EnqueueRequestsFromMapFunc(c.ofSet), builder.WithPredicates(createdOrDeleted())).
		WithOptions(controller.Options{RateLimiter: retry.Limiter()}).
		Complete(retry.Conflicts(c))
}

// createdOrDeleted matches the creation and deletion of a set, which are the only events that affect its bindings.
func createdOrDeleted() predicate.Predicate {
	return predicate.Funcs{UpdateFunc: func(event.UpdateEvent) bool { return false }}
}

func (c *Controller) ofSet(ctx context.Context, set client.Object) []reconcile.Request {
	bindings := &clusterv1beta2.ManagedClusterSetBindingList{}
	if err := c.client.List(ctx, bindings, client.MatchingFields{bySet: set.GetName()}); err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "List the bindings of a set", "set", set.GetName())
		return nil
	}
	requests := make([]reconcile.Request, 0, len(bindings.Items))
	for i := range bindings.Items {
		requests = append(requests, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&bindings.Items[i])})
	}
	return requests
}

// Reconcile reports whether the set exists.
func (c *Controller) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	binding := &clusterv1beta2.ManagedClusterSetBinding{}
	if err := c.client.Get(ctx, req.NamespacedName, binding); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if !binding.DeletionTimestamp.IsZero() {
		return ctrl.Result{}, nil
	}
	cond, err := c.bound(ctx, binding.Spec.ClusterSet)
	if err != nil {
		return ctrl.Result{}, err
	}
	before := binding.DeepCopy()
	cond.ObservedGeneration = binding.Generation
	meta.SetStatusCondition(&binding.Status.Conditions, cond)
	_, err = patch.Status(ctx, c.client, binding, before)
	return ctrl.Result{}, err
}

func (c *Controller) bound(ctx context.Context, name string) (metav1.Condition, error) {
	cond := metav1.Condition{
		Type: fleet.ConditionBound, Status: metav1.ConditionTrue, Reason: fleet.ReasonClusterSetBound,
		Message: "The ManagedClusterSet is bound", LastTransitionTime: metav1.NewTime(c.clock.Now()),
	}
	err := c.client.Get(ctx, client.ObjectKey{Name: name}, &clusterv1beta2.ManagedClusterSet{})
	if apierrors.IsNotFound(err) {
		cond.Status, cond.Reason = metav1.ConditionFalse, fleet.ReasonClusterSetNotFound
		cond.Message = fmt.Sprintf("There is no ManagedClusterSet %q; create it, or delete this binding", name)
		return cond, nil
	}
	if err != nil {
		return cond, fmt.Errorf("get ManagedClusterSet %s: %w", name, err)
	}
	return cond, nil
}
