package placement

import (
	"cmp"
	"slices"

	clusterv1beta1 "github.com/capstan-io/capstan/api/cluster/v1beta1"
)

// groups divides the selected clusters (PL-15): those of the named groups first, a cluster going to the first that
// matches it, then the rest. Each is cut to size in the order of sortBy (PL-14). The index of a group is its place.
func (c *contest) groups(picks []pick) []Group {
	if c.plan.byScore {
		slices.SortFunc(picks, comparePicks)
	} else {
		slices.SortFunc(picks, func(a, b pick) int { return cmp.Compare(c.fleet.ranks[a.id], c.fleet.ranks[b.id]) })
	}
	size := c.plan.perGroup.of(len(picks))
	var groups []Group
	rest := picks
	for i := range c.plan.groups {
		var members, others []pick
		for _, pick := range rest {
			if c.plan.groups[i].match(c.fleet.clusters[pick.id], c.now, nil) == nil {
				members = append(members, pick)
			} else {
				others = append(others, pick)
			}
		}
		groups, rest = c.cut(groups, c.plan.groups[i].name, members, size), others
	}
	groups = c.cut(groups, "", rest, size)
	if len(groups) == 0 {
		return []Group{{}}
	}
	return groups
}

func (c *contest) cut(groups []Group, name string, members []pick, size int) []Group {
	for chunk := range slices.Chunk(members, size) {
		groups = append(groups, Group{Name: name, Decisions: c.decisions(chunk)})
	}
	return groups
}

// decisions share the memory of one text of all their reasons: a garbage collector minds one string less than hundreds.
func (c *contest) decisions(picks []pick) []clusterv1beta1.ClusterDecision {
	text := c.scratch.text[:0]
	decisions := make([]clusterv1beta1.ClusterDecision, len(picks))
	ends := c.scratch.ends[:0]
	for i, pick := range picks {
		scored := c.score(pick)
		decisions[i].ClusterName = scored.ClusterName
		if c.plan.byScore { // some readers take all fields for text, among them the ApplicationSets of Argo CD 2 (AR-01)
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
	c.scratch.text, c.scratch.ends = text, ends
	return decisions
}
