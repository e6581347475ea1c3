// Package tokenreport takes back what the agent of a cluster has reported of the token of a ManagedServiceAccount, when that is not so any
// more and the agent cannot say it: it has not reached the hub until the token expired, or the add-on is gone, and with it the rights of
// the agent, which deletes the service account. The agent reports the next token. One that has kept the token of before may not report
// it anew: so the report counts again once the add-on is available.
package tokenreport

import (
	"context"
	"fmt"
	"time"

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
	becomesAvailable := predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		before, ok := e.ObjectOld.(*addonv1beta1.ManagedClusterAddOn)
		now, too := e.ObjectNew.(*addonv1beta1.ManagedClusterAddOn)
		return ok && too && isAvailable(now) && !isAvailable(before)
	}}
	return ctrl.NewControllerManagedBy(mgr).Named("addon-managedserviceaccount-report").
		For(&authenticationv1beta1.ManagedServiceAccount{}).
		Watches(&addonv1beta1.ManagedClusterAddOn{}, handler.EnqueueRequestsFromMapFunc(c.ofCluster),
			builder.WithPredicates(theAddOn, becomesAvailable)).
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

// Reconcile takes the report of a token back that nobody keeps, or that has expired. It counts again when that is not so any more.
func (c *Controller) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	account := &authenticationv1beta1.ManagedServiceAccount{}
	if err := c.client.Get(ctx, req.NamespacedName, account); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	reported := meta.FindStatusCondition(account.Status.Conditions, fleet.ConditionTokenReported)
	if !account.DeletionTimestamp.IsZero() || reported == nil || reported.Status != metav1.ConditionTrue && !isTakenBack(account, reported) {
		return ctrl.Result{}, nil
	}
	key := client.ObjectKey{Namespace: account.Namespace, Name: fleet.AddOnManagedServiceAccount}
	addOn := &addonv1beta1.ManagedClusterAddOn{}
	err := c.client.Get(ctx, key, addOn)
	if client.IgnoreNotFound(err) != nil {
		return ctrl.Result{}, fmt.Errorf("get ManagedClusterAddOn %s: %w", key, err)
	}
	why, left := c.check(account, err == nil)
	counted, available := reported.Status == metav1.ConditionTrue, isAvailable(addOn)
	switch {
	case counted && why != "":
		return ctrl.Result{}, c.report(ctx, account, metav1.ConditionFalse, fleet.ReasonTokenReportFailed, why)
	case !counted && why == "" && available:
		return ctrl.Result{}, c.report(ctx, account, metav1.ConditionTrue, fleet.ReasonTokenReported, "")
	}
	return ctrl.Result{RequeueAfter: min(left, retry.LongestTimer)}, nil
}

func isAvailable(addOn *addonv1beta1.ManagedClusterAddOn) bool {
	return meta.IsStatusConditionTrue(addOn.Status.Conditions, fleet.ConditionAvailable)
}

func (c *Controller) report(ctx context.Context, account *authenticationv1beta1.ManagedServiceAccount, status metav1.ConditionStatus,
	reason, message string) error {
	before := account.DeepCopy()
	meta.SetStatusCondition(&account.Status.Conditions, metav1.Condition{
		Type: fleet.ConditionTokenReported, Status: status, Reason: reason, Message: message,
		LastTransitionTime: metav1.NewTime(c.clock.Now()),
	})
	_, err := patch.Status(ctx, c.client, account, before)
	return client.IgnoreNotFound(err)
}

// check returns why the report does not count, or else for how long it does; 0 if that is not known.
func (c *Controller) check(account *authenticationv1beta1.ManagedServiceAccount, enabled bool) (why string, left time.Duration) {
	if !enabled {
		return disabled(account), 0
	}
	expires := account.Status.ExpirationTimestamp
	if expires == nil {
		return "", 0
	}
	if left = expires.Sub(c.clock.Now()); left > 0 {
		return "", left
	}
	return expired(account), 0
}

// isTakenBack reports whether it was this controller that took the report back, and not the agent, which knows what is wrong.
func isTakenBack(account *authenticationv1beta1.ManagedServiceAccount, reported *metav1.Condition) bool {
	return reported.Message == disabled(account) || account.Status.ExpirationTimestamp != nil && reported.Message == expired(account)
}

func disabled(account *authenticationv1beta1.ManagedServiceAccount) string {
	return fmt.Sprintf("the add-on %s is not enabled on cluster %s, so nobody keeps the service account and its token there: enable it",
		fleet.AddOnManagedServiceAccount, account.Namespace)
}

func expired(account *authenticationv1beta1.ManagedServiceAccount) string {
	return fmt.Sprintf("the token has expired at %s, and the agent of cluster %s has not renewed it: see whether the cluster reaches the "+
		"hub, and whether the add-on %s is available there", account.Status.ExpirationTimestamp.UTC().Format(time.RFC3339), account.Namespace,
		fleet.AddOnManagedServiceAccount)
}
