// Package ttl deletes ManifestWorks some time after they are complete, if they request it.
package ttl

import (
	"context"
	"fmt"
	"math"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	workv1 "github.com/capstan-io/capstan/api/work/v1"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
	"github.com/capstan-io/capstan/internal/machinery/retry"
)

// workers is how many works are reconciled at once.
const workers = 5

// Options configure the controller.
type Options struct {
	// Clock is the source of time.
	Clock clock.PassiveClock
}

// Controller reconciles ManifestWorks with spec.deleteOption.ttlSecondsAfterFinished.
type Controller struct {
	client client.Client
	clock  clock.PassiveClock
}

// New returns a Controller that works through the client.
func New(c client.Client, o Options) *Controller {
	return &Controller{client: c, clock: o.Clock}
}

// Register adds the controller to the manager.
func Register(mgr ctrl.Manager, o Options) error {
	return ctrl.NewControllerManagedBy(mgr).Named("work-manifestwork-expire").
		For(&workv1.ManifestWork{}, builder.WithPredicates(predicate.NewPredicateFuncs(func(o client.Object) bool {
			work, ok := o.(*workv1.ManifestWork)
			if !ok {
				return false
			}
			_, ends := end(work)
			return ends
		}))).
		WithOptions(controller.Options{MaxConcurrentReconciles: workers, RateLimiter: retry.Limiter()}).
		Complete(retry.Conflicts(New(mgr.GetClient(), o)))
}

// Reconcile deletes the work when its time has come.
func (c *Controller) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	work := &workv1.ManifestWork{}
	if err := c.client.Get(ctx, req.NamespacedName, work); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	at, ends := end(work)
	if !ends {
		return ctrl.Result{}, nil
	}
	if left := at.Sub(c.clock.Now()); left > 0 {
		return ctrl.Result{RequeueAfter: left}, nil
	}
	// With the precondition, a work that is changed at the last moment, for example in its TTL, is reconciled again instead.
	unchanged := client.Preconditions{UID: &work.UID, ResourceVersion: &work.ResourceVersion}
	if err := c.client.Delete(ctx, work, unchanged); client.IgnoreNotFound(err) != nil {
		return ctrl.Result{}, fmt.Errorf("delete ManifestWork %s, which is complete since long enough: %w", req, err)
	}
	log.FromContext(ctx).Info("Deleted a ManifestWork at the end of its ttlSecondsAfterFinished", "work", req.String())
	return ctrl.Result{}, nil
}

// end returns when the work is to be deleted, if that is known. A work of a ManifestWorkReplicaSet is not: it would be created again.
func end(work *workv1.ManifestWork) (at time.Time, ends bool) {
	if !work.DeletionTimestamp.IsZero() || work.Labels[fleet.LabelManifestWorkReplicaSet] != "" ||
		work.Spec.DeleteOption == nil || work.Spec.DeleteOption.TTLSecondsAfterFinished == nil {
		return time.Time{}, false
	}
	complete := meta.FindStatusCondition(work.Status.Conditions, fleet.ConditionComplete)
	if complete == nil || complete.Status != metav1.ConditionTrue {
		return time.Time{}, false
	}
	const longest = int64(math.MaxInt64 / time.Second)
	ttl := time.Duration(min(*work.Spec.DeleteOption.TTLSecondsAfterFinished, longest)) * time.Second
	return complete.LastTransitionTime.Add(ttl), true
}
