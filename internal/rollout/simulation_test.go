package rollout

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"testing"
	"time"

	clusterv1alpha1 "github.com/capstan-io/capstan/api/cluster/v1alpha1"
)

// AM-20: in random fleets, whose clusters succeed, fail, recover, hang, appear, move and disappear, with random
// strategies, no rollout breaks a rule, and all of them end.
func TestSimulation(t *testing.T) {
	t.Parallel()
	ends := map[string]int{}
	for seed := range uint64(3000) {
		ends[newSimulation(t, seed).run()]++
	}
	t.Logf("%v", ends)
	// Were the fleets too kind or too unkind, the rules would not be put to the test.
	for _, end := range []string{"Complete", "Stopped", "hanging"} {
		if ends[end] < 100 {
			t.Errorf("only %d of 3000 rollouts are %s in the end", ends[end], end)
		}
	}
}

// FuzzSimulation looks for a seed that breaks a rule.
func FuzzSimulation(f *testing.F) {
	f.Add(uint64(1 << 40))
	f.Fuzz(func(t *testing.T, seed uint64) { newSimulation(t, seed).run() })
}

// run lets things happen until nothing happens any more, and says how it ended.
func (s *simulation) run() (end string) {
	const manyRounds = 2000
	for range manyRounds {
		plan := s.decide()
		s.apply(plan)
		next, found := s.nextEvent(plan)
		if !found {
			return s.end(plan)
		}
		s.now = next
		s.applyNextEvents()
	}
	s.fail("does not end")
	return ""
}

func (s *simulation) fail(format string, args ...any) {
	s.t.Helper()
	s.t.Fatalf("seed %d, %s %+v: %s", s.seed, s.kind, s.config, fmt.Sprintf(format, args...))
}

// decide asks twice, in different orders.
func (s *simulation) decide() Plan {
	input := Input{Strategy: s.strategy(), Now: s.now}
	for _, name := range s.names() {
		input.Clusters = append(input.Clusters, s.fleet[name].Cluster)
	}
	plan := Decide(input)
	input.Clusters = slices.Clone(input.Clusters)
	s.random.Shuffle(len(input.Clusters), func(i, j int) {
		input.Clusters[i], input.Clusters[j] = input.Clusters[j], input.Clusters[i]
	})
	again := Decide(input)
	slices.SortFunc(again.Clusters, func(a, b ClusterPlan) int { return cmp.Compare(a.Name, b.Name) })
	if !slices.Equal(plan.Clusters, again.Clusters) || plan.Phase != again.Phase || plan.Message != again.Message ||
		!plan.Next.Equal(again.Next) {
		s.fail("the order of the input matters:\n%v\n%v", plan, again)
	}
	return plan
}

// apply holds the plan against the rules, and does what it says.
func (s *simulation) apply(plan Plan) {
	s.checkNext(plan)
	s.checkStarted(plan)
	for _, c := range plan.Clusters {
		cluster := s.fleet[c.Name]
		if (c.Phase == Remove) != cluster.Deselected {
			s.fail("%s is %s, deselected: %t", c.Name, c.Phase, cluster.Deselected)
		}
		switch c.Phase {
		case Remove:
			delete(s.fleet, c.Name)
		case Start:
			if cluster.State != ToApply {
				s.fail("%s begins as %s", c.Name, cluster.State)
			}
			cluster.State, cluster.Since = Progressing, s.now
			cluster.states = s.randomStates()
		}
	}
}

func (s *simulation) checkNext(plan Plan) {
	var want time.Time
	if len(plan.Names(Start)) > 0 && s.config.deadline > 0 {
		want = s.now.Add(s.config.deadline)
	}
	for _, c := range s.fleet {
		var due time.Time
		switch {
		case c.Deselected:
			continue
		case (c.State == Progressing || c.State == Failed) && s.config.deadline > 0:
			due = c.Since.Add(s.config.deadline)
		case c.State == Succeeded && s.kind != clusterv1alpha1.All:
			due = c.Since.Add(s.config.soak)
		}
		if due.After(s.now) && (want.IsZero() || due.Before(want)) {
			want = due
		}
	}
	if !plan.Next.Equal(want) {
		s.fail("next is %s, want %s", plan.Next, want)
	}
}

// checkStarted are the rules on who may start: order, slots and failures.
func (s *simulation) checkStarted(plan Plan) {
	started := plan.Names(Start)
	inFlight, waiting := 0, 0
	for _, c := range s.fleet {
		if !c.Deselected && s.inFlight(c) {
			inFlight++
		}
		if !c.Deselected && c.State == ToApply {
			waiting++
		}
	}
	tooMany := s.kind != clusterv1alpha1.All && s.tooManyFailures()
	if len(started) == 0 {
		if waiting > 0 && inFlight == 0 && !tooMany {
			s.fail("%d clusters wait for nothing: %s", waiting, plan.Message)
		}
		return
	}
	if tooMany {
		s.fail("%v begin in spite of the failures", started)
	}
	stage := s.stage(s.fleet[started[0]])
	slots := len(started)
	for _, c := range s.fleet {
		if c.Deselected {
			continue
		}
		switch at := s.stage(c); {
		case at < stage && s.kind != clusterv1alpha1.All && (c.State == ToApply || s.inFlight(c)):
			s.fail("%v begin before %s of an earlier stage is done: %s", started, c.Name, c.State)
		case at < stage && at < len(s.config.mandatory) && c.State != Succeeded && c.State != Skip:
			s.fail("%v begin although %s of a mandatory group is %s", started, c.Name, c.State)
		case at != stage && slices.Contains(started, c.Name):
			s.fail("%v are of several stages", started)
		case at == stage && s.inFlight(c):
			slots++
		}
	}
	if s.kind == clusterv1alpha1.Progressive && stage == restOfPlacement && slots > s.maxConcurrency() {
		s.fail("%v begin: %d in flight, limit %d", started, slots, s.maxConcurrency())
	}
}

// inFlight is the rule of the soak and of the deadline.
func (s *simulation) inFlight(c *simulated) bool {
	age := s.now.Sub(c.Since)
	switch c.State {
	case Progressing:
		return s.config.deadline == 0 || age < s.config.deadline
	case Failed:
		return age < s.config.deadline
	case Succeeded:
		return s.kind != clusterv1alpha1.All && age < s.config.soak
	default:
		return false
	}
}

func (s *simulation) hasFailed(c *simulated) bool {
	overdue := c.State == Progressing && !s.inFlight(c)
	return !c.Deselected && (c.State == Failed || c.State == TimeOut || overdue)
}

// restOfPlacement is the stage of Progressive after all mandatory groups.
const restOfPlacement = 1000

// stage puts numbers on the stages, in their order: 0 and up are mandatory groups, restOfPlacement and up the others.
// Groups of one mandatory entry come by their index, by which the numbers of one entry differ.
func (s *simulation) stage(c *simulated) int {
	for i, m := range s.config.mandatory {
		if s.kind != clusterv1alpha1.All && (m.GroupName == c.Group.Name && m.GroupName != "" || m.GroupName == "" &&
			m.GroupIndex == c.Group.Index) {
			return i*10 + int(c.Group.Index)
		}
	}
	if s.kind == clusterv1alpha1.ProgressivePerGroup {
		return restOfPlacement + int(c.Group.Index)
	}
	return restOfPlacement
}

func (s *simulation) tooManyFailures() bool {
	failures, sizes, total := map[int]int{}, map[int]int{}, 0
	for _, c := range s.fleet {
		if c.Deselected {
			continue
		}
		total++
		sizes[s.stage(c)]++
		if s.hasFailed(c) {
			failures[s.stage(c)]++
		}
	}
	for stage, failed := range failures {
		of := sizes[stage]
		if s.kind == clusterv1alpha1.Progressive {
			of = total
		}
		limit := s.config.failures
		if s.config.failsPct {
			limit = roundUp(limit, of)
		}
		if stage < restOfPlacement {
			limit = 0
		}
		if failed > limit {
			return true
		}
	}
	return false
}

func (s *simulation) maxConcurrency() int {
	rest := 0
	for _, c := range s.fleet {
		if !c.Deselected && s.stage(c) == restOfPlacement {
			rest++
		}
	}
	limit := s.config.concurrency
	if s.config.concurrencyPct {
		limit = roundUp(limit, rest)
	}
	return max(limit, 1)
}

func roundUp(percent, of int) int { return int(math.Ceil(float64(percent*of) / 100)) }

// end is right when the rollout is over, or has stopped, or waits for a cluster that hangs and has no deadline.
func (s *simulation) end(plan Plan) string {
	hanging := len(plan.Names(InProgress))+len(plan.Names(Start)) > 0 && s.config.deadline == 0
	switch plan.Phase {
	case Complete:
		if len(plan.Names(Waiting)) > 0 {
			s.fail("complete, with clusters waiting")
		}
	case Stopped:
		if !s.tooManyFailures() {
			s.fail("stopped without reason: %s", plan.Message)
		}
	case Rolling:
		if !hanging {
			s.fail("the rollout does not end: %s", plan.Message)
		}
		return "hanging"
	default:
		s.fail("is %s: %s", plan.Phase, plan.Message)
	}
	return string(plan.Phase)
}
