// Package ttl deletes ManifestWorks some time after they are complete, if they request it.
package ttl

import (
	"context"
	"fmt"
	"math"
	"strings"
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
	"github.com/capstan-io/capstan/internal/machinery/patch"
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
			_, _, ends := finished(work)
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
	complete, ttl, ends := finished(work)
	if !ends {
		return ctrl.Result{}, nil
	}
	now := c.clock.Now()
	seen, known := seenComplete(work, complete, now)
	if !known {
		seen = now
	}
	if left := ttl - now.Sub(seen); left > 0 {
		if err := c.note(ctx, work, complete, seen); err != nil {
			return ctrl.Result{}, err
		}
		return ctrl.Result{RequeueAfter: min(left, retry.LongestTimer)}, nil
	}
	// With the precondition, a work that is changed at the last moment, for example in its TTL, is reconciled again instead.
	unchanged := client.Preconditions{UID: &work.UID, ResourceVersion: &work.ResourceVersion}
	if err := c.client.Delete(ctx, work, unchanged); client.IgnoreNotFound(err) != nil {
		return ctrl.Result{}, fmt.Errorf("delete ManifestWork %s, which is complete since long enough: %w", req, err)
	}
	log.FromContext(ctx).Info("Deleted a ManifestWork at the end of its ttlSecondsAfterFinished", "work", req.String())
	return ctrl.Result{}, nil
}

// finished returns the condition Complete of a work that is to be deleted some time after the hub has seen that, and after which time. A
// work of a ManifestWorkReplicaSet is not: it would be created again.
func finished(work *workv1.ManifestWork) (complete *metav1.Condition, ttl time.Duration, ends bool) {
	if !work.DeletionTimestamp.IsZero() || work.Labels[fleet.LabelManifestWorkReplicaSet] != "" ||
		work.Spec.DeleteOption == nil || work.Spec.DeleteOption.TTLSecondsAfterFinished == nil {
		return nil, 0, false
	}
	complete = meta.FindStatusCondition(work.Status.Conditions, fleet.ConditionComplete)
	if complete == nil || complete.Status != metav1.ConditionTrue {
		return nil, 0, false
	}
	const longest = int64(math.MaxInt64 / time.Second)
	return complete, time.Duration(min(*work.Spec.DeleteOption.TTLSecondsAfterFinished, longest)) * time.Second, true
}

// seenComplete returns when the hub saw that the work became complete, if that is noted on it. The clock of the cluster only tells one time
// that it became complete from another: it may be wrong.
func seenComplete(work *workv1.ManifestWork, complete *metav1.Condition, now time.Time) (at time.Time, known bool) {
	transition, seen, _ := strings.Cut(work.Annotations[fleet.AnnotationCompleteSeen], "/")
	at, err := time.Parse(time.RFC3339Nano, seen)
	return at, err == nil && !at.After(now) && transition == reported(complete)
}

// note writes on the work when the hub saw that it became complete, unless that is there: later reports do not move it.
func (c *Controller) note(ctx context.Context, work *workv1.ManifestWork, complete *metav1.Condition, seen time.Time) error {
	noted := work.DeepCopy()
	metav1.SetMetaDataAnnotation(&noted.ObjectMeta, fleet.AnnotationCompleteSeen,
		reported(complete)+"/"+seen.UTC().Format(time.RFC3339Nano))
	_, err := patch.Object(ctx, c.client, noted, work)
	return err
}

func reported(complete *metav1.Condition) string {
	return complete.LastTransitionTime.UTC().Format(time.RFC3339)
}
