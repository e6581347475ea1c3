package placement

import (
	"fmt"
	"strconv"

	clusterv1beta1 "github.com/capstan-io/capstan/api/cluster/v1beta1"
)

// appendReason writes why a cluster was selected. It says nothing that the next schedule would change without need,
// such as the rank of the cluster, as decisions with another reason have to be written.
func (c *contest) appendReason(text []byte, p pick, score int64) []byte {
	switch {
	case c.plan.limit == unlimited && len(c.plan.spread) == 0:
		text = append(text, "matches, and all that match are selected"...)
	case len(c.plan.prioritizers) == 0:
		text = append(text, "matches; nothing prioritizes one cluster over another"...)
	default:
		text = append(text, "score "...)
		text = strconv.AppendInt(text, score, 10)
		text = c.appendTerms(append(text, " = "...), p.id)
	}
	if because := c.preferred[p.id]; because != nil {
		value, _ := because.topology(c.fleet.clusters[p.id])
		text = fmt.Appendf(text, "; goes before clusters that rank higher, to spread over %s=%s (%s)", because, value, because.field())
	}
	if !c.st.held.has(p.id) && !c.st.avoided.has(p.id) {
		return text
	}
	tolerance := c.plan.selection.tolerate(c.fleet.clusters[p.id], c.now)
	if tolerance.held != nil {
		text = append(append(text, "; stays in spite of the taint "...), describeTaint(tolerance.held)...)
	}
	if tolerance.avoided != nil {
		text = append(append(text, "; none without a taint like "...), describeTaint(tolerance.avoided)...)
		text = append(text, " was left"...)
	}
	return text
}

// appendTerms writes the sum behind a score: Balance 50 + 2×Steady 100.
func (c *contest) appendTerms(text []byte, id int32) []byte {
	for i, prioritizer := range c.plan.prioritizers {
		if i > 0 {
			text = append(text, " + "...)
		}
		if prioritizer.Weight != 1 {
			text = strconv.AppendInt(text, prioritizer.Weight, 10)
			text = append(text, "×"...)
		}
		text = append(append(text, prioritizer.Name...), ' ')
		score, expired := c.scoreBy(prioritizer.Name, id)
		text = strconv.AppendInt(text, score, 10)
		if expired {
			text = append(text, " (expired)"...)
		}
	}
	return text
}

// scoreBy is what one prioritizer gives a cluster, before its weight. expired reports that it is 0 because an
// AddOnPlacementScore is no longer valid.
func (c *contest) scoreBy(prioritizer string, id int32) (score int64, expired bool) {
	switch prioritizer {
	case clusterv1beta1.PrioritizerSteady:
		if c.decided.has(id) {
			return 100, false
		}
		return 0, false
	case clusterv1beta1.PrioritizerBalance:
		return balance(c.others(id), c.scale.highest), false
	}
	for i := range c.plan.selection.sources {
		if source := &c.plan.selection.sources[i]; source.name == prioritizer {
			return source.score(c.fleet.clusters[id], c.among, c.now)
		}
	}
	return 0, false
}
