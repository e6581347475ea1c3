package decisions

import (
	"slices"

	clusterv1beta1 "github.com/capstan-io/capstan/api/cluster/v1beta1"
	"github.com/capstan-io/capstan/internal/placement"
)

const most = clusterv1beta1.MaxDecisionsPerObject

// slice is the content of a PlacementDecision: some of the decisions of one group.
type slice struct {
	name      string
	object    *clusterv1beta1.PlacementDecision // that had most of it before; nil when it is new
	group     int
	decisions []clusterv1beta1.ClusterDecision
}

// distribute makes slices of groups: at least one, and those of a group next to each other.
func distribute(groups []placement.Group, objects []*clusterv1beta1.PlacementDecision, inOrder bool) []*slice {
	homes := assign(groups, objects)
	var all []*slice
	for i, group := range groups {
		var of []*slice
		if inOrder {
			of = chunk(group, homes[i])
		} else {
			of = keep(group, homes[i])
		}
		for _, slice := range of {
			slice.group = i
		}
		all = append(all, of...)
	}
	return all
}

// assign gives each object to the group that most of its clusters are in now; to none when no cluster of it is selected.
func assign(groups []placement.Group, objects []*clusterv1beta1.PlacementDecision) [][]*clusterv1beta1.PlacementDecision {
	groupOf := map[string]int{}
	for i, group := range groups {
		for _, decision := range group.Decisions {
			groupOf[decision.ClusterName] = i
		}
	}
	homes := make([][]*clusterv1beta1.PlacementDecision, len(groups))
	for _, object := range objects {
		counts := make([]int, len(groups))
		best := 0
		for _, decision := range object.Status.Decisions {
			if i, selected := groupOf[decision.ClusterName]; selected {
				if counts[i]++; counts[i] > counts[best] {
					best = i
				}
			}
		}
		if counts[best] > 0 {
			homes[best] = append(homes[best], object)
		}
	}
	return homes
}

// chunk cuts a group in its order.
func chunk(group placement.Group, objects []*clusterv1beta1.PlacementDecision) []*slice {
	of := []*slice{}
	for decisions := range slices.Chunk(group.Decisions, most) {
		part := &slice{decisions: decisions}
		if len(of) < len(objects) {
			part.object = objects[len(of)]
		}
		of = append(of, part)
	}
	return atLeastOne(of)
}

// keep leaves clusters in the objects they are in, and puts new ones where there is room.
func keep(group placement.Group, objects []*clusterv1beta1.PlacementDecision) []*slice {
	waiting := make(map[string]clusterv1beta1.ClusterDecision, len(group.Decisions))
	for _, decision := range group.Decisions {
		waiting[decision.ClusterName] = decision
	}
	var of []*slice
	for _, object := range objects {
		part := &slice{object: object}
		for _, former := range object.Status.Decisions {
			if decision, selected := waiting[former.ClusterName]; selected && len(part.decisions) < most {
				part.decisions = append(part.decisions, decision)
				delete(waiting, former.ClusterName)
			}
		}
		of = append(of, part)
	}
	of = slices.DeleteFunc(of, func(part *slice) bool { return len(part.decisions) == 0 })
	of, homeless := dissolve(of, len(group.Decisions))
	for _, decision := range group.Decisions {
		if _, fresh := waiting[decision.ClusterName]; fresh {
			homeless = append(homeless, decision)
		}
	}
	of = atLeastOne(house(of, homeless))
	for _, part := range of {
		slices.SortFunc(part.decisions, byName)
	}
	return of
}

// dissolve gives up the emptiest slices while all together would be less than half full with so many decisions.
func dissolve(of []*slice, total int) ([]*slice, []clusterv1beta1.ClusterDecision) {
	var homeless []clusterv1beta1.ClusterDecision
	for len(of) > 1 && total < len(of)*most/2 {
		emptiest := 0
		for i := range of {
			if len(of[i].decisions) <= len(of[emptiest].decisions) {
				emptiest = i
			}
		}
		homeless = append(homeless, of[emptiest].decisions...)
		of = slices.Delete(of, emptiest, emptiest+1)
	}
	return of, homeless
}

// house puts decisions where there is room: first in slices that change anyway, then in those with most room, then in new
// ones.
func house(of []*slice, homeless []clusterv1beta1.ClusterDecision) []*slice {
	for len(homeless) > 0 {
		home := roomiest(of)
		if home == nil {
			home = &slice{}
			of = append(of, home)
		}
		n := min(most-len(home.decisions), len(homeless))
		home.decisions = append(home.decisions, homeless[:n]...)
		homeless = homeless[n:]
	}
	return of
}

func roomiest(of []*slice) *slice {
	var found *slice
	for _, part := range of {
		switch {
		case len(part.decisions) == most:
		case found == nil, part.changes() && !found.changes():
			found = part
		case part.changes() == found.changes() && len(part.decisions) < len(found.decisions):
			found = part
		}
	}
	return found
}

// changes tells whether a slice is to be written anyway.
func (s *slice) changes() bool {
	return s.object == nil || len(s.decisions) != len(s.object.Status.Decisions)
}

func atLeastOne(of []*slice) []*slice {
	if len(of) == 0 {
		return []*slice{{decisions: []clusterv1beta1.ClusterDecision{}}}
	}
	return of
}

func byName(a, b clusterv1beta1.ClusterDecision) int {
	if a.ClusterName < b.ClusterName {
		return -1
	}
	return 1
}
