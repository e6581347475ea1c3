package placement

import (
	"fmt"
	"strconv"
	"strings"
)

// reason is why a cluster was selected. It leaves out what changes often, such as the rank of the cluster: a decision with another reason
// has to be written again.
func (c *cycle) reason(p scoredCluster, score int64) string {
	var text string
	switch {
	case c.spec.limit == unlimited && len(c.spec.constraints) == 0:
		text = "matches, and all that match are selected"
	case len(c.spec.scorers) == 0:
		text = "matches; nothing prioritizes one cluster over another"
	default:
		text = fmt.Sprintf("score %d = %s", score, c.terms(p.cluster))
	}
	if constraint := c.spreadReasons[p.cluster]; constraint != nil {
		value, _ := constraint.topologyOf(p.cluster)
		text += fmt.Sprintf("; goes before clusters that rank higher, to spread over %s=%s (%s)", constraint, value, constraint.field())
	}
	untolerated := c.spec.profile.untoleratedTaints(p.cluster, c.now)
	if untolerated.noSelectIfNew != nil {
		text += "; stays in spite of the taint " + describeTaint(untolerated.noSelectIfNew)
	}
	if untolerated.preferNoSelect != nil {
		text += "; none without a taint like " + describeTaint(untolerated.preferNoSelect) + " was left"
	}
	return text
}

// terms returns the terms of a score: Balance 50 + 2×Steady 100.
func (c *cycle) terms(of *cluster) string {
	var text strings.Builder
	for i, scorer := range c.spec.scorers {
		if i > 0 {
			text.WriteString(" + ")
		}
		if scorer.weight != 1 {
			text.WriteString(strconv.FormatInt(scorer.weight, 10) + "×")
		}
		score, expired := scorer.plugin.score(of, &c.input)
		text.WriteString(scorer.name + " " + strconv.FormatInt(score, 10))
		if expired {
			text.WriteString(" (expired)")
		}
	}
	return text.String()
}
