package decisions

import (
	"cmp"
	"slices"

	clusterv1beta1 "github.com/capstan-io/capstan/api/cluster/v1beta1"
	"github.com/capstan-io/capstan/internal/placement"
)

const maxPerObject = clusterv1beta1.MaxDecisionsPerObject

// decisionSlice is the content of one PlacementDecision: decisions of one group.
type decisionSlice struct {
	name      string
	object    *clusterv1beta1.PlacementDecision // the object that has most of it; nil for a new one
	group     int
	decisions []clusterv1beta1.ClusterDecision
}

// distribute divides groups into slices, at least one for each group. Slices of a group are next to each other.
func distribute(groups []placement.Group, objects []*clusterv1beta1.PlacementDecision, inOrder bool) []*decisionSlice {
	byGroup := assignObjects(groups, objects)
	var all []*decisionSlice
	for i, group := range groups {
		split := keepAssigned
		if inOrder {
			split = splitInOrder
		}
		list := split(group, byGroup[i])
		if len(list) == 0 {
			list = []*decisionSlice{{decisions: []clusterv1beta1.ClusterDecision{}}}
		}
		for _, slice := range list {
			slice.group = i
		}
		all = append(all, list...)
	}
	return all
}

// assignObjects assigns each object to the group that has most of its clusters; to none if no cluster of it is selected.
func assignObjects(groups []placement.Group, objects []*clusterv1beta1.PlacementDecision) [][]*clusterv1beta1.PlacementDecision {
	groupOf := map[string]int{}
	for i, group := range groups {
		for _, decision := range group.Decisions {
			groupOf[decision.ClusterName] = i
		}
	}
	byGroup := make([][]*clusterv1beta1.PlacementDecision, len(groups))
	for _, object := range objects {
		counts := map[int]int{} // by group
		best := 0
		for _, decision := range object.Status.Decisions {
			if i, selected := groupOf[decision.ClusterName]; selected {
				if counts[i]++; counts[i] > counts[best] {
					best = i
				}
			}
		}
		if counts[best] > 0 {
			byGroup[best] = append(byGroup[best], object)
		}
	}
	return byGroup
}

// splitInOrder splits a group in its order.
func splitInOrder(group placement.Group, objects []*clusterv1beta1.PlacementDecision) []*decisionSlice {
	var list []*decisionSlice
	for decisions := range slices.Chunk(group.Decisions, maxPerObject) {
		part := &decisionSlice{decisions: decisions}
		if len(list) < len(objects) {
			part.object = objects[len(list)]
		}
		list = append(list, part)
	}
	return list
}

// keepAssigned keeps clusters in their objects, and adds new ones where there is room.
func keepAssigned(group placement.Group, objects []*clusterv1beta1.PlacementDecision) []*decisionSlice {
	waiting := make(map[string]clusterv1beta1.ClusterDecision, len(group.Decisions))
	for _, decision := range group.Decisions {
		waiting[decision.ClusterName] = decision
	}
	var list []*decisionSlice
	for _, object := range objects {
		part := &decisionSlice{object: object}
		for _, former := range object.Status.Decisions {
			if decision, selected := waiting[former.ClusterName]; selected && len(part.decisions) < maxPerObject {
				part.decisions = append(part.decisions, decision)
				delete(waiting, former.ClusterName)
			}
		}
		list = append(list, part)
	}
	list = slices.DeleteFunc(list, func(part *decisionSlice) bool { return len(part.decisions) == 0 })
	list, unplaced := removeUnderfilled(list, len(group.Decisions))
	for _, decision := range group.Decisions {
		if _, isNew := waiting[decision.ClusterName]; isNew {
			unplaced = append(unplaced, decision)
		}
	}
	list = fillSlices(list, unplaced)
	for _, part := range list {
		slices.SortFunc(part.decisions, func(a, b clusterv1beta1.ClusterDecision) int { return cmp.Compare(a.ClusterName, b.ClusterName) })
	}
	return list
}

// removeUnderfilled removes the smallest slices while all together would be less than half full with the total number of decisions. It
// returns the decisions of the removed slices.
func removeUnderfilled(list []*decisionSlice, total int) ([]*decisionSlice, []clusterv1beta1.ClusterDecision) {
	var unplaced []clusterv1beta1.ClusterDecision
	for len(list) > 1 && total < len(list)*maxPerObject/2 {
		smallest := 0
		for i := range list {
			if len(list[i].decisions) <= len(list[smallest].decisions) {
				smallest = i
			}
		}
		unplaced = append(unplaced, list[smallest].decisions...)
		list = slices.Delete(list, smallest, smallest+1)
	}
	return list, unplaced
}

// fillSlices adds decisions where there is room: first to slices that are written anyway, then to those with the most room, then to new
// ones.
func fillSlices(list []*decisionSlice, unplaced []clusterv1beta1.ClusterDecision) []*decisionSlice {
	for len(unplaced) > 0 {
		target := sliceWithRoom(list)
		if target == nil {
			target = &decisionSlice{}
			list = append(list, target)
		}
		n := min(maxPerObject-len(target.decisions), len(unplaced))
		target.decisions = append(target.decisions, unplaced[:n]...)
		unplaced = unplaced[n:]
	}
	return list
}

// sliceWithRoom returns the slice to add to next; nil if all are full.
func sliceWithRoom(list []*decisionSlice) *decisionSlice {
	var found *decisionSlice
	for _, part := range list {
		switch {
		case len(part.decisions) == maxPerObject:
		case found == nil, part.changes() && !found.changes():
			found = part
		case part.changes() == found.changes() && len(part.decisions) < len(found.decisions):
			found = part
		}
	}
	return found
}

// changes reports whether the slice has to be written anyway.
func (s *decisionSlice) changes() bool {
	return s.object == nil || len(s.decisions) != len(s.object.Status.Decisions)
}
