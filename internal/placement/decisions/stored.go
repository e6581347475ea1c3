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

// GroupsOf are the groups that the PlacementDecisions of a placement list, in the order of their indexes and numbers.
func GroupsOf(objects []*clusterv1beta1.PlacementDecision) []placement.Group {
	byIndex := map[int]*placement.Group{}
	for _, object := range slices.SortedFunc(slices.Values(objects), byNumber) {
		// Without an index that can be read, it goes with the first ones.
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

// WrittenAt is when the API server last wrote the decisions of an object, as it notes with the field managers, to the second.
// It is zero if it does not say.
func WrittenAt(object *clusterv1beta1.PlacementDecision) (written time.Time) {
	for _, m := range object.ManagedFields {
		if m.Subresource == statusSubresource && m.Time != nil && m.Time.After(written) {
			written = m.Time.Time
		}
	}
	return written
}

const statusSubresource = "status"

// Strip is the transform for a cache of PlacementDecisions: of the field managers, it leaves what WrittenAt reads.
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
