package apply

import (
	"cmp"
	"context"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/capstan-io/capstan/internal/agent/work/conditions"
	"github.com/capstan-io/capstan/internal/machinery/manifest"
	"github.com/capstan-io/capstan/internal/machinery/repair"
)

// A write that brings an object back to what it was when the manifest had been applied is a repair. The first repairs of an object are
// made at once. From then on, others dispute the object: a repair waits until it is due, while the manifest stays applied, and until then
// the object is not reconciled.

// repairs makes the repairs of one object on behalf of one manifest.
type repairs struct {
	*applier
	object repair.Object
	// started is set if there was a repair in this pass. It may take several writes.
	started bool
}

// backoffError is that a repair of an object is not made yet.
type backoffError struct{ until time.Time }

func (e *backoffError) Error() string {
	return "the object was repaired too often; it is repaired again at " + e.until.String()
}

// resume goes on with a manifest that was applied under this generation of the work before.
func (a *applier) resume(t *task) {
	t.repairs = &repairs{applier: a, object: t.anyVersion()}
	t.applied, t.dispute = true, t.before.dispute
}

// inBackoff reports whether the object is in a known dispute and its next repair is not due, and when it is.
func (a *applier) inBackoff(t *task) (until time.Time, backingOff bool) {
	if t.dispute == nil {
		return time.Time{}, false
	}
	d, disputed := a.backoff.Dispute(t.repairs.object)
	return d.Due, disputed && a.clock.Now().Before(d.Due)
}

// backOff leaves the object as it is for a while.
func (a *applier) backOff(t *task, until time.Time) {
	t.backoffUntil, t.uid, t.revision, t.missingOwners = until, t.before.uid, t.before.revision, t.before.missingOwners
	t.presence = cmp.Or(t.presence, a.watchedPresence(t.object()), t.before.presence)
}

// followDispute decides when to reconcile the object again without an event, and forgets a dispute that is over.
func (a *applier) followDispute(t *task) {
	if !t.backoffUntil.IsZero() {
		t.requeueBy(t.backoffUntil)
	}
	if t.dispute == nil {
		return
	}
	if d, disputed := a.backoff.Dispute(t.repairs.object); disputed {
		t.requeueBy(d.Over)
	} else {
		t.dispute = nil
	}
}

func (o *manifestResult) requeueBy(at time.Time) {
	if o.requeueAt.IsZero() || at.Before(o.requeueAt) {
		o.requeueAt = at
	}
}

// repair makes a write. If that is a repair, it fails with a backoffError where the repair is not due. live is the object, nil if it
// does not exist, and plan returns what the write would make of it.
func (t *task) repair(ctx context.Context, live *unstructured.Unstructured,
	plan, write func() (*unstructured.Unstructured, error)) (*unstructured.Unstructured, error) {
	if live == nil && t.ended {
		return nil, errEnded
	}
	if t.repairs == nil || t.repairs.started {
		return write()
	}
	if needless, err := t.examine(ctx, live, plan); needless || err != nil {
		return live, err
	}
	undo, due := t.repairs.backoff.Take(t.repairs.object, live == nil)
	if undo == nil {
		return nil, &backoffError{until: due}
	}
	t.repairs.started = true
	repaired, err := write()
	if err != nil || live != nil && len(manifest.ChangedFields(live, repaired)) == 0 {
		t.repairs.started = false
		undo() // nothing was written, or no more than who owns which fields
		return repaired, err
	}
	repairCount.WithLabelValues(t.identity.Group, t.identity.Kind).Inc()
	return repaired, nil
}

// examine finds out what a dispute about the object is about, if there is one, and whether there is nothing to repair.
func (t *task) examine(ctx context.Context, live *unstructured.Unstructured,
	plan func() (*unstructured.Unstructured, error)) (needless bool, err error) {
	if live == nil {
		t.presence = conditions.Absent
	}
	d, disputed := t.repairs.backoff.Dispute(t.repairs.object)
	if !disputed {
		return false, nil
	}
	if live == nil {
		t.dispute = aboutDeletions(d.Deletions + 1)
		return false, nil
	}
	after, err := plan()
	if err != nil {
		return false, err
	}
	fields := manifest.ChangedFields(t.withoutIgnored(ctx, live), t.withoutIgnored(ctx, after))
	if len(fields) == 0 {
		return true, nil
	}
	t.dispute = t.repairs.aboutFields(t, live, fields)
	return false, nil
}

// planned is a plan of which the result is known.
func planned(object *unstructured.Unstructured) func() (*unstructured.Unstructured, error) {
	return func() (*unstructured.Unstructured, error) { return object, nil }
}
