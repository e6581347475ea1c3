package apply

import (
	"time"

	"k8s.io/apimachinery/pkg/api/equality"

	workv1 "github.com/capstan-io/capstan/api/work/v1"
	"github.com/capstan-io/capstan/internal/agent/work/applied"
)

// conclude is when to reconcile the work again because of changes without an event; 0 is never.
func (c *Controller) conclude(outcomes []outcome, amw *workv1.AppliedManifestWork) time.Duration {
	again := c.untilRecheck(outcomes)
	if !c.isWatched(outcomes, amw) && (again == 0 || again > unwatched) {
		return unwatched
	}
	return again
}

// untilRecheck is how long the rights of the executor are known to be what they were in the pass; 0 is without end.
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
		if _, known := c.Applied.Tracked.Revision(applied.Object(r)); !known {
			return false
		}
	}
	return true
}

// settled tells whether the last pass over this very work went well, and nothing has changed since.
func (c *Controller) settled(last *pass, work *workv1.ManifestWork, amw *workv1.AppliedManifestWork) bool {
	if last == nil || last.work != work.UID || last.generation != work.Generation || last.owner != amw.UID {
		return false
	}
	now := c.Clock.Now()
	for _, o := range last.outcomes {
		if o.err != nil || !o.frozen && !c.applier.unchanged(&o) || !o.recheck.IsZero() && !now.Before(o.recheck) {
			return false
		}
	}
	owned, obsolete := inventory(amw.Status.AppliedResources, last.outcomes)
	return len(obsolete) == 0 && equality.Semantic.DeepEqual(applied.Sorted(owned), amw.Status.AppliedResources) &&
		!c.updateStatus(work.DeepCopy(), last.outcomes)
}
