// Package token creates the service accounts of add-ons whose agents use tokens instead of certificates.
package token

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	addonv1beta1 "github.com/capstan-io/capstan/api/addon/v1beta1"
	clusterv1 "github.com/capstan-io/capstan/api/cluster/v1"
	"github.com/capstan-io/capstan/internal/hub/addon/lookup"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
	"github.com/capstan-io/capstan/internal/machinery/managedcluster"
	"github.com/capstan-io/capstan/internal/machinery/patch"
	"github.com/capstan-io/capstan/internal/machinery/predicates"
	"github.com/capstan-io/capstan/internal/machinery/retry"
	"github.com/capstan-io/capstan/internal/machinery/text"
)

// conflictRetry is for conflicts with other writers of the status. Usually the event about their change enqueues the add-on sooner.
const conflictRetry = time.Second

// Options configure the controller.
type Options struct {
	// Labels are set on all objects that are created for an add-on, in addition to its own.
	Labels map[string]string
	// Clock is the source of time.
	Clock clock.PassiveClock
}

// Controller reconciles ManagedClusterAddOns.
type Controller struct {
	Options
	client client.Client
}

// New returns a Controller that works through the client.
func New(c client.Client, o Options) *Controller { return &Controller{Options: o, client: c} }

// Register adds the controller to the manager.
func Register(mgr ctrl.Manager, o Options) error {
	marked := builder.WithPredicates(predicates.Either(isMarked))
	ofAddOn := handler.EnqueueRequestsFromMapFunc(func(_ context.Context, o client.Object) []reconcile.Request {
		return []reconcile.Request{{NamespacedName: client.ObjectKey{Namespace: o.GetNamespace(),
			Name: o.GetLabels()[fleet.LabelTokenAddOnName]}}}
	})
	c := New(mgr.GetClient(), o)
	return ctrl.NewControllerManagedBy(mgr).Named("addon-serviceaccount-token").
		WithOptions(controller.Options{RateLimiter: retry.Limiter()}).
		For(&addonv1beta1.ManagedClusterAddOn{}).
		Watches(&corev1.ServiceAccount{}, ofAddOn, marked).
		Watches(&rbacv1.Role{}, ofAddOn, marked).
		Watches(&rbacv1.RoleBinding{}, ofAddOn, marked).
		Watches(&clusterv1.ManagedCluster{}, handler.EnqueueRequestsFromMapFunc(lookup.OnCluster(c.client)), builder.WithPredicates(decided())).
		Complete(retry.Conflicts(c))
}

// decided matches clusters that were denied, or accepted after that.
func decided() predicate.Predicate {
	return predicate.Funcs{
		CreateFunc: func(event.CreateEvent) bool { return false },
		DeleteFunc: func(event.DeleteEvent) bool { return false },
		UpdateFunc: func(e event.UpdateEvent) bool {
			before, ok := e.ObjectOld.(*clusterv1.ManagedCluster)
			after, too := e.ObjectNew.(*clusterv1.ManagedCluster)
			return ok && too && managedcluster.Denied(before) != managedcluster.Denied(after)
		},
	}
}

// isMarked reports whether an object has the label of this controller.
func isMarked(o client.Object) bool {
	return o.GetLabels()[fleet.LabelTokenInfrastructure] == fleet.LabelTrue
}

// Reconcile creates a service account for an add-on, and gives the agent of its cluster the right to request tokens for it, or deletes
// both, and reports in the status.
func (c *Controller) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	addOn := &addonv1beta1.ManagedClusterAddOn{}
	if err := c.client.Get(ctx, req.NamespacedName, addOn); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	denied, err := c.isDenied(ctx, addOn.Namespace)
	if err != nil {
		return ctrl.Result{}, err
	}
	if !addOn.DeletionTimestamp.IsZero() && !denied {
		return ctrl.Result{}, nil // everything is deleted with its owner, and may be needed until then
	}
	before := addOn.DeepCopy()
	switch {
	case usesToken(addOn) && denied:
		c.report(addOn, nil, fmt.Errorf("ManagedCluster %s is denied: there are no tokens for its add-ons until it is accepted again",
			addOn.Namespace))
		err = c.remove(ctx, addOn)
	case usesToken(addOn):
		var account *corev1.ServiceAccount
		account, err = c.apply(ctx, addOn)
		c.report(addOn, account, err)
		nameSubject(addOn)
	default:
		meta.RemoveStatusCondition(&addOn.Status.Conditions, fleet.ConditionTokenInfrastructureReady)
		err = c.remove(ctx, addOn)
	}
	_, patchErr := patch.Status(ctx, c.client, addOn, before)
	if apierrors.IsConflict(patchErr) {
		return ctrl.Result{RequeueAfter: conflictRetry}, err
	}
	return ctrl.Result{}, errors.Join(err, client.IgnoreNotFound(patchErr))
}

// isDenied reports whether the cluster, whose agent requests the tokens, is denied.
func (c *Controller) isDenied(ctx context.Context, name string) (bool, error) {
	cluster := &clusterv1.ManagedCluster{}
	if err := c.client.Get(ctx, client.ObjectKey{Name: name}, cluster); err != nil {
		return false, client.IgnoreNotFound(err)
	}
	return managedcluster.Denied(cluster), nil
}

func usesToken(addOn *addonv1beta1.ManagedClusterAddOn) bool {
	for _, registration := range addOn.Status.Registrations {
		if byToken(registration) {
			return true
		}
	}
	return false
}

func byToken(registration addonv1beta1.RegistrationConfig) bool {
	return registration.Type == addonv1beta1.KubeClient && registration.KubeClient != nil &&
		registration.KubeClient.Driver == addonv1beta1.KubeClientDriverToken
}

// nameSubject writes the identity of the add-on to its status, so that its manager can give it its rights.
func nameSubject(addOn *addonv1beta1.ManagedClusterAddOn) {
	for _, registration := range addOn.Status.Registrations {
		user := fleet.AddOnTokenUser(addOn.Namespace, addOn.Name)
		if byToken(registration) && registration.KubeClient.Subject.User != user {
			registration.KubeClient.Subject = addonv1beta1.KubeClientSubject{User: user}
		}
	}
}

func (c *Controller) report(addOn *addonv1beta1.ManagedClusterAddOn, account *corev1.ServiceAccount, err error) {
	cond := metav1.Condition{Type: fleet.ConditionTokenInfrastructureReady, LastTransitionTime: metav1.NewTime(c.Clock.Now())}
	if err != nil {
		cond.Status, cond.Reason, cond.Message = metav1.ConditionFalse, fleet.ReasonTokenInfrastructureApplyFailed, text.Stable(err.Error())
	} else {
		cond.Status, cond.Reason = metav1.ConditionTrue, fleet.ConditionTokenInfrastructureReady
		cond.Message = fleet.TokenInfrastructureReadyMessage(account.Namespace, account.Name, string(account.UID))
	}
	meta.SetStatusCondition(&addOn.Status.Conditions, cond)
}

// apply creates the service account, and lets the agent of the cluster request tokens for it.
func (c *Controller) apply(ctx context.Context, addOn *addonv1beta1.ManagedClusterAddOn) (*corev1.ServiceAccount, error) {
	account, role, binding := c.objects(addOn)
	err := c.ensure(ctx, addOn, account, func() {})
	if err != nil {
		return nil, err
	}
	err = c.ensure(ctx, addOn, role, func() {
		role.Rules = []rbacv1.PolicyRule{
			{APIGroups: []string{""}, Resources: []string{"serviceaccounts/token"}, ResourceNames: []string{account.Name},
				Verbs: []string{"create"}},
			{APIGroups: []string{""}, Resources: []string{"serviceaccounts/token"}, Verbs: []string{fleet.VerbSubscribe}},
		}
	})
	if err != nil {
		return nil, err
	}
	return account, c.ensure(ctx, addOn, binding, func() {
		binding.RoleRef = rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: role.Name}
		binding.Subjects = []rbacv1.Subject{
			{APIGroup: rbacv1.GroupName, Kind: rbacv1.GroupKind, Name: fleet.ClusterGroup(addOn.Namespace)},
			{APIGroup: rbacv1.GroupName, Kind: rbacv1.GroupKind, Name: fleet.AWSClusterGroup(addOn.Namespace)},
		}
	})
}

func (c *Controller) objects(addOn *addonv1beta1.ManagedClusterAddOn) (*corev1.ServiceAccount, *rbacv1.Role, *rbacv1.RoleBinding) {
	named := func(name string) metav1.ObjectMeta { return metav1.ObjectMeta{Namespace: addOn.Namespace, Name: name} }
	role := named(fleet.AddOnTokenRole(addOn.Name))
	return &corev1.ServiceAccount{ObjectMeta: named(fleet.AddOnServiceAccount(addOn.Name))}, &rbacv1.Role{ObjectMeta: role},
		&rbacv1.RoleBinding{ObjectMeta: role}
}

// labels returns the labels of the objects that this controller creates. The hub's caches select objects by that of the cluster.
func labels(addOn *addonv1beta1.ManagedClusterAddOn) map[string]string {
	return map[string]string{
		fleet.LabelTokenInfrastructure: fleet.LabelTrue, fleet.LabelTokenAddOnName: addOn.Name, fleet.LabelClusterName: addOn.Namespace,
	}
}

// ensure creates an object, or changes it as mutate wants. It does not take over objects without the label of this controller: an agent
// could then get tokens for any service account with a matching name.
func (c *Controller) ensure(ctx context.Context, addOn *addonv1beta1.ManagedClusterAddOn, o client.Object, mutate func()) error {
	key := client.ObjectKeyFromObject(o)
	err := c.client.Get(ctx, key, o)
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("get %T %s: %w", o, key, err)
	}
	missing := err != nil
	before, _ := o.DeepCopyObject().(client.Object)
	if !missing && !ofAddOn(o, addOn) {
		return othersError(o, addOn)
	}
	marked := o.GetLabels()
	if marked == nil {
		marked = map[string]string{}
	}
	maps.Copy(marked, c.Labels)
	maps.Copy(marked, labels(addOn))
	o.SetLabels(marked)
	if err := controllerutil.SetOwnerReference(addOn, o, c.client.Scheme()); err != nil {
		return fmt.Errorf("set the owner of %T %s: %w", o, key, err)
	}
	mutate()
	if !missing {
		_, err := patch.Object(ctx, c.client, o, before)
		return err
	}
	err = c.client.Create(ctx, o)
	if apierrors.IsAlreadyExists(err) {
		return othersError(o, addOn)
	}
	if err != nil {
		return fmt.Errorf("create %T %s: %w", o, key, err)
	}
	return nil
}

func ofAddOn(o client.Object, addOn *addonv1beta1.ManagedClusterAddOn) bool {
	return isMarked(o) && o.GetLabels()[fleet.LabelTokenAddOnName] == addOn.Name
}

func othersError(o client.Object, addOn *addonv1beta1.ManagedClusterAddOn) error {
	return fmt.Errorf("%T %s/%s is there already, and was not made for tokens of add-on %s; delete it, or give it the labels %s=%s, %s=%s and %s=%s",
		o, o.GetNamespace(), o.GetName(), addOn.Name, fleet.LabelTokenInfrastructure, fleet.LabelTrue, fleet.LabelTokenAddOnName, addOn.Name,
		fleet.LabelClusterName, addOn.Namespace)
}

// remove deletes the objects of this controller, and, with the service account, all of its tokens.
func (c *Controller) remove(ctx context.Context, addOn *addonv1beta1.ManagedClusterAddOn) error {
	account, role, binding := c.objects(addOn)
	var errs []error
	for _, o := range []client.Object{binding, role, account} {
		key := client.ObjectKeyFromObject(o)
		if err := c.client.Get(ctx, key, o); err != nil {
			if !apierrors.IsNotFound(err) {
				errs = append(errs, fmt.Errorf("get %T %s: %w", o, key, err))
			}
			continue
		}
		if !ofAddOn(o, addOn) {
			continue
		}
		uid := o.GetUID()
		if err := c.client.Delete(ctx, o, client.Preconditions{UID: &uid}); client.IgnoreNotFound(err) != nil {
			errs = append(errs, fmt.Errorf("delete %T %s: %w", o, key, err))
		}
	}
	return errors.Join(errs...)
}
