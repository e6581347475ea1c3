// Package ephemeral deletes ManagedServiceAccounts some time after their creation, if they request it.
package ephemeral

import (
	"context"
	"fmt"
	"time"

	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	authenticationv1beta1 "github.com/capstan-io/capstan/api/authentication/v1beta1"
	"github.com/capstan-io/capstan/internal/machinery/predicates"
	"github.com/capstan-io/capstan/internal/machinery/retry"
)

// workers is how many accounts are reconciled at once.
const workers = 5

// Options configure the controller.
type Options struct {
	// Clock is the source of time.
	Clock clock.PassiveClock
}

// Controller reconciles ManagedServiceAccounts with spec.ttlSecondsAfterCreation.
type Controller struct {
	client client.Client
	clock  clock.PassiveClock
}

// New returns a Controller that works through the client.
func New(c client.Client, o Options) *Controller { return &Controller{client: c, clock: o.Clock} }

// Register adds the controller to the manager.
func Register(mgr ctrl.Manager, o Options) error {
	return ctrl.NewControllerManagedBy(mgr).Named("addon-managedserviceaccount-expire").
		For(&authenticationv1beta1.ManagedServiceAccount{}, builder.WithPredicates(predicates.Generation(),
			predicate.NewPredicateFuncs(func(o client.Object) bool {
				account, ok := o.(*authenticationv1beta1.ManagedServiceAccount)
				return ok && account.Spec.TTLSecondsAfterCreation != nil
			}))).
		WithOptions(controller.Options{MaxConcurrentReconciles: workers, RateLimiter: retry.Limiter()}).
		Complete(retry.Conflicts(New(mgr.GetClient(), o)))
}

// Reconcile deletes the account when its time has come.
func (c *Controller) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	account := &authenticationv1beta1.ManagedServiceAccount{}
	if err := c.client.Get(ctx, req.NamespacedName, account); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	ttl := account.Spec.TTLSecondsAfterCreation
	if ttl == nil || !account.DeletionTimestamp.IsZero() {
		return ctrl.Result{}, nil
	}
	if left := account.CreationTimestamp.Add(time.Duration(*ttl) * time.Second).Sub(c.clock.Now()); left > 0 {
		return ctrl.Result{RequeueAfter: min(left, retry.LongestTimer)}, nil
	}
	// With the precondition, an account whose time is changed at the last moment is reconciled again instead.
	unchanged := client.Preconditions{UID: &account.UID, ResourceVersion: &account.ResourceVersion}
	if err := c.client.Delete(ctx, account, unchanged); client.IgnoreNotFound(err) != nil {
		return ctrl.Result{}, fmt.Errorf("delete ManagedServiceAccount %s, whose time is over: %w", req, err)
	}
	log.FromContext(ctx).Info("Deleted a ManagedServiceAccount at the end of its ttlSecondsAfterCreation", "account", req.String())
	return ctrl.Result{}, nil
}
