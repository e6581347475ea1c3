package apply

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	workv1 "github.com/capstan-io/capstan/api/work/v1"
	"github.com/capstan-io/capstan/internal/agent/work/appliedmanifestwork"
	"github.com/capstan-io/capstan/internal/agent/work/conditions"
	"github.com/capstan-io/capstan/internal/agent/work/tracker"
)

type workQueue = workqueue.TypedRateLimitingInterface[reconcile.Request]

func (c *Controller) requestFor(work string) reconcile.Request {
	return reconcile.Request{NamespacedName: types.NamespacedName{Namespace: c.Namespace, Name: work}}
}

// siblingInterval is how often changes of its other objects end the backoff of a work that fails.
const siblingInterval = 10 * time.Second

// objectChanged requeues the work of an object. A change of an object that a manifest fails with, or for the lack of, ends the backoff of
// the work: what made it fail may be over. Objects of works that are being deleted are for package deletion.
func (c *Controller) objectChanged(queue workQueue, owner string, object tracker.Object) {
	work, ours := c.names.WorkOf(owner)
	switch {
	case !ours || c.deletions.has(work):
	case c.lastResults.get(work).failsWith(object):
		queue.Forget(c.requestFor(work))
		queue.Add(c.requestFor(work))
	default:
		c.siblingChanged(queue, work)
	}
}

// readingChanged requeues a work to report what was read of its objects. Its backoff goes on: what is read follows a change of an object.
func (c *Controller) readingChanged(queue workQueue, owner string) {
	if work, ours := c.names.WorkOf(owner); ours && !c.deletions.has(work) {
		queue.Add(c.requestFor(work))
	}
}

// siblingChanged requeues a work of which another object has changed than one that it fails with. That may be what made it fail, such as
// the Deployment of a webhook; but it may also change all the time, and each pass that fails makes the backoff longer.
func (c *Controller) siblingChanged(queue workQueue, work string) {
	if c.lastResults.get(work).fails() && c.siblings.isDue(work, c.Clock.Now()) {
		queue.Forget(c.requestFor(work))
	}
	queue.Add(c.requestFor(work))
}

// siblings are when changes of other objects have ended the backoff of works that fail.
type siblings struct {
	mu    sync.Mutex
	ended map[string]time.Time
}

// isDue reports whether a change ends the backoff of a work, and remembers it if it does.
func (s *siblings) isDue(work string, now time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if last, found := s.ended[work]; found && now.Sub(last) < siblingInterval {
		return false
	}
	s.ended[work] = now
	return true
}

func (s *siblings) forget(work string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.ended, work)
}

// delayChanged requeues a work that is being deleted.
func (c *Controller) delayChanged(queue workQueue, owner string) {
	if work, ours := c.names.WorkOf(owner); ours && c.deletions.has(work) {
		queue.Forget(c.requestFor(work)) // what made it fail may be over in a moment
		queue.Add(c.requestFor(work))
	}
}

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
