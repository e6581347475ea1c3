package apply

import (
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	workv1 "github.com/capstan-io/capstan/api/work/v1"
	"github.com/capstan-io/capstan/internal/agent/work/conditions"
	"github.com/capstan-io/capstan/internal/agent/work/tracker"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
	"github.com/capstan-io/capstan/internal/machinery/manifest"
	"github.com/capstan-io/capstan/internal/machinery/manifest/objecthealth"
)

// freeze leaves the manifest as it is if it is complete, and reports whether it is.
func (o *manifestResult) freeze(work *workv1.ManifestWork, before *manifestResult) bool {
	status := conditions.OfManifest(work, o.resourceMeta())
	if status == nil || !meta.IsStatusConditionTrue(status.Conditions, fleet.ConditionComplete) {
		return false
	}
	o.freezeAs(status, before)
	return true
}

// freezeAs leaves the manifest as it is, and what the status of the work says of it; status and before may be nil.
func (o *manifestResult) freezeAs(status *workv1.ManifestCondition, before *manifestResult) {
	o.frozen = true
	if before != nil {
		o.uid, o.revision, o.written = before.uid, before.revision, before.written
	}
	if status == nil {
		return
	}
	switch available := meta.FindStatusCondition(status.Conditions, fleet.ConditionAvailable); {
	case available != nil && available.Status == metav1.ConditionTrue:
		o.presence = conditions.Present
	case available != nil && available.Status == metav1.ConditionFalse:
		o.presence = conditions.Absent
	}
}

// observe registers what is to be reported of the objects with the observer, and drops earlier queries.
func (c *Controller) observe(owner string, work *workv1.ManifestWork, last *workResult, results []manifestResult,
	live []*unstructured.Unstructured) {
	observed := make(map[tracker.Object]bool, len(results))
	for i := range results {
		o := &results[i]
		if !o.resolved || o.frozen {
			continue
		}
		config := manifest.ConfigFor(work.Spec.ManifestConfigs, o.resource().ResourceIdentifier)
		o.query = conditions.Query{
			FeedbackRules: config.FeedbackRules, ConditionRules: config.ConditionRules, Health: objecthealth.Known(o.identity.GroupKind()),
		}
		if !o.query.IsEmpty() && !o.withheld {
			observed[o.object()] = true
			c.Observer.Observe(owner, o.object(), o.query, live[i])
		}
	}
	if last == nil {
		return
	}
	for i := range last.results {
		if o := &last.results[i]; o.resolved && !observed[o.object()] {
			c.Observer.Forget(owner, o.object())
		}
	}
}
