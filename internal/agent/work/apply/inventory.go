package apply

import (
	"cmp"
	"context"
	"slices"

	workv1 "github.com/capstan-io/capstan/api/work/v1"
	"github.com/capstan-io/capstan/internal/agent/work/appliedmanifestwork"
	"github.com/capstan-io/capstan/internal/agent/work/conditions"
	"github.com/capstan-io/capstan/internal/agent/work/tracker"
)

// prune deletes what the work owned before and owns no more, and ends the tracking of what it names no more.
func (c *Controller) prune(ctx context.Context, amw *workv1.AppliedManifestWork, last *workResult, results []manifestResult) error {
	owned, obsolete := inventory(amw.Status.AppliedResources, results)
	err := c.Applied.Prune(ctx, c.managed, amw, owned, obsolete)
	c.untrack(last, results, amw)
	return err
}

// untrack ends the tracking of what the work no longer names and never owned, such as what could not be applied. What it
// owned is tracked until it has gone.
func (c *Controller) untrack(last *workResult, results []manifestResult, amw *workv1.AppliedManifestWork) {
	if last == nil {
		return
	}
	needed := make(map[tracker.Object]bool, len(results)+len(amw.Status.AppliedResources))
	for i := range results {
		for _, object := range results[i].tracked() {
			needed[object] = true
		}
	}
	for _, r := range amw.Status.AppliedResources {
		needed[appliedmanifestwork.Object(r)] = true
	}
	for i := range last.results {
		for _, object := range last.results[i].tracked() {
			if !needed[object] {
				c.Applied.Tracked.Forget(amw.Name, object)
			}
		}
	}
}

// inventory is what a work owns after a pass, and what it no longer owns of what it did before. What could not be applied
// this time stays owned if it was. A change of version alone is none, and neither is a change of the group or resource by which a manifest
// names the same object.
func inventory(before []workv1.AppliedManifestResourceMeta, results []manifestResult) (
	owned, obsolete []workv1.AppliedManifestResourceMeta) {
	recorded := make(map[workv1.ResourceIdentifier]workv1.AppliedManifestResourceMeta, len(before))
	for _, r := range before {
		recorded[r.ResourceIdentifier] = r
	}
	named := make(map[workv1.ResourceIdentifier]bool, len(results))
	for i := range results {
		o := &results[i]
		if !o.resolved {
			continue
		}
		r := o.resource()
		if named[r.ResourceIdentifier] {
			continue
		}
		named[r.ResourceIdentifier] = true
		if !o.owned && !o.frozen && o.err == nil {
			continue // it is not owned any more
		}
		if old, ok := recorded[r.ResourceIdentifier]; ok && o.uid == "" {
			r = old
		}
		_, wasOwned := recorded[r.ResourceIdentifier]
		if r.UID != "" && (o.owned || wasOwned) {
			owned = append(owned, r)
		}
	}
	for _, r := range before {
		switch {
		case named[r.ResourceIdentifier] || isAppliedOtherwise(results, r):
		case mayStandFor(results, r) || mayBeNamedOtherwise(results, recorded, r):
			owned = append(owned, r) // nothing is deleted on a guess
		default:
			obsolete = append(obsolete, r)
		}
	}
	return owned, obsolete
}

// mayStandFor reports whether a manifest that cannot be read, or whose kind the cluster does not know now, may be about the
// resource. A namespace in the manifest of a resource without one does not count: that the kind has none is not known then.
func mayStandFor(results []manifestResult, r workv1.AppliedManifestResourceMeta) bool {
	return slices.ContainsFunc(results, func(o manifestResult) bool {
		if o.resolved {
			return false
		}
		return o.identity.Name == "" || o.identity.Group == r.Group && o.identity.Name == r.Name &&
			(r.Namespace == "" || o.identity.Namespace == r.Namespace)
	})
}

// isAppliedOtherwise reports whether a manifest was applied to the object of the record by another group or resource: an API server may
// show one object as several, such as a Namespace and a Project of OpenShift.
func isAppliedOtherwise(results []manifestResult, r workv1.AppliedManifestResourceMeta) bool {
	return slices.ContainsFunc(results, func(o manifestResult) bool { return o.err == nil && o.uid != "" && string(o.uid) == r.UID })
}

// mayBeNamedOtherwise reports whether a manifest that failed names the object of the record by another group or resource, or may do so,
// as it is not known which object it names.
func mayBeNamedOtherwise(results []manifestResult, recorded map[workv1.ResourceIdentifier]workv1.AppliedManifestResourceMeta,
	r workv1.AppliedManifestResourceMeta) bool {
	return slices.ContainsFunc(results, func(o manifestResult) bool {
		if !o.resolved || o.err == nil {
			return false
		}
		named := o.resource()
		if uid := cmp.Or(named.UID, string(o.found), recorded[named.ResourceIdentifier].UID); uid != "" {
			return uid == r.UID
		}
		return o.presence != conditions.Absent && named.Group != r.Group && named.Namespace == r.Namespace && named.Name == r.Name
	})
}
