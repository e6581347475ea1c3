package placement

import (
	"fmt"
	"maps"
	"slices"
	"time"

	clusterv1beta1 "github.com/capstan-io/capstan/api/cluster/v1beta1"
	"github.com/capstan-io/capstan/internal/machinery/acceptance"
	"github.com/capstan-io/capstan/internal/placement/celselector"
	"github.com/capstan-io/capstan/internal/placement/report"
)

// Explanation is why a placement selects what it does.
type Explanation struct {
	// Result is what Schedule would return.
	Result *Result
	// Filters in the order they apply in, each with the clusters that are left after it, by name.
	Filters []Filter
	// Prioritizers and their scores.
	Prioritizers []PrioritizerScores
	// Scores sums them up by weight, the best first.
	Scores []ClusterScore
	// Clusters has one entry for every cluster of the fleet, by name.
	Clusters []ClusterReason
}

// Filter is a step from the cluster sets to the candidates.
type Filter struct {
	// Name is ClusterSets, Predicate or TaintToleration.
	Name string
	// Clusters that are left.
	Clusters []string
}

// Names of filters.
const (
	FilterClusterSets     = "ClusterSets"
	FilterPredicate       = partPredicate
	FilterTaintToleration = partToleration
)

// PrioritizerScores is what one prioritizer says of the candidates.
type PrioritizerScores struct {
	Prioritizer
	// Scores by cluster, before they are weighted.
	Scores map[string]int64
	// Expired are the clusters that score 0 because an AddOnPlacementScore is no longer valid, by name.
	Expired []string
}

// ClusterReason is why a cluster was selected, or the first reason why not.
type ClusterReason = report.ClusterReason

// Why returns the reason for one cluster.
func (e *Explanation) Why(cluster string) ClusterReason {
	for _, reason := range e.Clusters {
		if reason.ClusterName == cluster {
			return reason
		}
	}
	return ClusterReason{ClusterName: cluster, Reason: "there is no such ManagedCluster"}
}

// Explain tells what a placement would select, and why. It changes nothing. The placement need not exist; when one of
// its name does, Steady and Balance go by the decisions of that one. CEL expressions are evaluated for it where that is not done yet,
// which holds nobody up; of a namespace that has had many explained lately, the result is pending.
func (s *Scheduler) Explain(object *clusterv1beta1.Placement) *Explanation {
	precompile(&object.Spec)
	explanation, unmatched := s.explain(object, s.evaluateForExplain(object))
	unmatched.explain(explanation)
	s.chargeExplanation(object.Namespace, unmatched.costs)
	return explanation
}

func (s *Scheduler) explain(object *clusterv1beta1.Placement, evaluated *celEvaluation) (*Explanation, *mismatches) {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := &placement{key: keyOf(object)}
	p.hash = hashKey(p.key)
	p.update(object)
	if saved := s.placements[p.key]; saved != nil {
		p.decided, p.ids = saved.decided, saved.ids
	}
	none := &mismatches{costs: celselector.NewCosts(0)}
	sets := filterSets(s.boundSets(s.namespaces[p.key.Namespace]), object.Spec.ClusterSets)
	p.spec, p.misconfiguration = parseSpec(object, func(signature string) *profile { return s.profiles[signature] })
	if p.spec == nil {
		return s.explainUnscheduled(p, s.misconfiguredResult(p, p.misconfiguration), sets, "the placement was misconfigured"), none
	}
	if len(sets) > 0 {
		p.class = s.classes[classKey(p.key.Namespace, sets, p.spec.profile)]
		if p.class == nil || p.class.pending() {
			p.class = &equivalenceClass{namespace: p.key.Namespace, sets: sets, profile: p.spec.profile, evaluation: evaluated}
			p.class.candidates, _ = s.buildCandidates(p.class)
		}
		switch {
		case p.class.overBudget():
			return s.explainUnscheduled(p, s.misconfiguredResult(p, s.overBudget()), sets, "the placement was misconfigured"), none
		case p.class.pending():
			return s.explainUnscheduled(p, s.pendingResult(p), sets, "its CEL expressions had to be evaluated"), none
		}
	}
	result, picks := s.runCycle(p)
	result.Disabled = p.disabled
	explanation := &Explanation{Result: result}
	if p.class != nil {
		cs := s.candidatesOf(p.class)
		explanation.fill(s.newCycle(cs, p))
	}
	var mismatches *mismatches
	explanation.Clusters, mismatches = s.clusterReasons(p, result, picks)
	if t := s.explainQueues[p.key.Namespace]; t != nil && t.limiter.TokensAt(s.budgetTime) <= 0 {
		mismatches.costs = celselector.NewCosts(0)
	}
	return explanation, mismatches
}

// evaluateForExplain applies the CEL expressions of a placement to all clusters. It returns nil if there is nothing to evaluate, or the
// explanations of the namespace have used up their budget.
func (s *Scheduler) evaluateForExplain(object *clusterv1beta1.Placement) *celEvaluation {
	e, b := s.newExplainBatch(object)
	if b == nil {
		return nil
	}
	b.costs = celselector.NewCosts(s.celBudget)
	for i := range b.items {
		b.items[i].match(b.now, b.costs)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	b.queue.running = false
	s.charge(b.queue.limiter, b.costs.Spent())
	for i := range b.items {
		// Of a cluster that has changed meanwhile, what it was is good enough.
		l := &b.items[i]
		if c := s.clusters.byID[l.cluster.id]; c != nil && c.name == l.cluster.name {
			e.setResult(c.id, l.matched)
		}
	}
	e.complete, e.overBudget = !b.costs.Exceeded(), b.costs.Exceeded()
	return e
}

// newExplainBatch returns what is known without CEL, and a batch of all clusters that the CEL expressions of a placement are to be
// applied to; it is nil if there is nothing to apply, or it is not to be done.
func (s *Scheduler) newExplainBatch(object *clusterv1beta1.Placement) (*celEvaluation, *batch) {
	s.mu.Lock()
	defer s.mu.Unlock()
	spec, _ := parseSpec(object, func(signature string) *profile { return s.profiles[signature] })
	sets := filterSets(s.boundSets(s.namespaces[object.Namespace]), object.Spec.ClusterSets)
	if spec == nil || !spec.profile.cel || len(sets) == 0 {
		return nil, nil
	}
	if class := s.classes[classKey(object.Namespace, sets, spec.profile)]; class != nil && !class.pending() {
		return nil, nil
	}
	t := s.explainQueue(object.Namespace)
	if t.running || t.limiter.TokensAt(s.budgetTime) <= 0 {
		return nil, nil
	}
	t.running = true
	class := &equivalenceClass{namespace: object.Namespace, sets: sets, profile: spec.profile}
	class.candidates, _ = s.buildCandidates(class)
	b := &batch{queue: t, now: s.now}
	for id := range difference(class.candidates.inClusterSets, class.evaluation.upToDate).all() {
		b.items = append(b.items, batchItem{evaluation: class.evaluation, cluster: *s.clusters.byID[id]})
	}
	return class.evaluation, b
}

func (s *Scheduler) explainQueue(namespace string) *evaluationQueue {
	t := s.explainQueues[namespace]
	if t == nil {
		t = newEvaluationQueue()
		s.explainQueues[namespace] = t
	}
	return t
}

// chargeExplanation has a namespace pay for what it cost to explain a placement of it.
func (s *Scheduler) chargeExplanation(namespace string, costs *celselector.Costs) {
	if costs.Spent() == 0 {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.charge(s.explainQueue(namespace).limiter, costs.Spent())
}

// mismatchCost is for finding out why clusters do not match a placement that somebody has explained.
const mismatchCost = 500_000

// mismatches are the clusters of an explanation that do not meet the predicates. Which they do not meet is found out when nobody
// waits for it.
type mismatches struct {
	selection *profile
	now       time.Time
	costs     *celselector.Costs
	clusters  map[int]cluster // by index in Explanation.Clusters
}

func (u *mismatches) explain(e *Explanation) {
	for _, i := range slices.Sorted(maps.Keys(u.clusters)) {
		c := u.clusters[i]
		e.Clusters[i].Reason = u.selection.mismatchReason(&c, u.now, u.costs)
	}
}

// explainUnscheduled tells which clusters a placement keeps of which nothing else is known since something happened.
func (s *Scheduler) explainUnscheduled(p *placement, result *Result, sets []*clusterSet, since string) *Explanation {
	e := &Explanation{Result: result}
	var inSets bitset
	for _, set := range sets {
		inSets.union(set.members)
	}
	e.Filters = []Filter{{Name: FilterClusterSets, Clusters: s.names(inSets)}}
	e.Result.Funnel = Funnel{Fleet: s.clusterCount, InClusterSets: inSets.count()}
	s.clusters.updateRanks()
	for _, id := range s.clusters.sortedByName {
		c := s.clusters.byID[id]
		if c.object == nil {
			continue
		}
		reason := ClusterReason{ClusterName: c.name, Selected: p.decided.has(id), Reason: "it was not selected before " + since}
		if reason.Selected {
			reason.Reason = "it was selected before " + since + ", and stays"
		}
		e.Clusters = append(e.Clusters, reason)
	}
	return e
}

func (e *Explanation) fill(c *cycle) {
	candidates := slices.Clone(c.allCandidates())
	slices.SortFunc(candidates, compareCandidates)
	var tolerated bitset
	for _, candidate := range candidates {
		tolerated.set(candidate.id)
		e.Scores = append(e.Scores, c.clusterScore(candidate))
	}
	e.Filters = []Filter{
		{Name: FilterClusterSets, Clusters: c.names(c.candidates.inClusterSets)},
		{Name: FilterPredicate, Clusters: c.names(c.candidates.matched)},
		{Name: FilterTaintToleration, Clusters: c.names(tolerated)},
	}
	for _, prioritizer := range c.spec.prioritizers {
		e.Prioritizers = append(e.Prioritizers, c.scoresBy(prioritizer, candidates))
	}
}

func (c *cycle) scoresBy(prioritizer Prioritizer, candidates []candidate) PrioritizerScores {
	p := PrioritizerScores{Prioritizer: prioritizer, Scores: make(map[string]int64, len(candidates))}
	for _, candidate := range candidates {
		name := c.clusters.byID[candidate.id].name
		score, expired := c.scoreBy(prioritizer.Name, candidate.id)
		if p.Scores[name] = score; expired {
			p.Expired = append(p.Expired, name)
		}
	}
	slices.Sort(p.Expired)
	return p
}

// names lists clusters by name.
func (s *Scheduler) names(ids bitset) []string {
	names := []string{}
	for id := range ids.all() {
		names = append(names, s.clusters.byID[id].name)
	}
	slices.Sort(names)
	return names
}

// clusterReasons finds for each cluster of the fleet why it is selected, or the first reason why not.
func (s *Scheduler) clusterReasons(p *placement, result *Result, picks []int32) ([]ClusterReason, *mismatches) {
	s.clusters.updateRanks()
	selected := map[string]string{}
	for _, group := range result.Groups {
		for _, decision := range group.Decisions {
			selected[decision.ClusterName] = decision.Reason
		}
	}
	var reasons []ClusterReason
	var refusal rejection
	mismatches := &mismatches{selection: p.spec.profile, now: s.now, costs: celselector.NewCosts(mismatchCost), clusters: map[int]cluster{}}
	if p.class != nil {
		refusal = s.newRejection(p, picks)
	}
	for _, id := range s.clusters.sortedByName {
		c := s.clusters.byID[id]
		if c.object == nil {
			continue
		}
		reason, yes := selected[c.name]
		if !yes {
			reason = result.Satisfied.Message
			if p.class != nil {
				if reason = refusal.reason(c); reason == "" {
					mismatches.clusters[len(reasons)] = *c
				}
			}
		}
		reasons = append(reasons, ClusterReason{ClusterName: c.name, Selected: yes, Reason: reason})
	}
	return reasons, mismatches
}

// rejection finds reasons why not.
type rejection struct {
	*cycle
	class           *equivalenceClass
	ranked          []candidate   // candidates, the best first
	ranks           map[int32]int // of candidates in order
	last            candidate     // the worst one selected, if any is
	selected        int
	spread          *spreadSelector // once they are selected; nil without constraints
	spreadPositions map[int32]int32 // the places in it
}

func (s *Scheduler) newRejection(p *placement, picks []int32) rejection {
	r := rejection{cycle: s.newCycle(s.candidatesOf(p.class), p), class: p.class, ranks: map[int32]int{}, selected: len(picks)}
	r.ranked = slices.Clone(r.allCandidates())
	slices.SortFunc(r.ranked, compareCandidates)
	var selected bitset
	for _, id := range picks {
		selected.set(id)
	}
	for i, candidate := range r.ranked {
		r.ranks[candidate.id] = i
		if selected.has(candidate.id) {
			r.last = candidate
		}
	}
	if len(r.spec.constraints) > 0 {
		r.replaySpread(selected)
	}
	return r
}

// replaySpread finds out how clusters spread with those that are selected.
func (r *rejection) replaySpread(selected bitset) {
	r.spread, r.spreadPositions = r.newSpread(slices.Clone(r.ranked)), map[int32]int32{}
	for place, candidate := range r.spread.candidates {
		if selected.has(candidate.id) {
			r.spread.selectCandidate(index32(place))
		} else {
			r.spreadPositions[candidate.id] = index32(place)
		}
	}
}

// reason is why a cluster is not selected; empty if it does not meet the predicates.
func (r *rejection) reason(c *cluster) string {
	place, candidate := r.ranks[c.id]
	switch {
	case c.object.DeletionTimestamp != nil:
		return "it is being deleted"
	case acceptance.Denied(c.object):
		return "it is denied: spec.hubAcceptsClient of the ManagedCluster is false"
	case !r.candidates.inClusterSets.has(c.id):
		return r.notInSetsReason()
	case !r.candidates.matched.has(c.id):
		if e := r.class.evaluation; e != nil && !e.upToDate.has(c.id) {
			return "it has changed, and the CEL expressions of spec.predicates are about to be evaluated"
		}
		return "" // to be found out
	case !candidate:
		return r.taintReason(c)
	case r.spec.limit == 0:
		return "spec.numberOfClusters is 0"
	}
	own := r.ranked[place]
	if r.spread != nil && (r.spread.missingTopology(c) != nil || r.selected < r.spec.maxSelected(len(r.ranked)) || own.before(r.last)) {
		return r.spreadReason(c)
	}
	nameRanks := fmt.Sprintf("it ranks %d of %d with %s", place+1, len(r.ranked), r.scoreText(own))
	if r.selected == 0 {
		return nameRanks
	}
	return fmt.Sprintf("%s; the last one selected is %s with %s", nameRanks, r.clusters.byID[r.last.id].name, r.scoreText(r.last))
}

func (r *rejection) scoreText(p candidate) string {
	text := fmt.Sprintf("score %d", r.clusterScore(p).Score)
	if len(r.spec.prioritizers) > 0 {
		text = string(r.appendTerms([]byte(text+" = "), p.id))
	}
	if untolerated := r.spec.profile.untoleratedTaints(r.clusters.byID[p.id], r.now); untolerated.preferNoSelect != nil {
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

// spreadReason names the first constraint that keeps a candidate out, although it ranks high enough.
func (r *rejection) spreadReason(c *cluster) string {
	if missing := r.spread.missingTopology(c); missing != nil {
		return fmt.Sprintf("it has no %s, which %s wants", missing, missing.field())
	}
	if full := r.spread.violatedConstraint(r.spreadPositions[c.id]); full != nil {
		value, _ := full.topologyOf(c)
		return fmt.Sprintf("it would exceed maxSkew of %s: enough clusters with %s=%s are selected", full.field(), full, value)
	}
	return "clusters that spread better over spec.spreadPolicy go first"
}
