package conditions

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	workv1 "github.com/capstan-io/capstan/api/work/v1"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
)

const (
	// maxStored is how large a work may be, in bytes of JSON, with its spec and its status. etcd takes 1.5 MiB by default; the rest is for
	// the conditions of the work, and for what others write into the object.
	maxStored = 1408 << 10
	// minStatus is what the status of manifests may take in any case: the bound of etcd, and that of works, can be raised.
	minStatus = 64 << 10
	// usualManifest is more than the status of a manifest takes, but for its messages and its feedback.
	usualManifest = 1536
	// shortMessage is how many bytes of each message are left where there is no room for more.
	shortMessage = 64
)

// omission leaves something out of the status of a manifest that the hub has no room for, and reports whether there was anything to leave
// out. before is the work as it was.
type omission struct {
	what string
	omit func(s setter, m *workv1.ManifestCondition, before *workv1.ManifestWork) bool
}

// omissions are made in this order, each first for the last manifest of the work.
var omissions = []omission{
	{"feedback values", omitFeedback},
	{"ends of messages", omitMessages},
	{"conditions", omitConditions},
}

// fit leaves out of the status of the manifests what would make the work larger than a hub stores, so that the conditions of the work are
// there in any case. One of them says what is left out.
func (s setter) fit(work, before *workv1.ManifestWork) {
	omitted := s.omit(work, before)
	if len(omitted) == 0 {
		meta.RemoveStatusCondition(&work.Status.Conditions, fleet.ConditionStatusTruncated)
		return
	}
	s.setLike(&work.Status.Conditions, before.Status.Conditions, metav1.Condition{
		Type: fleet.ConditionStatusTruncated, Status: metav1.ConditionTrue, Reason: fleet.ReasonStatusTooLarge,
		Message: fmt.Sprintf("The work with its status would be larger than the hub stores. Left out: %s. "+
			"Spread the manifests over several works, or ask for less feedback", strings.Join(omitted, "; ")),
	})
}

// omit returns what is left out, so that there is room for the rest.
func (s setter) omit(work, before *workv1.ManifestWork) (omitted []string) {
	if fitsEasily(work) {
		return nil
	}
	manifests := work.Status.ResourceStatus.Manifests
	budget := max(maxStored-sizeOf(work.Spec)-sizeOf(work.ObjectMeta), minStatus)
	total, sizes := 0, make([]int, len(manifests))
	for i := range manifests {
		sizes[i] = sizeOf(manifests[i])
		total += sizes[i]
	}
	for _, omission := range omissions {
		count := 0
		for i := len(manifests) - 1; i >= 0 && total > budget; i-- {
			if !omission.omit(s, &manifests[i], before) {
				continue
			}
			count++
			total -= sizes[i]
			sizes[i] = sizeOf(manifests[i])
			total += sizes[i]
		}
		if count > 0 {
			omitted = append(omitted, fmt.Sprintf("%s of %d of %d manifests", omission.what, count, len(manifests)))
		}
	}
	kept := len(manifests)
	for ; kept > 0 && total > budget; kept-- {
		total -= sizes[kept-1]
	}
	if kept < len(manifests) {
		omitted = append(omitted, fmt.Sprintf("everything about %d of %d manifests", len(manifests)-kept, len(manifests)))
		work.Status.ResourceStatus.Manifests = manifests[:kept]
	}
	return omitted
}

// fitsEasily reports, without encoding anything, whether there is room for the status.
func fitsEasily(work *workv1.ManifestWork) bool {
	size := 0
	for _, m := range work.Spec.Workload.Manifests {
		size += len(m.Raw)
	}
	for _, m := range work.Status.ResourceStatus.Manifests {
		size += usualManifest
		for _, cond := range m.Conditions {
			size += len(cond.Message)
		}
		for _, value := range m.StatusFeedbacks.Values {
			size += usualManifest
			if value.Value.String != nil {
				size += len(*value.Value.String)
			}
		}
	}
	return size < maxStored/2 // the rest of the spec and quoting in JSON take some
}

// sizeOf is how many bytes something takes as JSON.
func sizeOf(of any) int {
	encoded, err := json.Marshal(of)
	if err != nil {
		return maxStored // a raw manifest that is no JSON; the hub refuses these
	}
	return len(encoded)
}

// setLike sets a condition that this pass may have set to something else. If it has the status that it had before the pass, it keeps its
// time.
func (s setter) setLike(conditions *[]metav1.Condition, before []metav1.Condition, cond metav1.Condition) {
	last, now := meta.FindStatusCondition(before, cond.Type), meta.FindStatusCondition(*conditions, cond.Type)
	if last != nil && now != nil {
		*now = *last
	}
	s.set(conditions, cond)
}

func omitFeedback(s setter, m *workv1.ManifestCondition, before *workv1.ManifestWork) bool {
	if len(m.StatusFeedbacks.Values) == 0 {
		return false
	}
	m.StatusFeedbacks.Values = nil
	var last []metav1.Condition
	if old := OfManifest(before, m.ResourceMeta); old != nil {
		last = old.Conditions
	}
	s.setLike(&m.Conditions, last, metav1.Condition{
		Type: fleet.ConditionStatusFeedbackSynced, Status: metav1.ConditionFalse, Reason: fleet.ReasonStatusFeedbackSyncFailed,
		Message: "The status of the work has no room for the values",
	})
	return true
}

func omitMessages(_ setter, m *workv1.ManifestCondition, _ *workv1.ManifestWork) (cut bool) {
	for i := range m.Conditions {
		if len(m.Conditions[i].Message) > shortMessage {
			m.Conditions[i].Message, cut = Clip(m.Conditions[i].Message, shortMessage-len(" ...")), true
		}
	}
	return cut
}

// omitConditions leaves whether the manifest is applied, and what its rules say: whether a work is complete is decided by those.
func omitConditions(_ setter, m *workv1.ManifestCondition, _ *workv1.ManifestWork) bool {
	all := len(m.Conditions)
	m.Conditions = slices.DeleteFunc(m.Conditions, func(cond metav1.Condition) bool {
		return cond.Type != fleet.ConditionApplied && !isOfRule(cond)
	})
	return len(m.Conditions) < all
}
