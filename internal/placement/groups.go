package placement

import (
	"cmp"
	"slices"

	clusterv1beta1 "github.com/capstan-io/capstan/api/cluster/v1beta1"
)

// groups divides the selected clusters: those of the named groups first, a cluster going to the first that
// matches it, then the rest. Each is cut to size in the order of sortBy. The index of a group is its place. Picks are
// in the order of the groups then.
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
		n := c.gather(rest, &c.plan.groups[i])
		groups, rest = c.cut(groups, c.plan.groups[i].name, rest[:n], size), rest[n:]
	}
	groups = c.cut(groups, "", rest, size)
	if len(groups) == 0 {
		return []Group{{}}
	}
	return groups
}

// gather moves the picks that a rule matches before the others, and returns how many they are. Both stay in their order.
func (c *contest) gather(picks []pick, rule *groupRule) int {
	members := picks[:0]
	var others []pick
	for _, pick := range picks {
		if rule.match(c.fleet.clusters[pick.id], c.now, nil) == nil {
			members = append(members, pick)
		} else {
			others = append(others, pick)
		}
	}
	copy(picks[len(members):], others)
	return len(members)
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
		if c.plan.byScore { // some readers take all fields for text, among them the ApplicationSets of Argo CD 2
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
