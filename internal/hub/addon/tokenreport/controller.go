// Package tokenreport takes back what the agent of a cluster has reported of the token of a ManagedServiceAccount, when that is not so any
// more and the agent cannot say it: it has not reached the hub until the token expired, or the add-on is gone, and with it the rights of
// the agent, which deletes the service account. The agent reports the next token.
package tokenreport

import (
	"context"
	"fmt"
	"time"

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

	addonv1beta1 "github.com/capstan-io/capstan/api/addon/v1beta1"
	authenticationv1beta1 "github.com/capstan-io/capstan/api/authentication/v1beta1"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
	"github.com/capstan-io/capstan/internal/machinery/patch"
	"github.com/capstan-io/capstan/internal/machinery/retry"
)

// workers is how many accounts are reconciled at once.
const workers = 5

// Options configure the controller.
type Options struct {
	// Clock is the source of time.
	Clock clock.PassiveClock
}

// Controller reconciles ManagedServiceAccounts whose token counts as reported.
type Controller struct {
	client client.Client
	clock  clock.PassiveClock
}

// New returns a Controller that works through the client.
func New(c client.Client, o Options) *Controller { return &Controller{client: c, clock: o.Clock} }

// Register adds the controller to the manager.
func Register(mgr ctrl.Manager, o Options) error {
	c := New(mgr.GetClient(), o)
	theAddOn := predicate.NewPredicateFuncs(func(o client.Object) bool { return o.GetName() == fleet.AddOnManagedServiceAccount })
	noUpdates := predicate.Funcs{UpdateFunc: func(event.UpdateEvent) bool { return false }}
	return ctrl.NewControllerManagedBy(mgr).Named("addon-managedserviceaccount-report").
		For(&authenticationv1beta1.ManagedServiceAccount{}).
		Watches(&addonv1beta1.ManagedClusterAddOn{}, handler.EnqueueRequestsFromMapFunc(c.ofCluster),
			builder.WithPredicates(theAddOn, noUpdates)).
		WithOptions(controller.Options{MaxConcurrentReconciles: workers, RateLimiter: retry.Limiter()}).
		Complete(retry.Conflicts(c))
}

// ofCluster maps an add-on to the accounts of its cluster.
func (c *Controller) ofCluster(ctx context.Context, addOn client.Object) (requests []reconcile.Request) {
	list := &authenticationv1beta1.ManagedServiceAccountList{}
	if err := c.client.List(ctx, list, client.InNamespace(addOn.GetNamespace()), client.UnsafeDisableDeepCopy); err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "Find the ManagedServiceAccounts of a cluster")
		return nil
	}
	for i := range list.Items {
		requests = append(requests, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&list.Items[i])})
	}
	return requests
}

// Reconcile takes the report of a token back that nobody keeps, or that has expired.
func (c *Controller) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	account := &authenticationv1beta1.ManagedServiceAccount{}
	if err := c.client.Get(ctx, req.NamespacedName, account); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if !account.DeletionTimestamp.IsZero() || !meta.IsStatusConditionTrue(account.Status.Conditions, fleet.ConditionTokenReported) {
		return ctrl.Result{}, nil
	}
	why, left, err := c.check(ctx, account)
	if err != nil || why == "" {
		return ctrl.Result{RequeueAfter: min(left, retry.LongestTimer)}, err
	}
	before := account.DeepCopy()
	meta.SetStatusCondition(&account.Status.Conditions, metav1.Condition{
		Type: fleet.ConditionTokenReported, Status: metav1.ConditionFalse, Reason: fleet.ReasonTokenReportFailed, Message: why,
		LastTransitionTime: metav1.NewTime(c.clock.Now()),
	})
	_, err = patch.Status(ctx, c.client, account, before)
	return ctrl.Result{}, client.IgnoreNotFound(err)
}

// check returns why the report does not count any more, or else for how long it does; 0 if that is not known.
func (c *Controller) check(ctx context.Context, account *authenticationv1beta1.ManagedServiceAccount) (why string, left time.Duration,
	err error) {
	key := client.ObjectKey{Namespace: account.Namespace, Name: fleet.AddOnManagedServiceAccount}
	if err := c.client.Get(ctx, key, &addonv1beta1.ManagedClusterAddOn{}); apierrors.IsNotFound(err) {
		return fmt.Sprintf("the add-on %s is not enabled on cluster %s, so nobody keeps the service account and its token there: enable it",
			key.Name, key.Namespace), 0, nil
	} else if err != nil {
		return "", 0, fmt.Errorf("get ManagedClusterAddOn %s: %w", key, err)
	}
	expires := account.Status.ExpirationTimestamp
	if expires == nil {
		return "", 0, nil
	}
	if left = expires.Sub(c.clock.Now()); left > 0 {
		return "", left, nil
	}
	return fmt.Sprintf("the token has expired at %s, and the agent of cluster %s has not renewed it: see whether the cluster reaches the "+
		"hub, and whether the add-on %s is available there", expires.UTC().Format(time.RFC3339), key.Namespace, key.Name), 0, nil
}
