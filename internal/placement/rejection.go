package placement

import (
	"fmt"
	"slices"

	"github.com/capstan-io/capstan/internal/machinery/managedcluster"
)

// rejection finds the reasons why clusters are not selected.
type rejection struct {
	*cycle
	class    *equivalenceClass
	ranked   []scoredCluster  // all candidates, the best first
	ranks    map[*cluster]int // positions in ranked
	last     scoredCluster    // the worst selected one
	selected int
	spread   *spreadSelector // after the selection; nil without constraints
}

func newRejection(c *cycle, class *equivalenceClass, selected []*cluster) *rejection {
	r := &rejection{cycle: c, class: class, ranks: map[*cluster]int{}, selected: len(selected)}
	r.ranked = r.allCandidates()
	slices.SortFunc(r.ranked, compareRanks)
	chosen := setOf(selected)
	for i, candidate := range r.ranked {
		r.ranks[candidate.cluster] = i
		if chosen[candidate.cluster] {
			r.last = candidate
		}
	}
	if len(r.spec.constraints) > 0 {
		r.replaySpread(chosen)
	}
	return r
}

// replaySpread brings a spreadSelector into the state after the selection.
func (r *rejection) replaySpread(selected map[*cluster]bool) {
	r.spread = newSpread(r.spec.constraints, slices.Clone(r.ranked))
	for position := 0; position < len(r.spread.waiting); {
		if selected[r.spread.waiting[position].cluster] {
			r.spread.take(position)
		} else {
			position++
		}
	}
}

// reason is why a cluster is not selected; empty if it matches no predicate.
func (r *rejection) reason(c *cluster) string {
	position, candidate := r.ranks[c]
	switch {
	case c.object.DeletionTimestamp != nil:
		return "it is being deleted"
	case managedcluster.Denied(c.object):
		return "it is denied: spec.hubAcceptsClient of the ManagedCluster is false"
	case !r.class.has(c):
		return r.notInSetsReason()
	case r.candidates.get(c) == nil:
		if e := r.class.evaluation; e != nil && !e.result(c).upToDate {
			return "it has changed, and the CEL expressions of spec.predicates are about to be evaluated"
		}
		return "" // see mismatches
	case !candidate:
		return r.taintReason(c)
	case r.spec.limit == 0:
		return "spec.numberOfClusters is 0"
	}
	own := r.ranked[position]
	if r.spread != nil && (r.spread.missingTopology(c) != nil || r.selected < r.spec.maxSelected(len(r.ranked)) || own.before(r.last)) {
		return r.spreadReason(c)
	}
	rank := fmt.Sprintf("it ranks %d of %d with %s", position+1, len(r.ranked), r.scoreText(own))
	if r.selected == 0 {
		return rank
	}
	return fmt.Sprintf("%s; the last one selected is %s with %s", rank, r.last.cluster.name, r.scoreText(r.last))
}

func (r *rejection) scoreText(p scoredCluster) string {
	text := fmt.Sprintf("score %d", p.score)
	if len(r.spec.prioritizers) > 0 {
		text += " = " + r.terms(p.cluster)
	}
	if untolerated := r.spec.profile.untoleratedTaints(p.cluster, r.now); untolerated.preferNoSelect != nil {
		text += " and the taint " + describeTaint(untolerated.preferNoSelect)
	}
	return text
}

func (r *rejection) notInSetsReason() string {
	names := make([]string, len(r.class.sets))
	for i, set := range r.class.sets {
		names[i] = set.name
	}
	return fmt.Sprintf("it is in none of the bound ManagedClusterSets %q", names)
}

func (r *rejection) taintReason(c *cluster) string {
	untolerated := r.spec.profile.untoleratedTaints(c, r.now)
	if untolerated.noSelect != nil {
		return fmt.Sprintf("it has the taint %s, which is not or no longer tolerated", describeTaint(untolerated.noSelect))
	}
	return fmt.Sprintf("it has the taint %s, which is not tolerated, and it is not selected already", describeTaint(untolerated.noSelectIfNew))
}

// spreadReason names the spread constraint because of which a candidate is not selected, although its score is high enough.
func (r *rejection) spreadReason(c *cluster) string {
	if missing := r.spread.missingTopology(c); missing != nil {
		return fmt.Sprintf("it has no %s, which %s wants", missing, missing.field())
	}
	if full := r.spread.violatedConstraint(c); full != nil {
		value, _ := full.topologyOf(c)
		return fmt.Sprintf("it would exceed maxSkew of %s: enough clusters with %s=%s are selected", full.field(), full, value)
	}
	return "clusters that spread better over spec.spreadPolicy go first"
}
