// Package clusterpermission brings the roles and bindings of ClusterPermissions to their clusters, in ManifestWorks.
package clusterpermission

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
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
	permissionv1alpha1 "github.com/capstan-io/capstan/api/rbac/v1alpha1"
	workv1 "github.com/capstan-io/capstan/api/work/v1"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
	"github.com/capstan-io/capstan/internal/machinery/patch"
	"github.com/capstan-io/capstan/internal/machinery/predicates"
	"github.com/capstan-io/capstan/internal/machinery/retry"
)

// workers is how many permissions are reconciled at once.
const workers = 5

// retryInterval is when a work is tried again that the hub has forbidden: cluster, rights or quota may change without an event here.
const retryInterval = time.Minute

// ownerKind is that of what the works are owned by.
const ownerKind = "ClusterPermission"

// Options configure the controller.
type Options struct {
	// Clock is the source of time.
	Clock clock.PassiveClock
}

// Controller reconciles ClusterPermissions.
type Controller struct {
	client client.Client
	clock  clock.PassiveClock
}

// New returns a Controller that works through the client.
func New(c client.Client, o Options) *Controller { return &Controller{client: c, clock: o.Clock} }

// Register adds the controller to the manager.
func Register(mgr ctrl.Manager, o Options) error {
	c := New(mgr.GetClient(), o)
	inNamespace := handler.EnqueueRequestsFromMapFunc(c.inNamespace)
	theAddOn := predicate.NewPredicateFuncs(func(o client.Object) bool { return o.GetName() == fleet.AddOnManagedServiceAccount })
	return ctrl.NewControllerManagedBy(mgr).Named("addon-clusterpermission-apply").
		For(&permissionv1alpha1.ClusterPermission{}, builder.WithPredicates(predicates.Generation())).
		Watches(&workv1.ManifestWork{}, handler.EnqueueRequestForOwner(mgr.GetScheme(), mgr.GetRESTMapper(),
			&permissionv1alpha1.ClusterPermission{}), builder.WithPredicates(predicate.Funcs{UpdateFunc: workMatters})).
		Watches(&authenticationv1beta1.ManagedServiceAccount{}, inNamespace, builder.WithPredicates(predicate.Funcs{
			UpdateFunc: func(event.UpdateEvent) bool { return false }})).
		Watches(&addonv1beta1.ManagedClusterAddOn{}, inNamespace, builder.WithPredicates(theAddOn, predicate.Funcs{UpdateFunc: moved})).
		WithOptions(controller.Options{MaxConcurrentReconciles: workers, RateLimiter: retry.Limiter()}).
		Complete(retry.Conflicts(c))
}

func workMatters(e event.UpdateEvent) bool {
	was, ok := e.ObjectOld.(*workv1.ManifestWork)
	is, too := e.ObjectNew.(*workv1.ManifestWork)
	return !ok || !too || was.Generation != is.Generation || applied(was) != applied(is)
}

// applied returns what the agent says of the present generation of a work.
func applied(work *workv1.ManifestWork) (result metav1.Condition) {
	condition := meta.FindStatusCondition(work.Status.Conditions, fleet.ConditionApplied)
	if condition == nil || condition.ObservedGeneration != work.Generation {
		return result
	}
	return metav1.Condition{Status: condition.Status, Message: condition.Message}
}

func moved(e event.UpdateEvent) bool {
	was, ok := e.ObjectOld.(*addonv1beta1.ManagedClusterAddOn)
	is, too := e.ObjectNew.(*addonv1beta1.ManagedClusterAddOn)
	return !ok || !too || was.Status.Namespace != is.Status.Namespace
}

// inNamespace maps what belongs to ManagedServiceAccounts to the permissions of the cluster.
func (c *Controller) inNamespace(ctx context.Context, o client.Object) (requests []reconcile.Request) {
	list := &permissionv1alpha1.ClusterPermissionList{}
	if err := c.client.List(ctx, list, client.InNamespace(o.GetNamespace()), client.UnsafeDisableDeepCopy); err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "Find the ClusterPermissions of a cluster")
		return nil
	}
	for i := range list.Items {
		requests = append(requests, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&list.Items[i])})
	}
	return requests
}

// waitError is about what a user can put right.
type waitError struct{ error }

// Unwrap returns the cause.
func (e waitError) Unwrap() error { return e.error }

func waits(format string, args ...any) error { return waitError{fmt.Errorf(format, args...)} }

// Reconcile keeps the work of a permission, and reports what the agent says of it.
func (c *Controller) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	permission := &permissionv1alpha1.ClusterPermission{}
	if err := c.client.Get(ctx, req.NamespacedName, permission); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err) // the work goes with its owner
	}
	if !permission.DeletionTimestamp.IsZero() {
		return ctrl.Result{}, nil
	}
	work, err := c.apply(ctx, permission)
	if err != nil && !errors.As(err, new(waitError)) {
		return ctrl.Result{}, err
	}
	result := ctrl.Result{}
	if apierrors.IsForbidden(err) {
		result.RequeueAfter = retryInterval
	}
	before := permission.DeepCopy()
	meta.SetStatusCondition(&permission.Status.Conditions, c.condition(permission, work, err))
	_, err = patch.Status(ctx, c.client, permission, before)
	return result, client.IgnoreNotFound(err)
}

// condition reports whether the rights are on the cluster, and if not, what to do.
func (c *Controller) condition(permission *permissionv1alpha1.ClusterPermission, work *workv1.ManifestWork, err error) metav1.Condition {
	condition := metav1.Condition{
		Type: fleet.ConditionAppliedRBACManifestWork, Status: metav1.ConditionFalse, Reason: fleet.ReasonFailedRBACManifestWork,
		ObservedGeneration: permission.Generation, LastTransitionTime: metav1.NewTime(c.clock.Now()),
	}
	if err != nil {
		condition.Message = err.Error()
		return condition
	}
	switch result := applied(work); result.Status {
	case metav1.ConditionTrue:
		condition.Status, condition.Reason = metav1.ConditionTrue, fleet.ReasonAppliedRBACManifestWork
		condition.Message = fmt.Sprintf("The roles and bindings are on the cluster, by ManifestWork %s", work.Name)
	case metav1.ConditionFalse:
		condition.Message = fmt.Sprintf("The cluster has not all roles and bindings: %s; the status of ManifestWork %s says which", result.Message,
			work.Name)
	default:
		condition.Reason = fleet.ReasonProgressing
		condition.Message = fmt.Sprintf("The agent of the cluster has not applied ManifestWork %s yet", work.Name)
	}
	return condition
}

// apply writes the work with the roles and bindings of the permission.
func (c *Controller) apply(ctx context.Context, permission *permissionv1alpha1.ClusterPermission) (*workv1.ManifestWork, error) {
	objects, err := render(permission, func(name string) (types.NamespacedName, error) { return c.account(ctx, permission.Namespace, name) })
	if err != nil {
		return nil, err
	}
	manifests := make([]workv1.Manifest, 0, len(objects))
	for _, object := range objects {
		raw, err := json.Marshal(object)
		if err != nil {
			return nil, fmt.Errorf("write the manifests of ClusterPermission %s: %w", client.ObjectKeyFromObject(permission), err)
		}
		manifests = append(manifests, workv1.Manifest{RawExtension: runtime.RawExtension{Raw: raw}})
	}
	work := &workv1.ManifestWork{}
	key := client.ObjectKeyFromObject(permission)
	switch err := c.client.Get(ctx, key, work); {
	case apierrors.IsNotFound(err):
		return c.create(ctx, permission, manifests)
	case err != nil:
		return nil, fmt.Errorf("get ManifestWork %s: %w", key, err)
	case !metav1.IsControlledBy(work, permission):
		return nil, waits("the ManifestWork %s is there already, and is not of this ClusterPermission: delete it, or choose another name "+
			"for the ClusterPermission", work.Name)
	case !work.DeletionTimestamp.IsZero():
		return work, nil // it is made again when it has gone, which is an event
	case same(work.Spec.Workload.Manifests, manifests):
		return work, nil
	}
	before := work.DeepCopy()
	work.Spec.Workload.Manifests = manifests
	if _, err := patch.Object(ctx, c.client, work, before); err != nil {
		return nil, refusal(err)
	}
	return work, nil
}

func (c *Controller) create(ctx context.Context, permission *permissionv1alpha1.ClusterPermission, manifests []workv1.Manifest,
) (*workv1.ManifestWork, error) {
	work := &workv1.ManifestWork{ObjectMeta: metav1.ObjectMeta{
		Namespace: permission.Namespace, Name: permission.Name,
		OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(permission, permissionv1alpha1.GroupVersion.WithKind(ownerKind))},
	}}
	work.Spec.Workload.Manifests = manifests
	if err := c.client.Create(ctx, work); err != nil {
		return nil, refusal(fmt.Errorf("create ManifestWork %s: %w", client.ObjectKeyFromObject(work), err))
	}
	return work, nil
}

// refusal returns an error of writing a work: one for users if the hub refuses the work.
func refusal(err error) error {
	if apierrors.IsInvalid(err) || apierrors.IsBadRequest(err) || apierrors.IsForbidden(err) {
		return waits("the hub refuses its ManifestWork: %w", err)
	}
	return err
}

// same reports whether manifests say the same: the API server may have stored them with another order of fields.
func same(a, b []workv1.Manifest) bool {
	return slices.EqualFunc(a, b, func(a, b workv1.Manifest) bool {
		var one, other any
		return json.Unmarshal(a.Raw, &one) == nil && json.Unmarshal(b.Raw, &other) == nil && equality.Semantic.DeepEqual(one, other)
	})
}

// account returns where the service account of a ManagedServiceAccount is on its cluster.
func (c *Controller) account(ctx context.Context, cluster, name string) (there types.NamespacedName, err error) {
	key := client.ObjectKey{Namespace: cluster, Name: name}
	if err := c.client.Get(ctx, key, &authenticationv1beta1.ManagedServiceAccount{}); apierrors.IsNotFound(err) {
		return there, waits("there is no ManagedServiceAccount %s in namespace %s: create it", name, cluster)
	} else if err != nil {
		return there, err
	}
	addOn := &addonv1beta1.ManagedClusterAddOn{}
	err = c.client.Get(ctx, client.ObjectKey{Namespace: cluster, Name: fleet.AddOnManagedServiceAccount}, addOn)
	if apierrors.IsNotFound(err) || err == nil && addOn.Status.Namespace == "" {
		return there, waits("the add-on %s is not enabled on cluster %s, so it is not known where the service account of the "+
			"ManagedServiceAccount %s is: enable it", fleet.AddOnManagedServiceAccount, cluster, name)
	}
	return types.NamespacedName{Namespace: addOn.Status.Namespace, Name: name}, err
}
