// Package progress reports how far the configurations of add-ons are applied on their clusters.
package progress

import (
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/client-go/tools/events"
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
	workv1 "github.com/capstan-io/capstan/api/work/v1"
	"github.com/capstan-io/capstan/internal/hub/addon/lookup"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
	"github.com/capstan-io/capstan/internal/machinery/patch"
	"github.com/capstan-io/capstan/internal/machinery/retry"
)

// workers is how many ManagedClusterAddOns are reconciled at once.
const workers = 10

// conflictRetry is when an add-on that another writer has changed is reconciled again: by then, the cache has the change.
const conflictRetry = 100 * time.Millisecond

// Options configure the controller.
type Options struct {
	// Clock is the source of time.
	Clock clock.PassiveClock
}

// Controller reconciles the condition Progressing and the applied configurations of ManagedClusterAddOns.
type Controller struct {
	client   client.Client
	recorder events.EventRecorder
	clock    clock.PassiveClock
}

// New returns a Controller that works through the client.
func New(c client.Client, recorder events.EventRecorder, o Options) *Controller {
	return &Controller{client: c, recorder: recorder, clock: o.Clock}
}

// Register adds the controller to the manager, whose cache needs the indexes of package lookup.
func Register(mgr ctrl.Manager, o Options) error {
	c := New(mgr.GetClient(), mgr.GetEventRecorder("addon-progress-controller"), o)
	return ctrl.NewControllerManagedBy(mgr).Named("addon-managedclusteraddon-progress").
		Watches(&addonv1beta1.ManagedClusterAddOn{}, lookup.Later(itself), builder.WithPredicates(predicate.Funcs{UpdateFunc: addOnMatters})).
		Watches(&workv1.ManifestWork{}, lookup.LaterByLabels(lookup.OfWork), builder.WithPredicates(predicate.Funcs{UpdateFunc: workMatters})).
		Watches(&addonv1beta1.ClusterManagementAddOn{}, handler.EnqueueRequestsFromMapFunc(lookup.OnAllClusters(c.client)),
			builder.WithPredicates(predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
				return e.ObjectOld.GetAnnotations()[fleet.AnnotationLifecycle] != e.ObjectNew.GetAnnotations()[fleet.AnnotationLifecycle]
			}})).
		WithOptions(controller.Options{MaxConcurrentReconciles: workers, RateLimiter: retry.Limiter()}).
		Complete(retry.Conflicts(c))
}

// itself maps an add-on to itself. Its manager, its agent and the rollout also write its status, often several of them within a moment;
// the delay makes that one reconcile.
func itself(_ context.Context, addOn client.Object) []reconcile.Request {
	return []reconcile.Request{{NamespacedName: client.ObjectKeyFromObject(addOn)}}
}

// addOnMatters reports whether a change of an add-on affects this controller. A change of its availability does not.
func addOnMatters(e event.UpdateEvent) bool {
	now, ok := e.ObjectNew.(*addonv1beta1.ManagedClusterAddOn)
	then, thenOK := e.ObjectOld.(*addonv1beta1.ManagedClusterAddOn)
	if !ok || !thenOK {
		return true
	}
	for _, kind := range []string{
		fleet.ConditionManifestApplied, fleet.ConditionHostingManifestApplied, fleet.ConditionHostingClusterValidity,
		fleet.ConditionRegistrationApplied, fleet.ConditionProgressing, fleet.ConditionConfigured,
	} {
		if !equality.Semantic.DeepEqual(meta.FindStatusCondition(now.Status.Conditions, kind),
			meta.FindStatusCondition(then.Status.Conditions, kind)) {
			return true
		}
	}
	return now.Generation != then.Generation || !equality.Semantic.DeepEqual(now.Annotations, then.Annotations) ||
		!equality.Semantic.DeepEqual(now.Status.ConfigReferences, then.Status.ConfigReferences) ||
		!equality.Semantic.DeepEqual(now.Status.SupportedConfigs, then.Status.SupportedConfigs)
}

// workMatters reports whether a change of a work affects this controller.
func workMatters(e event.UpdateEvent) bool {
	now, ok := e.ObjectNew.(*workv1.ManifestWork)
	then, thenOK := e.ObjectOld.(*workv1.ManifestWork)
	return !ok || !thenOK || now.Generation != then.Generation || now.DeletionTimestamp.IsZero() != then.DeletionTimestamp.IsZero() ||
		now.Annotations[fleet.AnnotationConfigSpecHash] != then.Annotations[fleet.AnnotationConfigSpecHash] ||
		!equality.Semantic.DeepEqual(now.Labels, then.Labels) || !equality.Semantic.DeepEqual(now.Status.Conditions, then.Status.Conditions)
}

// Reconcile reports on the works of the add-on, or on a deletion that nobody has started with. It ignores add-ons that manage themselves.
func (c *Controller) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	addOn := &addonv1beta1.ManagedClusterAddOn{}
	if err := c.client.Get(ctx, req.NamespacedName, addOn); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if !addOn.DeletionTimestamp.IsZero() {
		return c.explainRemoval(ctx, addOn)
	}
	entry := &addonv1beta1.ClusterManagementAddOn{}
	if err := c.client.Get(ctx, client.ObjectKey{Name: addOn.Name}, entry); apierrors.IsNotFound(err) {
		return ctrl.Result{}, nil // its ClusterManagementAddOn enqueues it
	} else if err != nil {
		return ctrl.Result{}, fmt.Errorf("get ClusterManagementAddOn %s: %w", addOn.Name, err)
	}
	if lookup.SelfManaged(entry) || meta.FindStatusCondition(addOn.Status.Conditions, fleet.ConditionConfigured) == nil {
		return ctrl.Result{}, nil // there is nothing to report before the configurations are known
	}
	works, err := lookup.Works(ctx, c.client, addOn)
	if err != nil {
		return ctrl.Result{}, err
	}
	before := addOn.DeepCopy()
	Record(addOn, works, c.clock.Now())
	changed, err := patch.Status(ctx, c.client, addOn, before)
	if apierrors.IsConflict(err) {
		return ctrl.Result{RequeueAfter: conflictRetry}, nil
	}
	if changed && err == nil {
		RecordEvents(c.recorder, addOn, before)
	}
	return ctrl.Result{}, client.IgnoreNotFound(err)
}
