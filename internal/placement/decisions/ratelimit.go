package decisions

import (
	"slices"

	clusterv1beta1 "github.com/capstan-io/capstan/api/cluster/v1beta1"
	"github.com/capstan-io/capstan/internal/placement"
)

// suppressScoreChanges replaces groups by the stored ones where nothing differs but scores, reasons and the order of clusters. different
// reports whether there is such a difference. Groups with the same name are compared together, as clusters move from one to the next
// when their scores change.
func suppressScoreChanges(groups, stored []placement.Group) (kept []placement.Group, different bool) {
	kept = slices.Clone(groups)
	former := indexesByName(stored)
	for name, indexes := range indexesByName(groups) {
		if !sameExceptOrder(groups, indexes, stored, former[name]) {
			continue
		}
		for i, index := range indexes {
			before := stored[former[name][i]].Decisions
			different = different || !slices.Equal(groups[index].Decisions, before)
			kept[index].Decisions = before
		}
	}
	return kept, different
}

func indexesByName(groups []placement.Group) map[string][]int {
	indexes := map[string][]int{}
	for i, group := range groups {
		indexes[group.Name] = append(indexes[group.Name], i)
	}
	return indexes
}

// sameExceptOrder reports whether the groups of some indexes have the same clusters, all together, and the same sizes as stored groups.
func sameExceptOrder(groups []placement.Group, indexes []int, stored []placement.Group, former []int) bool {
	if len(indexes) != len(former) {
		return false
	}
	var now, before []clusterv1beta1.ClusterDecision
	for i := range indexes {
		now, before = append(now, groups[indexes[i]].Decisions...), append(before, stored[former[i]].Decisions...)
		if len(now) != len(before) {
			return false
		}
	}
	return len(now) == 0 || sameClusters(before, now)
}

// keepStored gives the clusters of a misconfigured placement their stored reasons and scores, as no others are known.
func keepStored(groups, stored []placement.Group) []placement.Group {
	byCluster := map[string]clusterv1beta1.ClusterDecision{}
	for _, group := range stored {
		for _, decision := range group.Decisions {
			byCluster[decision.ClusterName] = decision
		}
	}
	kept := slices.Clone(groups)
	for i := range kept {
		kept[i].Decisions = slices.Clone(kept[i].Decisions)
		for j, decision := range kept[i].Decisions {
			if former, ok := byCluster[decision.ClusterName]; ok {
				kept[i].Decisions[j] = former
			}
		}
	}
	return kept
}
