package placement

import (
	"context"
	"slices"

	clusterv1beta1 "github.com/capstan-io/capstan/api/cluster/v1beta1"
	"github.com/capstan-io/capstan/internal/placement/celselector"
	"github.com/capstan-io/capstan/internal/placement/report"
)

// Explanation is why a placement selects what it selects.
type Explanation struct {
	// Result is what Schedule would return.
	Result *Result
	// Filters in the order in which they run.
	Filters []Filter
	// Prioritizers with weights other than 0, and their scores.
	Prioritizers []report.PrioritizerResult
	// Scores are the weighted sums of these, the highest first.
	Scores []ClusterScore
	// Clusters has an entry for every ManagedCluster, sorted by name.
	Clusters []ClusterReason
}

// Filter is the result of one filter.
type Filter struct {
	// Name is ClusterSets, Predicate or TaintToleration.
	Name string
	// Clusters that this filter and those before it leave, sorted by name.
	Clusters []string
}

// Names of filters.
const (
	FilterClusterSets     = "ClusterSets"
	FilterPredicate       = partPredicate
	FilterTaintToleration = partToleration
)

// ClusterReason is why a cluster is selected, or the first reason why it is not.
type ClusterReason = report.ClusterReason

// Explain returns what a placement would select, and why. It records no decision. The placement need not exist; if it does, Steady and
// Balance use its decisions. CEL expressions that were not evaluated yet are evaluated without holding the lock; if the explanations of
// the namespace have used up their budget, the result is pending. It evaluates no more when ctx has ended: then the explanation is
// incomplete.
func (s *Scheduler) Explain(ctx context.Context, object *clusterv1beta1.Placement) *Explanation {
	precompile(&object.Spec)
	explanation, unmatched := s.explain(ctx, object, s.evaluateForExplain(ctx, object))
	unmatched.explain(ctx, explanation)
	s.chargeExplanation(object.Namespace, unmatched.costs)
	return explanation
}

func (s *Scheduler) explain(ctx context.Context, object *clusterv1beta1.Placement, evaluated *celEvaluation) (*Explanation, *mismatches) {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := &placement{key: keyOf(object)}
	p.hash = hashOf(p.key.String())
	p.update(object)
	if saved := s.snapshot.placements[p.key]; saved != nil {
		p.selected = saved.selected
	}
	result, cycle := s.explainCycle(p, evaluated)
	if cycle == nil {
		return s.snapshot.explainUnscheduled(p, result), &mismatches{costs: celselector.NewCosts(ctx, 0)}
	}
	explanation := &Explanation{Result: result}
	if p.class != nil {
		explanation.fill(cycle, p.class)
	}
	mismatches := explanation.addReasons(ctx, cycle, p)
	if q := s.evaluations.explainQueues[p.key.Namespace]; q != nil && q.limiter.TokensAt(s.evaluations.budgetTime) <= 0 {
		mismatches.costs = celselector.NewCosts(ctx, 0)
	}
	return explanation, mismatches
}

// explainCycle runs a cycle for a placement that need not exist. It has the class of the placements that are like it, or one of its own
// while there is none or it is pending.
func (s *Scheduler) explainCycle(p *placement, evaluated *celEvaluation) (*Result, *cycle) {
	if p.spec, p.misconfiguration = parseSpec(p.object); p.spec == nil {
		return s.runCycle(p)
	}
	if sets := s.snapshot.setsOf(p.object); len(sets) > 0 {
		p.class = s.classes.byKey[classKey(p.key.Namespace, sets, p.spec.profile)]
		if p.class == nil || p.class.pending() {
			p.class = &equivalenceClass{namespace: p.key.Namespace, sets: sets, profile: p.spec.profile, evaluation: evaluated}
			p.class.candidates, _ = s.framework.buildCandidates(p.class)
		}
	}
	return s.runCycle(p)
}

// explainUnscheduled explains a placement that is misconfigured or pending, and so keeps the clusters that it has, unless they
// have left its cluster sets.
func (sn *snapshot) explainUnscheduled(p *placement, result *Result) *Explanation {
	e, since := &Explanation{Result: result}, "its CEL expressions had to be evaluated"
	if result.Misconfigured != nil {
		since = "the placement was misconfigured"
	}
	class := equivalenceClass{sets: sn.setsOf(p.object)}
	inSets := sn.names(class.has)
	e.Filters = []Filter{{Name: FilterClusterSets, Clusters: inSets}}
	e.Result.Funnel = Funnel{Fleet: sn.clusterCount, InClusterSets: len(inSets)}
	selected := result.reasons()
	for _, c := range sn.clusters.sorted {
		if c.object == nil {
			continue
		}
		_, kept := selected[c.name]
		reason := ClusterReason{ClusterName: c.name, Selected: kept, Reason: "it was not selected before " + since}
		switch {
		case kept:
			reason.Reason = "it was selected before " + since + ", and stays"
		case p.has(c):
			reason.Reason = "it was selected before " + since + ", and is in none of its ManagedClusterSets now"
		}
		e.Clusters = append(e.Clusters, reason)
	}
	return e
}

func (e *Explanation) fill(c *cycle, class *equivalenceClass) {
	candidates := c.allCandidates()
	e.Filters = []Filter{
		{Name: FilterClusterSets, Clusters: c.names(class.has)},
		{Name: FilterPredicate, Clusters: []string{}},
		{Name: FilterTaintToleration, Clusters: []string{}},
	}
	for _, m := range c.candidates.matched {
		e.Filters[1].Clusters = append(e.Filters[1].Clusters, m.cluster.name)
	}
	for _, candidate := range candidates {
		e.Filters[2].Clusters = append(e.Filters[2].Clusters, candidate.cluster.name)
	}
	slices.SortFunc(candidates, compareRanks)
	for _, candidate := range candidates {
		e.Scores = append(e.Scores, candidate.clusterScore())
	}
	for _, scorer := range c.spec.scorers {
		e.Prioritizers = append(e.Prioritizers, c.scoresBy(scorer, candidates))
	}
}

func (c *cycle) scoresBy(by scorer, candidates []scoredCluster) report.PrioritizerResult {
	p := report.PrioritizerResult{Name: by.name, Weight: by.weight, Scores: make(map[string]int64, len(candidates))}
	for _, candidate := range candidates {
		name := candidate.cluster.name
		score, expired := by.plugin.score(candidate.cluster, &c.input)
		if p.Scores[name] = score; expired {
			p.Expired = append(p.Expired, name)
		}
	}
	slices.Sort(p.Expired)
	return p
}

// names returns the names of clusters, sorted.
func (sn *snapshot) names(which func(*cluster) bool) []string {
	names := []string{}
	for _, c := range sn.clusters.sorted {
		if which(c) {
			names = append(names, c.name)
		}
	}
	return names
}

// addReasons adds the reason for each cluster. Those of mismatches are still empty.
func (e *Explanation) addReasons(ctx context.Context, c *cycle, p *placement) *mismatches {
	selected := e.Result.reasons()
	whyNot := func(*cluster) string { return e.Result.Satisfied.Message }
	if p.class != nil {
		whyNot = newDiagnosis(c, p.class, selected).reason
	}
	mismatches := &mismatches{profile: p.spec.profile, now: c.now, costs: celselector.NewCosts(ctx, mismatchCost), clusters: map[int]cluster{}}
	for _, of := range c.clusters.sorted {
		if of.object == nil {
			continue
		}
		reason, yes := selected[of.name]
		if !yes {
			if reason = whyNot(of); reason == "" {
				mismatches.clusters[len(e.Clusters)] = *of
			}
		}
		e.Clusters = append(e.Clusters, ClusterReason{ClusterName: of.name, Selected: yes, Reason: reason})
	}
	return mismatches
}
