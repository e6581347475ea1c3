// Package builtin says of built-in add-ons that the agent does not run them, where it reaches the hub by gRPC alone: a broker has no events
// for tunnels, nor for Secrets.
package builtin

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/cluster"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/source"

	addonv1beta1 "github.com/capstan-io/capstan/api/addon/v1beta1"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
	"github.com/capstan-io/capstan/internal/machinery/patch"
	"github.com/capstan-io/capstan/internal/machinery/retry"
)

// Controller reports in the condition Available of the add-ons.
type Controller struct {
	hub   client.Client
	clock clock.Clock
}

// Register adds the controller to the manager. It reads the add-ons from the cache of the hub.
func Register(mgr ctrl.Manager, hub cluster.Cluster, clk clock.Clock) error {
	isBuiltIn := predicate.NewTypedPredicateFuncs(func(addOn *addonv1beta1.ManagedClusterAddOn) bool { return fleet.IsBuiltIn(addOn) })
	return ctrl.NewControllerManagedBy(mgr).Named("addon-builtin-unreachable").
		WithOptions(controller.Options{SkipNameValidation: ptr.To(true), MaxConcurrentReconciles: 1, RateLimiter: retry.Limiter()}).
		WatchesRawSource(source.Kind(hub.GetCache(), &addonv1beta1.ManagedClusterAddOn{},
			&handler.TypedEnqueueRequestForObject[*addonv1beta1.ManagedClusterAddOn]{}, isBuiltIn)).
		Complete(retry.Conflicts(&Controller{hub: hub.GetClient(), clock: clk}))
}

// Reconcile reports once that the add-on does not work.
func (c *Controller) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	addOn := &addonv1beta1.ManagedClusterAddOn{}
	if err := c.hub.Get(ctx, req.NamespacedName, addOn); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if !addOn.DeletionTimestamp.IsZero() || !fleet.IsBuiltIn(addOn) {
		return ctrl.Result{}, nil
	}
	before := addOn.DeepCopy()
	meta.SetStatusCondition(&addOn.Status.Conditions, metav1.Condition{
		Type: fleet.ConditionAvailable, Status: metav1.ConditionFalse, Reason: fleet.ReasonBuiltInNeedsAPI,
		LastTransitionTime: metav1.NewTime(c.clock.Now()),
		Message: fmt.Sprintf("The agent reaches the hub by gRPC, and add-on %s needs its API server: register the agent with --registration-auth=csr, "+
			"or remove the add-on from this cluster", addOn.Name),
	})
	changed, err := patch.Status(ctx, c.hub, addOn, before)
	if changed {
		log.FromContext(ctx).Info("A built-in add-on does not work, because the agent reaches the hub by gRPC", "addOn", addOn.Name)
	}
	return ctrl.Result{}, client.IgnoreNotFound(err)
}
