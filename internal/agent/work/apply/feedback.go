package apply

import (
	"slices"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"

	workv1 "github.com/capstan-io/capstan/api/work/v1"
	"github.com/capstan-io/capstan/internal/agent/work/observe"
	"github.com/capstan-io/capstan/internal/agent/work/tracker"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
	"github.com/capstan-io/capstan/internal/machinery/manifest"
	"github.com/capstan-io/capstan/internal/machinery/manifest/conditions"
	"github.com/capstan-io/capstan/internal/machinery/manifest/objecthealth"
)

// isComplete tells a work that is not applied again, whatever becomes of it.
func isComplete(work *workv1.ManifestWork) bool {
	return meta.IsStatusConditionTrue(work.Status.Conditions, fleet.ConditionComplete)
}

// freeze leaves the manifest as it is if it is complete, and tells whether it is.
func (o *outcome) freeze(work *workv1.ManifestWork, before *outcome) bool {
	status := findStatus(work.Status.ResourceStatus.Manifests, o.resourceMeta())
	if status == nil || !meta.IsStatusConditionTrue(status.Conditions, fleet.ConditionComplete) {
		return false
	}
	o.frozen = true
	if before != nil {
		o.uid, o.revision, o.manifest = before.uid, before.revision, before.manifest
	}
	switch available := meta.FindStatusCondition(status.Conditions, fleet.ConditionAvailable); {
	case available != nil && available.Status == metav1.ConditionTrue:
		o.presence = present
	case available != nil && available.Status == metav1.ConditionFalse:
		o.presence = absent
	}
	return true
}

// ask finds out what the hub is to be told of the objects, and drops what it is no longer to be told.
func (c *Controller) ask(owner string, work *workv1.ManifestWork, last *pass, outcomes []outcome) {
	asked := make(map[tracker.Object]bool, len(outcomes))
	for i := range outcomes {
		o := &outcomes[i]
		live := o.live
		o.live = nil
		if !o.resolved || o.frozen {
			continue
		}
		config := manifest.ConfigFor(work.Spec.ManifestConfigs, o.resource().ResourceIdentifier)
		o.question = observe.Question{
			FeedbackRules: config.FeedbackRules, ConditionRules: config.ConditionRules, Health: objecthealth.Known(o.identity.GroupKind()),
		}
		if !o.question.IsEmpty() && !o.withheld {
			asked[o.object()] = true
			c.observed.Ask(owner, o.object(), o.question, live)
		}
	}
	if last == nil {
		return
	}
	for i := range last.outcomes {
		if o := &last.outcomes[i]; o.resolved && !asked[o.object()] {
			c.observed.Forget(owner, o.object())
		}
	}
}

// reportReading adds what is known of the state of the object to the status of its manifest.
func (c *Controller) reportReading(work *workv1.ManifestWork, o *outcome, status *workv1.ManifestCondition) {
	if o.frozen {
		for i := range status.Conditions {
			status.Conditions[i].ObservedGeneration = work.Generation
		}
		return
	}
	var reading *observe.Reading
	switch {
	case o.withheld && !o.question.IsEmpty():
		reading = observe.Withheld(o.question)
	case o.resolved:
		reading = c.observed.Reading(fleet.AppliedManifestWorkName(c.HubHash, work.Name), o.object())
	}
	if reading == nil {
		c.reportPending(work, o, status)
		return
	}
	c.setDerived(work, status, reading.Conditions)
	set := c.setCondition
	if !equality.Semantic.DeepEqual(status.StatusFeedbacks.Values, reading.Values) {
		set = c.beginCondition // its time is that of the values
	}
	status.StatusFeedbacks.Values = reading.Values
	set(&status.Conditions, feedbackCondition(work, o.question, reading))
}

// reportPending is about an object that has not been read, or need not be. What was found under this generation stays; it may
// be from before a restart of the agent.
func (c *Controller) reportPending(work *workv1.ManifestWork, o *outcome, status *workv1.ManifestCondition) {
	keep := slices.DeleteFunc(slices.Clone(status.Conditions), func(cond metav1.Condition) bool {
		return o.question.IsEmpty() || !conditions.IsDerived(cond) || cond.ObservedGeneration != work.Generation
	})
	for _, cond := range observe.Pending(o.question).Conditions {
		if meta.FindStatusCondition(keep, cond.Type) == nil {
			keep = append(keep, cond)
		}
	}
	c.setDerived(work, status, keep)
	if len(o.question.FeedbackRules) == 0 {
		status.StatusFeedbacks.Values = nil
		nothing := &observe.Reading{}
		if !o.resolved && mayBeAsked(work, o) {
			nothing.Failure = "the cluster does not tell which resource the manifest is about"
		}
		c.setCondition(&status.Conditions, feedbackCondition(work, o.question, nothing))
	}
}

// mayBeAsked tells whether feedback rules may be about a manifest of which the resource is not known.
func mayBeAsked(work *workv1.ManifestWork, o *outcome) bool {
	return slices.ContainsFunc(work.Spec.ManifestConfigs, func(c workv1.ManifestConfigOption) bool {
		guess := workv1.ResourceIdentifier{
			Group: o.identity.Group, Resource: c.ResourceIdentifier.Resource, Namespace: o.identity.Namespace, Name: o.identity.Name,
		}
		return len(c.FeedbackRules) > 0 && manifest.Matches(c.ResourceIdentifier, guess)
	})
}

// setDerived sets the conditions that come from rules and from the health of the object, and removes others of their sort.
func (c *Controller) setDerived(work *workv1.ManifestWork, status *workv1.ManifestCondition, derived []metav1.Condition) {
	status.Conditions = slices.DeleteFunc(status.Conditions, func(cond metav1.Condition) bool {
		return conditions.IsDerived(cond) && meta.FindStatusCondition(derived, cond.Type) == nil
	})
	for _, cond := range derived {
		cond.ObservedGeneration = work.Generation
		c.renewCondition(&status.Conditions, cond)
	}
}

// feedbackCondition says whether what the feedback rules ask for is reported.
func feedbackCondition(work *workv1.ManifestWork, q observe.Question, reading *observe.Reading) metav1.Condition {
	cond := metav1.Condition{
		Type: fleet.ConditionStatusFeedbackSynced, Status: metav1.ConditionTrue, Reason: fleet.ReasonStatusFeedbackSynced,
		Message: "All values that the feedback rules ask for are reported", ObservedGeneration: work.Generation,
	}
	switch {
	case reading.Failure != "":
		cond.Status, cond.Reason = metav1.ConditionFalse, fleet.ReasonStatusFeedbackSyncFailed
		cond.Message = "Failed to read the object as its rules ask for: " + clip(reading.Failure)
	case len(q.FeedbackRules) == 0:
		cond.Reason, cond.Message = fleet.ReasonNoStatusFeedbackSynced, "There are no feedback rules"
	}
	return cond
}

// aggregate sets the conditions of the work that follow from those of its manifests, and removes others of their sort.
func (c *Controller) aggregate(work *workv1.ManifestWork, outcomes []outcome) {
	ruled := sets.New[string]()
	for i := range outcomes {
		for _, rule := range outcomes[i].question.ConditionRules {
			ruled.Insert(rule.Condition)
		}
	}
	aggregated := conditions.Aggregate(work.Status.ResourceStatus.Manifests, ruled)
	work.Status.Conditions = slices.DeleteFunc(work.Status.Conditions, func(cond metav1.Condition) bool {
		return conditions.IsAggregated(cond) && meta.FindStatusCondition(aggregated, cond.Type) == nil
	})
	for _, cond := range aggregated {
		cond.ObservedGeneration = work.Generation
		c.renewCondition(&work.Status.Conditions, cond)
	}
}
