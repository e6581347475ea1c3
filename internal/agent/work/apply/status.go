package apply

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	workv1 "github.com/capstan-io/capstan/api/work/v1"
	"github.com/capstan-io/capstan/internal/agent/work/conditions"
)

// report writes the results to the work's status, in one request, if they change it, and records events about what is new. A work is never
// applied again once its status says that it is complete: that is not written before it is recorded what the work owns, and that it is
// complete. recordErr is why something could not be recorded, or not be pruned.
func (c *Controller) report(ctx context.Context, amw *workv1.AppliedManifestWork, work *workv1.ManifestWork, results []manifestResult,
	recordErr error) error {
	changed := transitionsOf(work, results)
	if c.updateStatus(work, results, conditions.Failures(recordErr)...) && (recordErr == nil || !conditions.IsComplete(work)) {
		if err := c.recordCompletion(ctx, amw, work); err != nil {
			return err
		}
		if err := c.writeStatus(ctx, work); err != nil {
			return err
		}
	}
	c.recordEvents(work, changed, len(results))
	return nil
}

// reportDeleting says that the work is being deleted, and what delays that, if anything does.
func (c *Controller) reportDeleting(ctx context.Context, work *workv1.ManifestWork, delay *conditions.Delay) error {
	if !conditions.SetDeleting(work, delay, c.Clock.Now()) {
		return nil
	}
	return c.writeStatus(ctx, work)
}

// writeStatus sends the status alone: the API server reads nothing else here, and the manifests may be a megabyte.
func (c *Controller) writeStatus(ctx context.Context, work *workv1.ManifestWork) error {
	status := &workv1.ManifestWork{Status: work.Status}
	status.Namespace, status.Name, status.UID, status.ResourceVersion = work.Namespace, work.Name, work.UID, work.ResourceVersion
	if err := c.backlog.observe(c.hub.Status().Update(ctx, status)); err != nil {
		if apierrors.IsNotFound(err) {
			return nil
		}
		return fmt.Errorf("update the status of ManifestWork %s: %w", work.Name, err)
	}
	work.ResourceVersion, work.Status = status.ResourceVersion, status.Status
	return nil
}

// updateStatus changes the status of the work in memory to what the results say, and other failures, and reports whether that changed
// anything.
func (c *Controller) updateStatus(work *workv1.ManifestWork, results []manifestResult, failures ...error) bool {
	owner := c.names.Of(work.Name)
	reported := make([]conditions.Result, 0, len(results))
	for i := range results {
		reported = append(reported, c.result(owner, &results[i]))
	}
	return conditions.Update(work, reported, c.Clock.Now(), failures...)
}

// result is what the status of the work is to say of a manifest, with what has been read of its object by now.
func (c *Controller) result(owner string, o *manifestResult) conditions.Result {
	r := conditions.Result{
		Manifest: o.resourceMeta(), Err: o.err, Presence: o.presence, MissingOwners: o.missingOwners, Dispute: o.dispute, Frozen: o.frozen,
		Query: o.query,
	}
	switch {
	case o.withheld && !o.query.IsEmpty():
		r.Reading = conditions.Withheld(o.query)
	case o.resolved:
		r.Reading = c.Observer.Reading(owner, o.object())
	}
	return r
}
