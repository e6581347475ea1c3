package placement

import (
	"slices"

	clusterv1beta1 "github.com/capstan-io/capstan/api/cluster/v1beta1"
)

// groups divides the selected clusters into decision groups: first the named ones, then the rest. A cluster is in the first group whose
// selector matches it. Clusters are in the order of sortBy, and groups larger than clustersPerDecisionGroup are split. The argument is
// reordered to be in the order of the groups.
func (c *cycle) groups(selected []scoredCluster) []Group {
	if c.spec.sortByScore {
		slices.SortFunc(selected, compareRanks)
	} else {
		slices.SortFunc(selected, func(a, b scoredCluster) int { return compareNames(a.cluster, b.cluster) })
	}
	size := c.spec.clustersPerGroup.of(len(selected))
	var groups []Group
	rest := selected
	for i := range c.spec.groups {
		n := c.partition(rest, &c.spec.groups[i])
		groups, rest = c.appendGroups(groups, c.spec.groups[i].name, rest[:n], size), rest[n:]
	}
	groups = c.appendGroups(groups, "", rest, size)
	if len(groups) == 0 {
		return []Group{{}}
	}
	return groups
}

// partition moves the clusters that a group selector matches to the front, and returns how many they are. The order among them, and among
// the rest, stays.
func (c *cycle) partition(selected []scoredCluster, rule *groupSelector) int {
	members := selected[:0]
	var others []scoredCluster
	for _, candidate := range selected {
		if rule.match(candidate.cluster, c.now, nil) == nil {
			members = append(members, candidate)
		} else {
			others = append(others, candidate)
		}
	}
	copy(selected[len(members):], others)
	return len(members)
}

func (c *cycle) appendGroups(groups []Group, name string, members []scoredCluster, size int) []Group {
	for chunk := range slices.Chunk(members, size) {
		groups = append(groups, Group{Name: name, Decisions: c.decisions(chunk)})
	}
	return groups
}

// decisions returns the decisions of a group.
func (c *cycle) decisions(selected []scoredCluster) []clusterv1beta1.ClusterDecision {
	decisions := make([]clusterv1beta1.ClusterDecision, len(selected))
	for i, candidate := range selected {
		scored := candidate.clusterScore()
		decisions[i] = clusterv1beta1.ClusterDecision{ClusterName: scored.ClusterName, Reason: c.reason(candidate, scored.Score)}
		if c.spec.sortByScore { // ApplicationSets of Argo CD 2 fail on a number
			decisions[i].Score = scored.Score
		}
	}
	return decisions
}
