package placement

import (
	"fmt"
	"slices"

	"github.com/capstan-io/capstan/internal/machinery/managedcluster"
)

// diagnosis finds the reasons why clusters are not selected.
type diagnosis struct {
	*cycle
	class    *equivalenceClass
	selected int              // number of selected clusters
	ranked   []scoredCluster  // all candidates, the best first
	ranks    map[*cluster]int // positions in ranked
	last     scoredCluster    // the worst selected one
}

// newDiagnosis returns a diagnosis of the clusters that are not among the selected ones.
func newDiagnosis(c *cycle, class *equivalenceClass, selected map[string]string) *diagnosis {
	d := &diagnosis{cycle: c, class: class, selected: len(selected), ranked: c.allCandidates(), ranks: map[*cluster]int{}}
	slices.SortFunc(d.ranked, compareRanks)
	for i, candidate := range d.ranked {
		d.ranks[candidate.cluster] = i
		if _, yes := selected[candidate.cluster.name]; yes {
			d.last = candidate
		}
	}
	return d
}

// reason is why a cluster is not selected; empty if it matches no predicate.
func (d *diagnosis) reason(c *cluster) string {
	position, candidate := d.ranks[c]
	switch {
	case c.object.DeletionTimestamp != nil:
		return "it is being deleted"
	case managedcluster.Denied(c.object):
		return "it is denied: spec.hubAcceptsClient of the ManagedCluster is false"
	case !d.class.has(c):
		return d.notInSetsReason()
	case d.candidates.get(c) == nil:
		if e := d.class.evaluation; e != nil && !e.result(c).upToDate {
			return "it has changed, and the CEL expressions of spec.predicates are about to be evaluated"
		}
		return "" // see mismatches
	case !candidate:
		return d.taintReason(c)
	case d.spec.limit == 0:
		return "spec.numberOfClusters is 0"
	}
	own := d.ranked[position]
	if d.spread != nil && (d.spread.missingTopology(c) != nil || d.selected < d.spec.maxSelected(len(d.ranked)) || own.before(d.last)) {
		return d.spreadReason(c)
	}
	rank := fmt.Sprintf("it ranks %d of %d with %s", position+1, len(d.ranked), d.scoreText(own))
	if d.selected == 0 {
		return rank
	}
	return fmt.Sprintf("%s; the last one selected is %s with %s", rank, d.last.cluster.name, d.scoreText(d.last))
}

func (d *diagnosis) scoreText(p scoredCluster) string {
	text := fmt.Sprintf("score %d", p.score)
	if len(d.spec.scorers) > 0 {
		text += " = " + d.terms(p.cluster)
	}
	if untolerated := d.spec.profile.untoleratedTaints(p.cluster, d.now); untolerated.preferNoSelect != nil {
		text += " and the taint " + describeTaint(untolerated.preferNoSelect)
	}
	return text
}

func (d *diagnosis) notInSetsReason() string {
	names := make([]string, len(d.class.sets))
	for i, set := range d.class.sets {
		names[i] = set.name
	}
	return fmt.Sprintf("it is in none of the bound ManagedClusterSets %q", names)
}

func (d *diagnosis) taintReason(c *cluster) string {
	untolerated := d.spec.profile.untoleratedTaints(c, d.now)
	if untolerated.noSelect != nil {
		return fmt.Sprintf("it has the taint %s, which is not or no longer tolerated", describeTaint(untolerated.noSelect))
	}
	return fmt.Sprintf("it has the taint %s, which is not tolerated, and it is not selected already", describeTaint(untolerated.noSelectIfNew))
}

// spreadReason names the spread constraint because of which a candidate is not selected, although its score is high enough.
func (d *diagnosis) spreadReason(c *cluster) string {
	if missing := d.spread.missingTopology(c); missing != nil {
		return fmt.Sprintf("it has no %s, which %s wants", missing, missing.field())
	}
	if full := d.spread.violatedConstraint(c); full != nil {
		value, _ := full.topologyOf(c)
		return fmt.Sprintf("it would exceed maxSkew of %s: enough clusters with %s=%s are selected", full.field(), full, value)
	}
	return "clusters that spread better over spec.spreadPolicy go first"
}
