package decisions

import (
	"cmp"
	"maps"
	"slices"
	"strconv"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	clusterv1beta1 "github.com/capstan-io/capstan/api/cluster/v1beta1"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
	"github.com/capstan-io/capstan/internal/placement"
)

// GroupsOf returns the groups that the PlacementDecisions of a placement list, in the order of their indexes and numbers.
func GroupsOf(objects []*clusterv1beta1.PlacementDecision) []placement.Group {
	byIndex := map[int]*placement.Group{}
	for _, object := range slices.SortedFunc(slices.Values(objects), byNumber) {
		// Without a valid index, the object belongs to the first group.
		index, _ := strconv.Atoi(object.Labels[fleet.LabelDecisionGroupIndex])
		group := byIndex[index]
		if group == nil {
			group = &placement.Group{Name: object.Labels[fleet.LabelDecisionGroupName]}
			byIndex[index] = group
		}
		group.Decisions = append(group.Decisions, object.Status.Decisions...)
	}
	groups := make([]placement.Group, 0, len(byIndex))
	for _, index := range slices.Sorted(maps.Keys(byIndex)) {
		groups = append(groups, *byIndex[index])
	}
	return groups
}

func byNumber(a, b *clusterv1beta1.PlacementDecision) int {
	return compareNumbers(a.Name, b.Name)
}

// compareNumbers orders the names of PlacementDecisions of one placement by their numbers.
func compareNumbers(a, b string) int {
	return cmp.Or(cmp.Compare(len(a), len(b)), cmp.Compare(a, b))
}

// WrittenAt returns when the status of an object was last written, which the API server records in managedFields with a precision of
// seconds. It is zero if unknown.
func WrittenAt(object *clusterv1beta1.PlacementDecision) (written time.Time) {
	for _, m := range object.ManagedFields {
		if m.Subresource == statusSubresource && m.Time != nil && m.Time.After(written) {
			written = m.Time.Time
		}
	}
	return written
}

const statusSubresource = "status"

// Strip is the transform of a cache of PlacementDecisions: it removes managedFields, except for what WrittenAt reads.
func Strip(o any) (any, error) {
	object, ok := o.(*clusterv1beta1.PlacementDecision)
	if !ok {
		return o, nil
	}
	written := WrittenAt(object)
	object.ManagedFields = nil
	if !written.IsZero() {
		object.ManagedFields = []metav1.ManagedFieldsEntry{{Subresource: statusSubresource, Time: &metav1.Time{Time: written}}}
	}
	return object, nil
}
