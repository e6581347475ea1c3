package apply

import (
	"time"

	"k8s.io/apimachinery/pkg/api/equality"

	workv1 "github.com/capstan-io/capstan/api/work/v1"
	"github.com/capstan-io/capstan/internal/agent/work/appliedmanifestwork"
	"github.com/capstan-io/capstan/internal/agent/work/conditions"
)

// requeueAfter is when to reconcile the work again because of changes without an event; 0 is never.
func (c *Controller) requeueAfter(results []manifestResult, amw *workv1.AppliedManifestWork) time.Duration {
	again := c.untilRequeue(results)
	if !c.isWatched(results, amw) && (again == 0 || again > unwatched) {
		return unwatched
	}
	return again
}

// untilRequeue is how long the results of a pass count without an event: until rights of the executor are to be checked again, a repair is
// due, or a dispute is over. 0 is without end.
func (c *Controller) untilRequeue(results []manifestResult) time.Duration {
	var first time.Time
	for i := range results {
		if at := results[i].requeueAt; results[i].err == nil && !at.IsZero() && (first.IsZero() || at.Before(first)) {
			first = at
		}
	}
	if first.IsZero() {
		return 0
	}
	return max(first.Sub(c.Clock.Now()), time.Nanosecond)
}

// isWatched reports whether there are events for all objects of the work.
func (c *Controller) isWatched(results []manifestResult, amw *workv1.AppliedManifestWork) bool {
	for _, o := range results {
		if o.err != nil || o.frozen {
			continue
		}
		if _, known := c.Applied.Tracked.Revision(o.object()); !known {
			return false
		}
	}
	for _, r := range amw.Status.AppliedResources { // some may be being deleted
		if _, known := c.Applied.Tracked.Revision(appliedmanifestwork.Object(r)); !known {
			return false
		}
	}
	return true
}

// isUpToDate reports whether the last pass over this very work went well, and nothing has changed since.
func (c *Controller) isUpToDate(last *workResult, work *workv1.ManifestWork, amw *workv1.AppliedManifestWork) bool {
	if !last.isOf(work, amw.UID) {
		return false
	}
	now := c.Clock.Now()
	for i := range last.results {
		if !c.applier.isUpToDate(&last.results[i], now) {
			return false
		}
	}
	owned, obsolete := inventory(amw.Status.AppliedResources, last.results)
	return len(obsolete) == 0 && equality.Semantic.DeepEqual(appliedmanifestwork.Sorted(owned), amw.Status.AppliedResources) &&
		!c.updateStatus(work.DeepCopy(), last.results)
}

// isUpToDate reports whether there is nothing to do about a manifest. Others may change an object as they like while its repair is held
// back.
func (a *applier) isUpToDate(o *manifestResult, now time.Time) bool {
	switch {
	case o.err != nil || !o.requeueAt.IsZero() && !now.Before(o.requeueAt):
		return false
	case o.frozen:
		return true
	case !o.backoffUntil.IsZero():
		presence := a.watchedPresence(o.object())
		return presence == conditions.Unknown || presence == o.presence
	default:
		return a.unchanged(o)
	}
}
