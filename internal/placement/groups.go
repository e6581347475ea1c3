package placement

import (
	"slices"

	clusterv1beta1 "github.com/capstan-io/capstan/api/cluster/v1beta1"
)

// groups divides the selected clusters into decision groups: first the named ones, then the rest. A cluster is in the first group whose
// selector matches it. Clusters are in the order of sortBy, and groups larger than clustersPerDecisionGroup are split.
func (c *cycle) groups(selected []scoredCluster) []Group {
	if c.spec.sortByScore {
		slices.SortFunc(selected, compareRanks)
	} else {
		slices.SortFunc(selected, func(a, b scoredCluster) int { return compareNames(a.cluster, b.cluster) })
	}
	names := make([]string, len(c.spec.groups)+1) // the last group is the rest
	members := make([][]scoredCluster, len(names))
	for i := range c.spec.groups {
		names[i] = c.spec.groups[i].name
	}
	for _, candidate := range selected {
		i := c.groupOf(candidate.cluster)
		members[i] = append(members[i], candidate)
	}
	size := c.spec.clustersPerGroup.of(len(selected))
	var groups []Group
	for i, name := range names {
		for chunk := range slices.Chunk(members[i], size) {
			groups = append(groups, Group{Name: name, Decisions: c.decisions(chunk)})
		}
	}
	if len(groups) == 0 {
		return []Group{{}}
	}
	return groups
}

// groupOf returns the index of the first group selector that matches a cluster; that of the rest if none does.
func (c *cycle) groupOf(member *cluster) int {
	for i := range c.spec.groups {
		if c.spec.groups[i].match(member, nil) == nil {
			return i
		}
	}
	return len(c.spec.groups)
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
