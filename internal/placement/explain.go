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
	compile(&object.Spec)
	explanation, unmatched := s.explain(object, s.evaluate(object))
	unmatched.explain(explanation)
	s.settleUp(object.Namespace, unmatched.costs)
	return explanation
}

func (s *Scheduler) explain(object *clusterv1beta1.Placement, evaluated *evaluation) (*Explanation, *unmatched) {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := &placement{key: keyOf(object)}
	p.hash = hashKey(p.key)
	p.take(object)
	if saved := s.placements[p.key]; saved != nil {
		p.decided, p.ids = saved.decided, saved.ids
	}
	none := &unmatched{costs: celselector.NewCosts(0)}
	sets := chosen(s.bound(s.namespaces[p.key.Namespace]), object.Spec.ClusterSets)
	p.plan, p.bad = newPlan(object, func(signature string) *selection { return s.selections[signature] })
	if p.plan == nil {
		return s.explainKept(p, s.broken(p, p.bad), sets, "the placement was misconfigured"), none
	}
	if len(sets) > 0 {
		p.class = s.classes[classKey(p.key.Namespace, sets, p.plan.selection)]
		if p.class == nil || p.class.pending() {
			p.class = &class{namespace: p.key.Namespace, sets: sets, selection: p.plan.selection, evaluation: evaluated}
			p.class.standing, _ = s.build(p.class)
		}
		switch {
		case p.class.tooDear():
			return s.explainKept(p, s.broken(p, s.tooDear()), sets, "the placement was misconfigured"), none
		case p.class.pending():
			return s.explainKept(p, s.waiting(p), sets, "its CEL expressions had to be evaluated"), none
		}
	}
	result, picks := s.resolve(p)
	result.Disabled = p.disabled
	explanation := &Explanation{Result: result}
	if p.class != nil {
		st := s.stand(p.class)
		explanation.fill(s.contest(st, p))
	}
	var mismatches *unmatched
	explanation.Clusters, mismatches = s.reasons(p, result, picks)
	if t := s.explanations[p.key.Namespace]; t != nil && t.costs.TokensAt(s.charged) <= 0 {
		mismatches.costs = celselector.NewCosts(0)
	}
	return explanation, mismatches
}

// evaluate applies the CEL expressions of a placement to all clusters, if that is to be done and its namespace has not had it done
// too often; else it returns nil.
func (s *Scheduler) evaluate(object *clusterv1beta1.Placement) *evaluation {
	e, b := s.beginEvaluation(object)
	if b == nil {
		return nil
	}
	b.costs = celselector.NewCosts(s.celBudget)
	for i := range b.looks {
		b.looks[i].match(b.now, b.costs)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	b.turns.running = false
	s.charge(b.turns.costs, b.costs.Spent())
	for i := range b.looks {
		// Of a cluster that has changed meanwhile, what it was is good enough.
		l := &b.looks[i]
		if c := s.fleet.clusters[l.cluster.id]; c != nil && c.name == l.cluster.name {
			e.settle(c.id, l.matched)
		}
	}
	e.complete, e.tooDear = !b.costs.Exceeded(), b.costs.Exceeded()
	return e
}

// beginEvaluation returns what is known without CEL, and a batch of all clusters that the CEL expressions of a placement are to be
// applied to; it is nil if there is nothing to apply, or it is not to be done.
func (s *Scheduler) beginEvaluation(object *clusterv1beta1.Placement) (*evaluation, *batch) {
	s.mu.Lock()
	defer s.mu.Unlock()
	plan, _ := newPlan(object, func(signature string) *selection { return s.selections[signature] })
	sets := chosen(s.bound(s.namespaces[object.Namespace]), object.Spec.ClusterSets)
	if plan == nil || !plan.selection.cel || len(sets) == 0 {
		return nil, nil
	}
	if cls := s.classes[classKey(object.Namespace, sets, plan.selection)]; cls != nil && !cls.pending() {
		return nil, nil
	}
	t := s.explanationsOf(object.Namespace)
	if t.running || t.costs.TokensAt(s.charged) <= 0 {
		return nil, nil
	}
	t.running = true
	cls := &class{namespace: object.Namespace, sets: sets, selection: plan.selection}
	cls.standing, _ = s.build(cls)
	b := &batch{turns: t, now: s.now}
	for id := range without(cls.standing.inSets, cls.evaluation.known).all() {
		b.looks = append(b.looks, look{evaluation: cls.evaluation, cluster: *s.fleet.clusters[id]})
	}
	return cls.evaluation, b
}

func (s *Scheduler) explanationsOf(namespace string) *turns {
	t := s.explanations[namespace]
	if t == nil {
		t = newTurns()
		s.explanations[namespace] = t
	}
	return t
}

// settleUp has a namespace pay for what it cost to explain a placement of it.
func (s *Scheduler) settleUp(namespace string, costs *celselector.Costs) {
	if costs.Spent() == 0 {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.charge(s.explanationsOf(namespace).costs, costs.Spent())
}

// explainCost is for finding out why clusters do not match a placement that somebody has explained.
const explainCost = 500_000

// unmatched are the clusters of an explanation that do not meet the predicates. Which they do not meet is found out when nobody
// waits for it.
type unmatched struct {
	selection *selection
	now       time.Time
	costs     *celselector.Costs
	clusters  map[int]cluster // by index in Explanation.Clusters
}

func (u *unmatched) explain(e *Explanation) {
	for _, i := range slices.Sorted(maps.Keys(u.clusters)) {
		c := u.clusters[i]
		e.Clusters[i].Reason = u.selection.mismatch(&c, u.now, u.costs)
	}
}

// explainKept tells which clusters a placement keeps of which nothing else is known since something happened.
func (s *Scheduler) explainKept(p *placement, result *Result, sets []*clusterSet, since string) *Explanation {
	e := &Explanation{Result: result}
	var inSets bitset
	for _, set := range sets {
		inSets.add(set.members)
	}
	e.Filters = []Filter{{Name: FilterClusterSets, Clusters: s.names(inSets)}}
	e.Result.Funnel = Funnel{Fleet: s.existing, InClusterSets: inSets.count()}
	s.fleet.order()
	for _, id := range s.fleet.sorted {
		c := s.fleet.clusters[id]
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

func (e *Explanation) fill(c *contest) {
	candidates := slices.Clone(c.totals())
	slices.SortFunc(candidates, comparePicks)
	var tolerated bitset
	for _, candidate := range candidates {
		tolerated.set(candidate.id)
		e.Scores = append(e.Scores, c.score(candidate))
	}
	e.Filters = []Filter{
		{Name: FilterClusterSets, Clusters: c.names(c.st.inSets)},
		{Name: FilterPredicate, Clusters: c.names(c.st.matched)},
		{Name: FilterTaintToleration, Clusters: c.names(tolerated)},
	}
	for _, prioritizer := range c.plan.prioritizers {
		e.Prioritizers = append(e.Prioritizers, c.scoresBy(prioritizer, candidates))
	}
}

func (c *contest) scoresBy(prioritizer Prioritizer, candidates []pick) PrioritizerScores {
	p := PrioritizerScores{Prioritizer: prioritizer, Scores: make(map[string]int64, len(candidates))}
	for _, candidate := range candidates {
		name := c.fleet.clusters[candidate.id].name
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
		names = append(names, s.fleet.clusters[id].name)
	}
	slices.Sort(names)
	return names
}

// reasons finds for each cluster of the fleet why it is selected, or the first reason why not.
func (s *Scheduler) reasons(p *placement, result *Result, picks []int32) ([]ClusterReason, *unmatched) {
	s.fleet.order()
	selected := map[string]string{}
	for _, group := range result.Groups {
		for _, decision := range group.Decisions {
			selected[decision.ClusterName] = decision.Reason
		}
	}
	var reasons []ClusterReason
	var refusal refusal
	mismatches := &unmatched{selection: p.plan.selection, now: s.now, costs: celselector.NewCosts(explainCost), clusters: map[int]cluster{}}
	if p.class != nil {
		refusal = s.refusal(p, picks)
	}
	for _, id := range s.fleet.sorted {
		c := s.fleet.clusters[id]
		if c.object == nil {
			continue
		}
		reason, yes := selected[c.name]
		if !yes {
			reason = result.Satisfied.Message
			if p.class != nil {
				if reason = refusal.of(c); reason == "" {
					mismatches.clusters[len(reasons)] = *c
				}
			}
		}
		reasons = append(reasons, ClusterReason{ClusterName: c.name, Selected: yes, Reason: reason})
	}
	return reasons, mismatches
}

// refusal finds reasons why not.
type refusal struct {
	*contest
	class  *class
	order  []pick        // candidates, the best first
	places map[int32]int // of candidates in order
	last   pick          // the worst one selected, if any is
	picks  int
	spread *spread         // once they are selected; nil without constraints
	waits  map[int32]int32 // the places in it
}

func (s *Scheduler) refusal(p *placement, picks []int32) refusal {
	r := refusal{contest: s.contest(s.stand(p.class), p), class: p.class, places: map[int32]int{}, picks: len(picks)}
	r.order = slices.Clone(r.totals())
	slices.SortFunc(r.order, comparePicks)
	var selected bitset
	for _, id := range picks {
		selected.set(id)
	}
	for i, candidate := range r.order {
		r.places[candidate.id] = i
		if selected.has(candidate.id) {
			r.last = candidate
		}
	}
	if len(r.plan.spread) > 0 {
		r.replay(selected)
	}
	return r
}

// replay finds out how clusters spread with those that are selected.
func (r *refusal) replay(selected bitset) {
	r.spread, r.waits = r.newSpread(slices.Clone(r.order)), map[int32]int32{}
	for place, candidate := range r.spread.candidates {
		if selected.has(candidate.id) {
			r.spread.take(int32(place))
		} else {
			r.waits[candidate.id] = int32(place)
		}
	}
}

// of is why a cluster is not selected; empty if it does not meet the predicates.
func (r *refusal) of(c *cluster) string {
	place, candidate := r.places[c.id]
	switch {
	case c.object.DeletionTimestamp != nil:
		return "it is being deleted"
	case acceptance.Denied(c.object):
		return "it is denied: spec.hubAcceptsClient of the ManagedCluster is false"
	case !r.st.inSets.has(c.id):
		return r.outside()
	case !r.st.matched.has(c.id):
		if e := r.class.evaluation; e != nil && !e.known.has(c.id) {
			return "it has changed, and the CEL expressions of spec.predicates are about to be evaluated"
		}
		return "" // to be found out
	case !candidate:
		return r.repelled(c)
	case r.plan.limit == 0:
		return "spec.numberOfClusters is 0"
	}
	own := r.order[place]
	if r.spread != nil && (r.spread.lacks(c) != nil || r.picks < r.plan.takes(len(r.order)) || own.before(r.last)) {
		return r.crowded(c)
	}
	ranks := fmt.Sprintf("it ranks %d of %d with %s", place+1, len(r.order), r.terms(own))
	if r.picks == 0 {
		return ranks
	}
	return fmt.Sprintf("%s; the last one selected is %s with %s", ranks, r.fleet.clusters[r.last.id].name, r.terms(r.last))
}

func (r *refusal) terms(p pick) string {
	text := fmt.Sprintf("score %d", r.score(p).Score)
	if len(r.plan.prioritizers) > 0 {
		text = string(r.appendTerms([]byte(text+" = "), p.id))
	}
	if tolerance := r.plan.selection.tolerate(r.fleet.clusters[p.id], r.now); tolerance.avoided != nil {
		text += " and the taint " + describeTaint(tolerance.avoided)
	}
	return text
}

func (r *refusal) outside() string {
	names := make([]string, len(r.class.sets))
	for i, set := range r.class.sets {
		names[i] = set.name
	}
	return fmt.Sprintf("it is in none of the bound ManagedClusterSets %q", names)
}

func (r *refusal) repelled(c *cluster) string {
	tolerance := r.plan.selection.tolerate(c, r.now)
	if tolerance.repelled != nil {
		return fmt.Sprintf("it has the taint %s, which is not or no longer tolerated", describeTaint(tolerance.repelled))
	}
	return fmt.Sprintf("it has the taint %s, which is not tolerated, and it is not selected already", describeTaint(tolerance.held))
}

// crowded names the first constraint that keeps a candidate out, although it ranks high enough.
func (r *refusal) crowded(c *cluster) string {
	if missing := r.spread.lacks(c); missing != nil {
		return fmt.Sprintf("it has no %s, which %s wants", missing, missing.field())
	}
	if full := r.spread.blocks(r.waits[c.id]); full != nil {
		value, _ := full.topology(c)
		return fmt.Sprintf("it would exceed maxSkew of %s: enough clusters with %s=%s are selected", full.field(), full, value)
	}
	return "clusters that spread better over spec.spreadPolicy go first"
}
