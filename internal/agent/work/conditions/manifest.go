package conditions

import (
	"errors"
	"slices"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	workv1 "github.com/capstan-io/capstan/api/work/v1"
	"github.com/capstan-io/capstan/internal/agent/work/ignore"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
	"github.com/capstan-io/capstan/internal/machinery/manifest"
	"github.com/capstan-io/capstan/internal/machinery/text"
)

// Presence reports whether an object exists on the managed cluster.
type Presence int

// Whether an object exists. Unknown is the zero value.
const (
	Unknown Presence = iota
	Present
	Absent
)

// Result is what a pass over a work found out about one of its manifests.
type Result struct {
	// Manifest names the object as the status of the work does. Its field resource is empty if the cluster does not know the kind.
	Manifest workv1.ManifestResourceMeta
	// Err is why the manifest is not applied; nil means that it is.
	Err error
	// Presence reports whether the object exists, whether it was applied or not.
	Presence Presence
	// MissingOwners are left out of what is applied: owners that the manifest names and the cluster does not have.
	MissingOwners []string
	// Frozen is set if the manifest is complete. What is derived from its object stays as it is.
	Frozen bool
	// Dispute is about the object; nil if it is not disputed.
	Dispute *Dispute
	// Query is what the work wants to know of the object, and Reading the answer; nil as long as the object has not been read.
	Query   Query
	Reading *Reading
}

// OfManifest is what the status of the work says of a manifest, also of one that has moved within the list; nil if it says nothing.
func OfManifest(work *workv1.ManifestWork, manifest workv1.ManifestResourceMeta) *workv1.ManifestCondition {
	manifests := work.Status.ResourceStatus.Manifests
	if i := int(manifest.Ordinal); i < len(manifests) && manifests[i].ResourceMeta == manifest {
		return &manifests[i]
	}
	var moved *workv1.ManifestCondition
	for i := range manifests {
		old := manifests[i].ResourceMeta
		if old == manifest {
			return &manifests[i]
		}
		old.Ordinal = manifest.Ordinal
		if old == manifest && moved == nil {
			moved = &manifests[i]
		}
	}
	return moved
}

// manifestStatus is what the status of the work is to say of a manifest.
func (s setter) manifestStatus(work *workv1.ManifestWork, r *Result) workv1.ManifestCondition {
	status := workv1.ManifestCondition{ResourceMeta: r.Manifest}
	if old := OfManifest(work, r.Manifest); old != nil {
		status.StatusFeedbacks = *old.StatusFeedbacks.DeepCopy()
		status.Conditions = append(status.Conditions, old.Conditions...)
	}
	s.setOfGeneration(&status.Conditions, r.applied())
	s.set(&status.Conditions, r.available())
	s.setDisputed(&status.Conditions, r)
	switch {
	case r.Frozen:
		for i := range status.Conditions {
			status.Conditions[i].ObservedGeneration = s.generation
		}
	case r.Reading != nil:
		s.setReading(&status, r)
	default:
		s.setUnread(work, &status, r)
	}
	return status
}

// applied reports whether the manifest is applied, and why not.
func (r *Result) applied() metav1.Condition {
	if r.Err == nil {
		cond := metav1.Condition{
			Type: fleet.ConditionApplied, Status: metav1.ConditionTrue, Reason: fleet.ReasonAppliedManifestComplete,
			Message: "Apply manifest complete",
		}
		if len(r.MissingOwners) > 0 {
			cond.Message += clip(", without the owners in metadata.ownerReferences that do not exist on this cluster: " +
				text.FirstFew(r.MissingOwners))
		}
		return cond
	}
	reason := fleet.ReasonAppliedManifestFailed
	if ignoring := new(ignore.Error); errors.As(r.Err, &ignoring) {
		reason = fleet.ReasonAppliedManifestSSAIgnoreFieldError
	}
	return metav1.Condition{
		Type: fleet.ConditionApplied, Status: metav1.ConditionFalse, Reason: reason,
		Message: "Failed to apply manifest: " + clip(text.Stable(r.Err.Error())),
	}
}

// available reports whether the object exists; that is all that available means, whether the manifest was applied or not.
func (r *Result) available() metav1.Condition {
	cond := metav1.Condition{Type: fleet.ConditionAvailable}
	switch {
	case r.Presence == Present:
		cond.Status, cond.Reason, cond.Message = metav1.ConditionTrue, fleet.ReasonResourceAvailable, "Resource is available"
	case r.Presence == Absent:
		cond.Status, cond.Reason, cond.Message = metav1.ConditionFalse, fleet.ReasonResourceNotAvailable, "Resource is not available"
	case r.Manifest.Name == "":
		cond.Status, cond.Reason, cond.Message = metav1.ConditionUnknown, fleet.ReasonIncompleteResourceMeta,
			"The manifest does not say which resource it is about"
	default:
		cond.Status, cond.Reason, cond.Message = metav1.ConditionUnknown, fleet.ReasonFetchingResourceFailed,
			"It could not be found out whether the resource exists"
	}
	return cond
}

// setReading sets what was read of the object: its values and the conditions that are derived from it.
func (s setter) setReading(status *workv1.ManifestCondition, r *Result) {
	s.setDerived(status, r.Reading.Conditions)
	set := s.set
	if !equality.Semantic.DeepEqual(status.StatusFeedbacks.Values, r.Reading.Values) {
		set = s.setWithNewTime
	}
	status.StatusFeedbacks.Values = r.Reading.Values
	set(&status.Conditions, feedbackSynced(r.Query, r.Reading))
}

// setUnread is for an object that has not been read, or need not be. What was found under this generation stays: it may
// be from before a restart of the agent.
func (s setter) setUnread(work *workv1.ManifestWork, status *workv1.ManifestCondition, r *Result) {
	keep := slices.DeleteFunc(slices.Clone(status.Conditions), func(cond metav1.Condition) bool {
		return r.Query.IsEmpty() || !isDerived(cond) || cond.ObservedGeneration != s.generation
	})
	for _, cond := range notRead(r.Query).Conditions {
		if meta.FindStatusCondition(keep, cond.Type) == nil {
			keep = append(keep, cond)
		}
	}
	s.setDerived(status, keep)
	if len(r.Query.FeedbackRules) > 0 {
		return
	}
	status.StatusFeedbacks.Values = nil
	nothing := &Reading{}
	if r.Manifest.Resource == "" && mayHaveFeedbackRules(work, r.Manifest) {
		nothing.Failure = "the cluster does not tell which resource the manifest is about"
	}
	s.set(&status.Conditions, feedbackSynced(r.Query, nothing))
}

// setDerived sets the conditions that come from rules and from the health of the object, and removes derived ones that no longer do.
func (s setter) setDerived(status *workv1.ManifestCondition, derived []metav1.Condition) {
	status.Conditions = slices.DeleteFunc(status.Conditions, func(cond metav1.Condition) bool {
		return isDerived(cond) && meta.FindStatusCondition(derived, cond.Type) == nil
	})
	for _, cond := range derived {
		s.setOfGeneration(&status.Conditions, cond)
	}
}

// mayHaveFeedbackRules reports whether feedback rules may be about a manifest of which the resource is not known.
func mayHaveFeedbackRules(work *workv1.ManifestWork, m workv1.ManifestResourceMeta) bool {
	return slices.ContainsFunc(work.Spec.ManifestConfigs, func(c workv1.ManifestConfigOption) bool {
		return len(c.FeedbackRules) > 0 && mayBeAbout(&c, m)
	})
}

// mayBeAbout reports whether an entry of manifestConfigs may be about a manifest of which the resource is not known.
func mayBeAbout(c *workv1.ManifestConfigOption, m workv1.ManifestResourceMeta) bool {
	guess := workv1.ResourceIdentifier{Group: m.Group, Resource: c.ResourceIdentifier.Resource, Namespace: m.Namespace, Name: m.Name}
	return manifest.Matches(c.ResourceIdentifier, guess)
}

// feedbackSynced reports whether all that the feedback rules request is reported.
func feedbackSynced(q Query, reading *Reading) metav1.Condition {
	cond := metav1.Condition{
		Type: fleet.ConditionStatusFeedbackSynced, Status: metav1.ConditionTrue, Reason: fleet.ReasonStatusFeedbackSynced,
		Message: "All values that the feedback rules ask for are reported",
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
