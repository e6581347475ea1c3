// Package builtin says of built-in add-ons that the agent does not run them, and why. It also takes back what the agent has said of add-ons
// that are built in no more.
package builtin

import (
	"context"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/component-base/featuregate"
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

// Cause is why the agent does not run add-ons.
type Cause struct {
	// addOn is the name of the only one that it does not run; empty for all.
	addOn string
	// reason and message are those of the condition, with %s in the message for the name of the add-on.
	reason, message string
}

// NeedsAPI is why the agent runs none where it reaches the hub by gRPC alone: a broker has no events for tunnels, nor for Secrets.
func NeedsAPI() Cause {
	return Cause{reason: fleet.ReasonBuiltInNeedsAPI,
		message: "The agent reaches the hub by gRPC, and add-on %s needs its API server: register the agent with --registration-auth=csr, " +
			"or remove the add-on from this cluster"}
}

// SwitchedOff is why the agent does not run an add-on whose feature gate is off.
func SwitchedOff(addOn string, gate featuregate.Feature) Cause {
	return Cause{addOn: addOn, reason: fleet.ReasonBuiltInSwitchedOff,
		message: fmt.Sprintf("Add-on %%s needs the feature gate %[1]s of the agent, which is off: set it with --feature-gates=%[1]s=true, or in "+
			"spec.registrationConfiguration.featureGates of the Klusterlet, or remove the add-on from this cluster", gate)}
}

// Controller reports in the condition Available of the add-ons.
type Controller struct {
	hub   client.Client
	cause Cause
	clock clock.Clock
}

// Register adds the controller to the manager. It reads the add-ons from the cache of the hub.
func Register(mgr ctrl.Manager, hub cluster.Cluster, cause Cause, clk clock.Clock) error {
	c := &Controller{hub: hub.GetClient(), cause: cause, clock: clk}
	return ctrl.NewControllerManagedBy(mgr).Named("addon-builtin-report").
		WithOptions(controller.Options{SkipNameValidation: ptr.To(true), MaxConcurrentReconciles: 1, RateLimiter: retry.Limiter()}).
		WatchesRawSource(source.Kind(hub.GetCache(), &addonv1beta1.ManagedClusterAddOn{},
			&handler.TypedEnqueueRequestForObject[*addonv1beta1.ManagedClusterAddOn]{}, predicate.NewTypedPredicateFuncs(c.concerns))).
		Complete(retry.Conflicts(c))
}

// concerns reports whether the agent does not run the add-on, or has not before it was another manager's.
func (c *Controller) concerns(addOn *addonv1beta1.ManagedClusterAddOn) bool {
	return addOn.DeletionTimestamp.IsZero() && (c.cause.addOn == "" || c.cause.addOn == addOn.Name)
}

// Reconcile reports once that the add-on does not work, and takes that back when it is another manager's.
func (c *Controller) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	addOn := &addonv1beta1.ManagedClusterAddOn{}
	if err := c.hub.Get(ctx, req.NamespacedName, addOn); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if !c.concerns(addOn) {
		return ctrl.Result{}, nil
	}
	before := addOn.DeepCopy()
	if !fleet.IsBuiltIn(addOn) {
		TakeBack(addOn, c.cause.reason)
		_, err := patch.Status(ctx, c.hub, addOn, before)
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	message := fmt.Sprintf(c.cause.message, addOn.Name)
	meta.SetStatusCondition(&addOn.Status.Conditions, metav1.Condition{
		Type: fleet.ConditionAvailable, Status: metav1.ConditionFalse, Reason: c.cause.reason, Message: message,
		LastTransitionTime: metav1.NewTime(c.clock.Now()),
	})
	changed, err := patch.Status(ctx, c.hub, addOn, before)
	if changed {
		log.FromContext(ctx).Info("A built-in add-on does not work", "addOn", addOn.Name, "reason", message)
	}
	return ctrl.Result{}, client.IgnoreNotFound(err)
}

// TakeBack removes from an add-on that is another manager's now what the agent has reported, which is the condition Available with one of
// the reasons. The caller writes the status.
func TakeBack(addOn *addonv1beta1.ManagedClusterAddOn, reasons ...string) {
	cond := meta.FindStatusCondition(addOn.Status.Conditions, fleet.ConditionAvailable)
	if cond != nil && slices.Contains(reasons, cond.Reason) && addOn.DeletionTimestamp.IsZero() {
		meta.RemoveStatusCondition(&addOn.Status.Conditions, fleet.ConditionAvailable)
	}
}
