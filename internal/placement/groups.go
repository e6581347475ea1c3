package placement

import (
	"slices"

	clusterv1beta1 "github.com/capstan-io/capstan/api/cluster/v1beta1"
)

// groups divides the selected clusters: those of the named groups first, a cluster going to the first that
// matches it, then the rest. Each is cut to size in the order of sortBy. The index of a group is its place. Picks are
// in the order of the groups then.
func (c *cycle) groups(picks []candidate) []Group {
	if c.spec.sortByScore {
		slices.SortFunc(picks, compareCandidates)
	} else {
		slices.SortFunc(picks, func(a, b candidate) int { return c.clusters.compareRanks(a.id, b.id) })
	}
	size := c.spec.clustersPerGroup.of(len(picks))
	var groups []Group
	rest := picks
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

// partition moves the picks that a rule matches before the others, and returns how many they are. Both stay in their order.
func (c *cycle) partition(picks []candidate, rule *groupSelector) int {
	members := picks[:0]
	var others []candidate
	for _, pick := range picks {
		if rule.match(c.clusters.byID[pick.id], c.now, nil) == nil {
			members = append(members, pick)
		} else {
			others = append(others, pick)
		}
	}
	copy(picks[len(members):], others)
	return len(members)
}

func (c *cycle) appendGroups(groups []Group, name string, members []candidate, size int) []Group {
	for chunk := range slices.Chunk(members, size) {
		groups = append(groups, Group{Name: name, Decisions: c.decisions(chunk)})
	}
	return groups
}

// decisions share the memory of one text of all their reasons: a garbage collector minds one string less than hundreds.
func (c *cycle) decisions(picks []candidate) []clusterv1beta1.ClusterDecision {
	text := c.buffers.text[:0]
	decisions := make([]clusterv1beta1.ClusterDecision, len(picks))
	ends := c.buffers.ends[:0]
	for i, pick := range picks {
		scored := c.clusterScore(pick)
		decisions[i].ClusterName = scored.ClusterName
		if c.spec.sortByScore { // some readers take all fields for text, among them the ApplicationSets of Argo CD 2
			decisions[i].Score = scored.Score
		}
		text = c.appendReason(text, pick, scored.Score)
		ends = append(ends, len(text))
	}
	reasons, start := string(text), 0
	for i, end := range ends {
		decisions[i].Reason = reasons[start:end]
		start = end
	}
	c.buffers.text, c.buffers.ends = text, ends
	return decisions
}
