package deletion

import (
	"context"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	workv1 "github.com/capstan-io/capstan/api/work/v1"
	"github.com/capstan-io/capstan/internal/agent/work/appliedmanifestwork"
	"github.com/capstan-io/capstan/internal/agent/work/predecessor"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
	"github.com/capstan-io/capstan/internal/machinery/retry"
)

// never is a grace period that does not end: no AppliedManifestWork is evicted.
const never = 100 * 365 * 24 * time.Hour

// evictor deletes AppliedManifestWorks without a ManifestWork: of a hub that the agent has left, of a cluster that the hub does not
// know any more, or of a work that was removed from the hub without its finalizer, as when the hub was restored from a backup.
type evictor struct {
	Options
	agent   appliedmanifestwork.Agent
	hub     client.Reader
	live    client.Reader
	managed client.Client
}

// newEvictor returns an evictor that reads works from the cache hub, and from live, without a cache, before it misses one.
func newEvictor(hub, live client.Reader, managed client.Client, o Options) *evictor {
	agent := appliedmanifestwork.Agent{ID: o.AgentID, HubHash: o.HubHash, Cluster: o.Namespace}
	return &evictor{Options: o, agent: agent, hub: hub, live: live, managed: managed}
}

func registerEvictor(mgr ctrl.Manager, o Options) error {
	e := newEvictor(o.Hub.GetClient(), o.Hub.GetAPIReader(), mgr.GetClient(), o)
	ofOwn := predicate.NewPredicateFuncs(func(obj client.Object) bool {
		amw, ok := obj.(*workv1.AppliedManifestWork)
		return ok && e.concerns(amw)
	})
	// It counts whether the work exists, not what is in it.
	createdOrDeleted := predicate.TypedFuncs[*workv1.ManifestWork]{}
	createdOrDeleted.UpdateFunc = func(u event.TypedUpdateEvent[*workv1.ManifestWork]) bool { return u.ObjectOld.UID != u.ObjectNew.UID }
	toApplied := handler.TypedEnqueueRequestsFromMapFunc(func(_ context.Context, work *workv1.ManifestWork) []reconcile.Request {
		return []reconcile.Request{{NamespacedName: types.NamespacedName{Name: fleet.AppliedManifestWorkName(o.HubHash, work.Name)}}}
	})
	return ctrl.NewControllerManagedBy(mgr).Named("work-appliedmanifestwork-evict").
		For(&workv1.AppliedManifestWork{}, builder.WithPredicates(ofOwn)).
		WatchesRawSource(source.Kind(o.Hub.GetCache(), &workv1.ManifestWork{}, toApplied, createdOrDeleted)).
		WithOptions(controller.Options{
			SkipNameValidation: ptr.To(true),
			RateLimiter:        retry.Limiter(),
		}).
		Complete(e)
}

// concerns reports whether the AppliedManifestWork may be this agent's to evict: the agent made it, for any hub, or it is of
// the same hub.
func (e *evictor) concerns(amw *workv1.AppliedManifestWork) bool {
	return e.agent.Made(amw) || amw.Spec.HubHash == e.HubHash
}

// Reconcile starts an eviction, ends it, or calls it off.
func (e *evictor) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	amw := &workv1.AppliedManifestWork{}
	if err := e.managed.Get(ctx, req.NamespacedName, amw); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if !amw.DeletionTimestamp.IsZero() || !e.concerns(amw) {
		return ctrl.Result{}, nil
	}
	if other := e.agent.OtherCluster(amw); other != "" { // an agent of that one may run on the same managed cluster
		if left, _ := e.Clusters.Left(ctx, other); !left { // nor as long as that is not known
			return ctrl.Result{RequeueAfter: max(predecessor.PollInterval, e.GracePeriod)}, nil
		}
	}
	onHub, err := e.isOnHub(ctx, amw)
	switch {
	case err != nil:
		return ctrl.Result{}, err
	case onHub || e.GracePeriod >= never:
		return ctrl.Result{}, e.mark(ctx, amw, nil)
	}
	return e.miss(ctx, amw)
}

// miss evicts what a work that the cache lacks has applied, if the hub says that the work is gone.
func (e *evictor) miss(ctx context.Context, amw *workv1.AppliedManifestWork) (ctrl.Result, error) {
	answered, itself := e.isAnswered(amw)
	if !answered {
		return ctrl.Result{RequeueAfter: predecessor.PollInterval}, nil // it is asked again; there is an event if it has the work
	}
	back, err := e.isBack(ctx, amw) // after the answer, of which the cache may yet lack a part
	switch {
	case err != nil:
		return ctrl.Result{}, err
	case back:
		return ctrl.Result{RequeueAfter: predecessor.PollInterval}, nil // the event comes sooner
	}
	// A work of this hub that comes back is another one then, to be applied whatever its UID is. After a silence, it may be the same.
	if itself && amw.Spec.HubHash == e.HubHash {
		if err := appliedmanifestwork.WriteCompletion(ctx, e.managed, amw, nil); err != nil {
			return ctrl.Result{}, err
		}
	}
	if amw.Status.EvictionStartTime == nil {
		now := metav1.NewTime(e.Clock.Now())
		if err := e.mark(ctx, amw, &now); err != nil {
			return ctrl.Result{}, err
		}
		log.FromContext(ctx).Info("The ManifestWork is missing on the hub; what it applied is deleted if it does not come back", "after",
			e.GracePeriod.String())
	}
	if left := amw.Status.EvictionStartTime.Add(e.GracePeriod).Sub(e.Clock.Now()); left > 0 {
		return ctrl.Result{RequeueAfter: left}, nil
	}
	return ctrl.Result{}, e.end(ctx, amw)
}

// end deletes the AppliedManifestWork.
func (e *evictor) end(ctx context.Context, amw *workv1.AppliedManifestWork) error {
	err := e.managed.Delete(ctx, amw, client.Preconditions{UID: &amw.UID, ResourceVersion: &amw.ResourceVersion})
	return client.IgnoreNotFound(err)
}

// isOnHub reports whether the work is on the hub. It reads the cache, which keeps works while the hub does not answer.
func (e *evictor) isOnHub(ctx context.Context, amw *workv1.AppliedManifestWork) (bool, error) {
	if amw.Spec.HubHash != e.HubHash {
		return false, nil
	}
	work := types.NamespacedName{Namespace: e.Namespace, Name: amw.Spec.ManifestWorkName}
	err := e.hub.Get(ctx, work, &workv1.ManifestWork{})
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("look for ManifestWork %s: %w", work, err)
	}
	return true, nil
}

// isAnswered reports whether the source of the work counts as having said which works it has, so that this one is not there if it is
// missing, and whether it has said so itself. For a source that is silent, this takes a grace period.
func (e *evictor) isAnswered(amw *workv1.AppliedManifestWork) (counts, itself bool) {
	source := amw.Annotations[fleet.AnnotationWorkSource]
	if source == "" || e.HasAnswered == nil || amw.Spec.HubHash != e.HubHash {
		return true, true
	}
	return e.HasAnswered(source, e.GracePeriod)
}

// isBack reports whether the hub has a work that the cache lacks. The cache is behind while the hub does not answer, while the works of a
// source are on their way, and when the agent was stopped for a while: what it lacked then may have come back. Where the agent may not read
// the work, the cache has to do.
func (e *evictor) isBack(ctx context.Context, amw *workv1.AppliedManifestWork) (bool, error) {
	if amw.Spec.HubHash != e.HubHash {
		return false, nil
	}
	work := types.NamespacedName{Namespace: e.Namespace, Name: amw.Spec.ManifestWorkName}
	err := e.live.Get(ctx, work, &workv1.ManifestWork{})
	missing := apierrors.IsNotFound(err) || apierrors.IsForbidden(err)
	if missing && !apierrors.IsUnexpectedServerError(err) { // a proxy answers so
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("ask the hub for ManifestWork %s, which the cache lacks, before what it applied is evicted: %w", work, err)
	}
	return true, nil
}

func (e *evictor) mark(ctx context.Context, amw *workv1.AppliedManifestWork, since *metav1.Time) error {
	if since.Equal(amw.Status.EvictionStartTime) {
		return nil
	}
	amw.Status.EvictionStartTime = since
	return appliedmanifestwork.WriteStatus(ctx, e.managed, amw)
}
