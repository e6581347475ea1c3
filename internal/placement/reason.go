package placement

import (
	"fmt"
	"strconv"

	clusterv1beta1 "github.com/capstan-io/capstan/api/cluster/v1beta1"
)

// appendReason appends why a cluster was selected. It leaves out what changes often, such as the rank of the cluster: a decision with
// another reason has to be written again.
func (c *cycle) appendReason(text []byte, p candidate, score int64) []byte {
	switch {
	case c.spec.limit == unlimited && len(c.spec.constraints) == 0:
		text = append(text, "matches, and all that match are selected"...)
	case len(c.spec.prioritizers) == 0:
		text = append(text, "matches; nothing prioritizes one cluster over another"...)
	default:
		text = append(text, "score "...)
		text = strconv.AppendInt(text, score, 10)
		text = c.appendTerms(append(text, " = "...), p.id)
	}
	if constraint := c.spreadReasons[p.id]; constraint != nil {
		value, _ := constraint.topologyOf(c.clusters.byID[p.id])
		text = fmt.Appendf(text, "; goes before clusters that rank higher, to spread over %s=%s (%s)", constraint, value, constraint.field())
	}
	if !c.candidates.noSelectIfNew.has(p.id) && !c.candidates.preferNoSelect.has(p.id) {
		return text
	}
	untolerated := c.spec.profile.untoleratedTaints(c.clusters.byID[p.id], c.now)
	if untolerated.noSelectIfNew != nil {
		text = append(append(text, "; stays in spite of the taint "...), describeTaint(untolerated.noSelectIfNew)...)
	}
	if untolerated.preferNoSelect != nil {
		text = append(append(text, "; none without a taint like "...), describeTaint(untolerated.preferNoSelect)...)
		text = append(text, " was left"...)
	}
	return text
}

// appendTerms appends the terms of a score: Balance 50 + 2×Steady 100.
func (c *cycle) appendTerms(text []byte, id int32) []byte {
	for i, prioritizer := range c.spec.prioritizers {
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

// scoreBy is the score of a cluster by one prioritizer, without the weight. expired reports that it is 0 because an AddOnPlacementScore
// has expired.
func (c *cycle) scoreBy(prioritizer string, id int32) (score int64, expired bool) {
	switch prioritizer {
	case clusterv1beta1.PrioritizerSteady:
		if c.decided.has(id) {
			return 100, false
		}
		return 0, false
	case clusterv1beta1.PrioritizerBalance:
		return balanceScore(c.otherDecisions(id), c.balance.maxCount), false
	}
	for i := range c.spec.profile.scorers {
		if scorer := &c.spec.profile.scorers[i]; scorer.name == prioritizer {
			return scorer.score(c.clusters.byID[id], c.ranges, c.now)
		}
	}
	return 0, false
}
