package retry

import (
	"context"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/capstan-io/capstan/internal/machinery/repair"
)

// How long a reconcile waits after a conflict, which doubles, and how many in a row are no error.
const (
	firstAfterConflict = 20 * time.Millisecond
	manyConflicts      = 6
)

// Conflicts has a reconciler try again when other writers are in its way, without an error. If one has changed an object since it was read,
// that is shortly: the cache learns of it within a moment, and users need not know. Conflicts that do not end are an error as any other. If
// others keep undoing what it writes, that is when the next repair is due: the delays after errors would grow with each event until then.
func Conflicts(r reconcile.Reconciler) reconcile.Reconciler {
	inARow := workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](firstAfterConflict, last)
	return reconcile.Func(func(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
		result, err := r.Reconcile(ctx, req)
		until, disputed := repair.DisputedUntil(err)
		switch {
		case disputed:
			inARow.Forget(req)
			log.FromContext(ctx).Info("Something is not written again yet", "reason", err.Error())
			return reconcile.Result{RequeueAfter: Soonest(result.RequeueAfter, max(time.Until(until), time.Millisecond))}, nil
		case !IsConflict(err):
			inARow.Forget(req)
			return result, err
		case inARow.NumRequeues(req) >= manyConflicts:
			return result, err
		default:
			return reconcile.Result{RequeueAfter: inARow.When(req)}, nil
		}
	})
}

// IsConflict reports whether an error is a conflict and nothing else: of several that are joined, all are.
func IsConflict(err error) bool {
	switch wrapping := err.(type) { //nolint:errorlint // it goes through all that is wrapped itself
	case interface{ Unwrap() []error }:
		for _, one := range wrapping.Unwrap() {
			if !IsConflict(one) {
				return false
			}
		}
		return true
	case interface{ Unwrap() error }:
		if inner := wrapping.Unwrap(); inner != nil {
			return IsConflict(inner)
		}
	}
	return apierrors.IsConflict(err)
}
