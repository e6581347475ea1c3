package conditions

import (
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"

	workv1 "github.com/capstan-io/capstan/api/work/v1"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
	"github.com/capstan-io/capstan/internal/machinery/text"
)

// IsComplete reports whether a work is complete: it is not applied again, whatever happens to its objects.
func IsComplete(work *workv1.ManifestWork) bool {
	return meta.IsStatusConditionTrue(work.Status.Conditions, fleet.ConditionComplete)
}

// Update changes the status of the work to what a pass found out about its manifests, and reports whether that changed anything.
// Conditions that other writers have set stay. The failures are of what else there was to do, such as to delete what the work names no
// more.
func Update(work *workv1.ManifestWork, results []Result, now time.Time, failures ...error) (changed bool) {
	before := &workv1.ManifestWork{Status: *work.Status.DeepCopy()}
	s := newSetter(work.Generation, now)
	manifests := make([]workv1.ManifestCondition, 0, len(results))
	for i := range results {
		manifests = append(manifests, s.manifestStatus(work, &results[i]))
	}
	work.Status.ResourceStatus.Manifests = manifests
	s.set(&work.Status.Conditions, appliedOfWork(results, failures))
	s.set(&work.Status.Conditions, availableOfWork(results))
	s.setWorkDisputed(&work.Status.Conditions, results)
	s.setRulesUnmatched(work, results)
	s.aggregate(work, results)
	s.fit(work, before)
	return !equality.Semantic.DeepEqual(&before.Status, &work.Status)
}

// appliedOfWork reports whether all manifests are applied. The message names the first that failed, and what else did.
func appliedOfWork(results []Result, failures []error) metav1.Condition {
	cond := appliedOfManifests(results)
	var undone []string
	for _, err := range failures {
		undone = append(undone, clip("could not "+text.Stable(err.Error())))
	}
	if len(undone) > 0 {
		cond.Message += "; " + Summary(undone)
	}
	return cond
}

func appliedOfManifests(results []Result) metav1.Condition {
	var failed []string
	for i := range results {
		if err := results[i].Err; err != nil {
			failed = append(failed, clip(text.Stable(err.Error())))
		}
	}
	if len(failed) > 0 {
		return metav1.Condition{
			Type: fleet.ConditionApplied, Status: metav1.ConditionFalse, Reason: fleet.ReasonAppliedManifestWorkFailed,
			Message: fmt.Sprintf("%d of %d manifests failed to apply: %s", len(failed), len(results), Summary(failed)),
		}
	}
	return metav1.Condition{
		Type: fleet.ConditionApplied, Status: metav1.ConditionTrue, Reason: fleet.ReasonAppliedManifestWorkComplete,
		Message: "Apply manifest work complete",
	}
}

// availableOfWork reports whether all objects of the work exist.
func availableOfWork(results []Result) metav1.Condition {
	count := map[Presence]int{}
	for i := range results {
		count[results[i].Presence]++
	}
	cond := metav1.Condition{Type: fleet.ConditionAvailable}
	switch {
	case count[Absent] > 0:
		cond.Status, cond.Reason = metav1.ConditionFalse, fleet.ReasonResourcesNotAvailable
		cond.Message = fmt.Sprintf("%d of %d resources are not available", count[Absent], len(results))
	case count[Unknown] > 0:
		cond.Status, cond.Reason = metav1.ConditionUnknown, fleet.ReasonResourcesStatusUnknown
		cond.Message = fmt.Sprintf("%d of %d resources have unknown status", count[Unknown], len(results))
	default:
		cond.Status, cond.Reason = metav1.ConditionTrue, fleet.ReasonResourcesAvailable
		cond.Message = "All resources are available"
	}
	return cond
}

// aggregate sets the conditions of the work that follow from those of its manifests, and removes aggregated ones that no longer do.
func (s setter) aggregate(work *workv1.ManifestWork, results []Result) {
	ruled := sets.New[string]()
	for i := range results {
		for _, rule := range results[i].Query.ConditionRules {
			ruled.Insert(rule.Condition)
		}
	}
	aggregated := ofManifests(work.Status.ResourceStatus.Manifests, ruled, openRulesOf(work, results))
	work.Status.Conditions = slices.DeleteFunc(work.Status.Conditions, func(cond metav1.Condition) bool {
		return isAggregated(cond) && meta.FindStatusCondition(aggregated, cond.Type) == nil
	})
	for _, cond := range aggregated {
		s.setOfGeneration(&work.Status.Conditions, cond)
	}
}

// ClaimedError is the error of a work whose AppliedManifestWork belongs to a work of another cluster of the same hub: the managed cluster
// has joined that hub under two names.
type ClaimedError struct {
	// Applied is the name of the AppliedManifestWork, and Work that of both works.
	Applied, Work string
	// Cluster is the name of this cluster on the hub, and Owner that of the one that the AppliedManifestWork belongs to.
	Cluster, Owner string
	// Doubt is why it is not known whether Owner is still on the hub; nil if it is there.
	Doubt error
}

func (e *ClaimedError) Error() string {
	message := fmt.Sprintf("this cluster has joined the hub as %[1]s as well, whose ManifestWork %[2]s holds AppliedManifestWork %[3]s here: "+
		"give one of the two works another name, or let one of the clusters leave. ManifestWork %[2]s of %[4]s takes over what was applied "+
		"when %[1]s is not on the hub any more", e.Owner, e.Work, e.Applied, e.Cluster)
	if e.Doubt != nil {
		message += "; " + clip(e.Doubt.Error())
	}
	return message + fmt.Sprintf(". It does so at once if you run on the managed cluster: kubectl annotate appliedmanifestwork %s %s-",
		e.Applied, fleet.AnnotationClusterName)
}

// Refuse changes the status of a work that is not applied at all because of the error, and reports whether that changed anything.
func Refuse(work *workv1.ManifestWork, claimed *ClaimedError, now time.Time) (changed bool) {
	before := work.Status.DeepCopy()
	s := newSetter(work.Generation, now)
	work.Status.ResourceStatus.Manifests = nil
	s.set(&work.Status.Conditions, metav1.Condition{
		Type: fleet.ConditionApplied, Status: metav1.ConditionFalse, Reason: fleet.ReasonAppliedManifestWorkFailed, Message: claimed.Error(),
	})
	s.set(&work.Status.Conditions, metav1.Condition{
		Type: fleet.ConditionAvailable, Status: metav1.ConditionUnknown, Reason: fleet.ReasonResourcesStatusUnknown,
		Message: "The work is not applied",
	})
	s.setWorkDisputed(&work.Status.Conditions, nil)
	meta.RemoveStatusCondition(&work.Status.Conditions, fleet.ConditionRulesUnmatched)
	return !equality.Semantic.DeepEqual(before, &work.Status)
}
