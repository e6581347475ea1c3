package apply

import (
	"time"

	"k8s.io/apimachinery/pkg/api/equality"

	workv1 "github.com/capstan-io/capstan/api/work/v1"
	"github.com/capstan-io/capstan/internal/agent/work/appliedmanifestwork"
	"github.com/capstan-io/capstan/internal/agent/work/conditions"
)

// conclude is when to reconcile the work again because of changes without an event; 0 is never.
func (c *Controller) conclude(outcomes []outcome, amw *workv1.AppliedManifestWork) time.Duration {
	again := c.untilRecheck(outcomes)
	if !c.isWatched(outcomes, amw) && (again == 0 || again > unwatched) {
		return unwatched
	}
	return again
}

// untilRecheck is how long the outcomes of a pass count without an event: until rights of the executor are to be checked again, a repair is
// due, or a dispute is over. 0 is without end.
func (c *Controller) untilRecheck(outcomes []outcome) time.Duration {
	var first time.Time
	for i := range outcomes {
		if at := outcomes[i].recheck; outcomes[i].err == nil && !at.IsZero() && (first.IsZero() || at.Before(first)) {
			first = at
		}
	}
	if first.IsZero() {
		return 0
	}
	return max(first.Sub(c.Clock.Now()), time.Nanosecond)
}

// isWatched tells whether events tell of all objects of the work.
func (c *Controller) isWatched(outcomes []outcome, amw *workv1.AppliedManifestWork) bool {
	for _, o := range outcomes {
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

// settled tells whether the last pass over this very work went well, and nothing has changed since.
func (c *Controller) settled(last *pass, work *workv1.ManifestWork, amw *workv1.AppliedManifestWork) bool {
	if !last.isOf(work, amw.UID) {
		return false
	}
	now := c.Clock.Now()
	for i := range last.outcomes {
		if !c.applier.isSettled(&last.outcomes[i], now) {
			return false
		}
	}
	owned, obsolete := inventory(amw.Status.AppliedResources, last.outcomes)
	return len(obsolete) == 0 && equality.Semantic.DeepEqual(appliedmanifestwork.Sorted(owned), amw.Status.AppliedResources) &&
		!c.updateStatus(work.DeepCopy(), last.outcomes)
}

// isSettled tells whether there is nothing to do about a manifest. Others may change an object as they like while its repair is held back.
func (a *applier) isSettled(o *outcome, now time.Time) bool {
	switch {
	case o.err != nil || !o.recheck.IsZero() && !now.Before(o.recheck):
		return false
	case o.frozen:
		return true
	case !o.held.IsZero():
		presence := a.watchedPresence(o.object())
		return presence == conditions.Unknown || presence == o.presence
	default:
		return a.unchanged(o)
	}
}
