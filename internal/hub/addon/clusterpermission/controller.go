// Package clusterpermission brings the roles and bindings of ClusterPermissions to their clusters, in ManifestWorks.
package clusterpermission

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

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
	"github.com/capstan-io/capstan/internal/machinery/manifest"
	"github.com/capstan-io/capstan/internal/machinery/patch"
	"github.com/capstan-io/capstan/internal/machinery/predicates"
	"github.com/capstan-io/capstan/internal/machinery/retry"
	"github.com/capstan-io/capstan/internal/machinery/text"
)

// workers is how many permissions are reconciled at once.
const workers = 5

// retryInterval is when a work is tried again that the hub has forbidden, or in whose place there is another one: cluster, rights or quota
// may change, and the other work go, without an event here.
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

// errOfAnother says that the work with the name of a permission is not of it.
var errOfAnother = errors.New("it is there already, and is not of this ClusterPermission: delete it, or choose another name for the " +
	"ClusterPermission")

// Reconcile keeps the work of a permission, and reports what the agent says of it and which subjects wait for a user.
func (c *Controller) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	permission := &permissionv1alpha1.ClusterPermission{}
	if err := c.client.Get(ctx, req.NamespacedName, permission); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err) // the work goes with its owner
	}
	if !permission.DeletionTimestamp.IsZero() {
		return ctrl.Result{}, nil
	}
	work, err := c.workOf(ctx, permission)
	if err != nil {
		return ctrl.Result{}, err
	}
	all, err := render(permission, func(name string) (types.NamespacedName, error) {
		return c.account(ctx, permission.Namespace, name, work)
	})
	if err != nil {
		return ctrl.Result{}, err
	}
	work, err = c.apply(ctx, permission, work, all)
	if err != nil && !errors.As(err, new(waitError)) {
		return ctrl.Result{}, err
	}
	result := ctrl.Result{}
	if apierrors.IsForbidden(err) || errors.Is(err, errOfAnother) {
		result.RequeueAfter = retryInterval
	}
	before := permission.DeepCopy()
	meta.SetStatusCondition(&permission.Status.Conditions, c.condition(permission, work, all.waiting, err))
	_, err = patch.Status(ctx, c.client, permission, before)
	return result, client.IgnoreNotFound(err)
}

// condition reports whether the rights are on the cluster, and if not, what to do. Those of all subjects are not while some are waiting.
func (c *Controller) condition(permission *permissionv1alpha1.ClusterPermission, work *workv1.ManifestWork, waiting []string, err error,
) metav1.Condition {
	condition := workCondition(work, err)
	if len(waiting) > 0 {
		condition.Status, condition.Reason = metav1.ConditionFalse, fleet.ReasonFailedRBACManifestWork
		others := condition.Message
		condition.Message = text.Message(strings.Join(waiting, "; "))
		if others != "" {
			condition.Message += ". Apart from these subjects: " + others
		}
	}
	condition.ObservedGeneration, condition.LastTransitionTime = permission.Generation, metav1.NewTime(c.clock.Now())
	return condition
}

// workCondition reports what has become of the work; nil is none, as it would have no manifests.
func workCondition(work *workv1.ManifestWork, err error) metav1.Condition {
	condition := metav1.Condition{
		Type: fleet.ConditionAppliedRBACManifestWork, Status: metav1.ConditionFalse, Reason: fleet.ReasonFailedRBACManifestWork,
	}
	if err != nil {
		condition.Message = err.Error()
	}
	if err != nil || work == nil {
		return condition
	}
	switch result := applied(work); result.Status {
	case metav1.ConditionTrue:
		condition.Status, condition.Reason = metav1.ConditionTrue, fleet.ReasonAppliedRBACManifestWork
		condition.Message = fmt.Sprintf("The roles and bindings are on the cluster, by ManifestWork %s", work.Name)
	case metav1.ConditionFalse:
		condition.Message = fmt.Sprintf("The cluster has not all roles and bindings: %s; the status of ManifestWork %s says which",
			result.Message, work.Name)
	default:
		condition.Reason = fleet.ReasonProgressing
		condition.Message = fmt.Sprintf("The agent of the cluster has not applied ManifestWork %s yet", work.Name)
	}
	return condition
}

// workOf returns the work with the name of the permission; nil if there is none.
func (c *Controller) workOf(ctx context.Context, permission *permissionv1alpha1.ClusterPermission) (*workv1.ManifestWork, error) {
	work, key := &workv1.ManifestWork{}, client.ObjectKeyFromObject(permission)
	err := c.client.Get(ctx, key, work)
	if apierrors.IsNotFound(err) {
		return nil, nil //nolint:nilnil // there may be none
	}
	if err != nil {
		return nil, fmt.Errorf("get ManifestWork %s: %w", key, err)
	}
	return work, nil
}

// apply writes the work with the roles and bindings of the permission. If there are none, as no binding has subjects, there is no work.
func (c *Controller) apply(ctx context.Context, permission *permissionv1alpha1.ClusterPermission, work *workv1.ManifestWork, all *rendered,
) (*workv1.ManifestWork, error) {
	manifests := make([]workv1.Manifest, 0, len(all.objects))
	for _, object := range all.objects {
		raw, err := json.Marshal(object)
		if err != nil {
			return nil, fmt.Errorf("write the manifests of ClusterPermission %s: %w", client.ObjectKeyFromObject(permission), err)
		}
		manifests = append(manifests, workv1.Manifest{RawExtension: runtime.RawExtension{Raw: raw}})
	}
	switch {
	case work == nil && len(manifests) == 0:
		return nil, nil //nolint:nilnil // there is nothing to bring to the cluster
	case work == nil:
		return c.create(ctx, permission, manifests, all.accountNamespace)
	case !metav1.IsControlledBy(work, permission):
		return nil, waits("ManifestWork %s: %w", client.ObjectKeyFromObject(work), errOfAnother)
	case !work.DeletionTimestamp.IsZero():
		return work, nil // it is made again when it has gone, which is an event
	case len(manifests) == 0:
		return nil, c.remove(ctx, work)
	case manifest.SameManifests(work.Spec.Workload.Manifests, manifests) &&
		work.Annotations[fleet.AnnotationAccountNamespace] == all.accountNamespace:
		return work, nil
	}
	before := work.DeepCopy()
	work.Spec.Workload.Manifests = manifests
	noteAccountNamespace(work, all.accountNamespace)
	if _, err := patch.Object(ctx, c.client, work, before); err != nil {
		return nil, refusal(err)
	}
	return work, nil
}

func (c *Controller) create(ctx context.Context, permission *permissionv1alpha1.ClusterPermission, manifests []workv1.Manifest,
	accountNamespace string) (*workv1.ManifestWork, error) {
	work := &workv1.ManifestWork{ObjectMeta: metav1.ObjectMeta{
		Namespace: permission.Namespace, Name: permission.Name,
		OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(permission, permissionv1alpha1.GroupVersion.WithKind(ownerKind))},
	}}
	work.Spec.Workload.Manifests = manifests
	noteAccountNamespace(work, accountNamespace)
	if err := c.client.Create(ctx, work); err != nil {
		return nil, refusal(fmt.Errorf("create ManifestWork %s: %w", client.ObjectKeyFromObject(work), err))
	}
	return work, nil
}

// remove deletes a work, so that its roles and bindings go from the cluster: one without manifests is none to the API.
func (c *Controller) remove(ctx context.Context, work *workv1.ManifestWork) error {
	err := client.IgnoreNotFound(c.client.Delete(ctx, work, client.Preconditions{UID: &work.UID}))
	if err != nil {
		return refusal(fmt.Errorf("delete ManifestWork %s: %w", client.ObjectKeyFromObject(work), err))
	}
	return nil
}

// refusal returns an error of writing a work: one for users if the hub refuses the work.
func refusal(err error) error {
	if apierrors.IsInvalid(err) || apierrors.IsBadRequest(err) || apierrors.IsForbidden(err) {
		return waits("the hub refuses its ManifestWork: %w", err)
	}
	return err
}

// noteAccountNamespace keeps where accounts are for the time that the add-on does not say. A work without accounts has nothing to keep.
func noteAccountNamespace(work *workv1.ManifestWork, namespace string) {
	if namespace == "" {
		delete(work.Annotations, fleet.AnnotationAccountNamespace)
		return
	}
	metav1.SetMetaDataAnnotation(&work.ObjectMeta, fleet.AnnotationAccountNamespace, namespace)
}

// account returns where the service account of a ManagedServiceAccount is on its cluster; with a waitError, where it was last by the work.
func (c *Controller) account(ctx context.Context, cluster, name string, work *workv1.ManifestWork) (there types.NamespacedName, err error) {
	key := client.ObjectKey{Namespace: cluster, Name: name}
	if err := c.client.Get(ctx, key, &authenticationv1beta1.ManagedServiceAccount{}); apierrors.IsNotFound(err) {
		return there, waits("there is no ManagedServiceAccount %s in namespace %s: create it", name, cluster)
	} else if err != nil {
		return there, err
	}
	addOn := &addonv1beta1.ManagedClusterAddOn{}
	err = c.client.Get(ctx, client.ObjectKey{Namespace: cluster, Name: fleet.AddOnManagedServiceAccount}, addOn)
	if client.IgnoreNotFound(err) != nil {
		return there, err
	}
	there = types.NamespacedName{Namespace: addOn.Status.Namespace, Name: name}
	if there.Namespace != "" {
		return there, nil
	}
	if work != nil {
		there.Namespace = work.Annotations[fleet.AnnotationAccountNamespace]
	}
	return there, waits("the add-on %s is not enabled on cluster %s, so it is not known where the service account of the "+
		"ManagedServiceAccount %s is: enable it", fleet.AddOnManagedServiceAccount, cluster, name)
}
