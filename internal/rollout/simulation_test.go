package rollout

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/util/intstr"

	clusterv1alpha1 "github.com/capstan-io/capstan/api/cluster/v1alpha1"
)

// AM-20: in random fleets, whose clusters succeed, fail, recover, hang, appear, move and disappear, with random
// strategies, no rollout breaks a rule, and all of them end.
func TestSimulation(t *testing.T) {
	t.Parallel()
	var ends = map[string]int{}
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

// simulation is a fleet with a rollout. It keeps its own account of the rules, in the words of AM-20.
type simulation struct {
	t        *testing.T
	seed     uint64
	random   *rand.Rand
	now      time.Time
	kind     clusterv1alpha1.RolloutType
	config   limits
	fleet    map[string]*simulated
	changes  int // How often clusters are still to appear, move and disappear.
	newcomer int
}

// limits are what the strategy says, as the simulation drew it.
type limits struct {
	soak, deadline           time.Duration
	concurrency, failures    int
	concurrencyPct, failsPct bool
	mandatory                []clusterv1alpha1.MandatoryDecisionGroup
}

// simulated is a cluster and what it will do.
type simulated struct {
	Cluster
	fate []turn
}

// turn is a state that a cluster comes into.
type turn struct {
	at    time.Time
	state State
}

var groupNames = []string{"canary", "", "canary", "east", ""} // by index

func newSimulation(t *testing.T, seed uint64) *simulation {
	s := &simulation{t: t, seed: seed, random: rand.New(rand.NewPCG(seed, 0)), now: now, fleet: map[string]*simulated{}}
	kinds := []clusterv1alpha1.RolloutType{clusterv1alpha1.All, clusterv1alpha1.Progressive, clusterv1alpha1.ProgressivePerGroup}
	s.kind = kinds[s.random.IntN(len(kinds))]
	s.config = limits{
		soak: s.minutes(0, 5), deadline: s.minutes(0, 20), concurrency: s.random.IntN(8), failures: s.random.IntN(5),
	}
	if s.random.IntN(3) == 0 {
		s.config.concurrencyPct, s.config.concurrency = true, s.random.IntN(101)
	}
	if s.random.IntN(3) == 0 {
		s.config.failsPct, s.config.failures = true, s.random.IntN(101)
	}
	for range s.random.IntN(3) {
		s.config.mandatory = append(s.config.mandatory, []clusterv1alpha1.MandatoryDecisionGroup{
			{GroupName: "canary"}, {GroupName: "east"}, {GroupName: "nobody"}, {GroupIndex: 1}, {GroupIndex: 0}}[s.random.IntN(5)])
	}
	for range s.random.IntN(30) {
		s.appear()
	}
	s.changes = s.random.IntN(10)
	return s
}

// minutes are none in a third of all cases.
func (s *simulation) minutes(least, most int) time.Duration {
	if s.random.IntN(3) == 0 {
		return 0
	}
	return time.Duration(least+s.random.IntN(most-least+1)) * time.Minute
}

func (s *simulation) strategy() clusterv1alpha1.RolloutStrategy {
	number := func(value int, percent bool) *intstr.IntOrString {
		result := intstr.FromInt(value)
		if percent {
			result = intstr.FromString(fmt.Sprintf("%d%%", value))
		}
		return &result
	}
	config := clusterv1alpha1.RolloutConfig{
		MinSuccessTime: s.config.soak.String(), ProgressDeadline: "None", MaxFailures: number(s.config.failures, s.config.failsPct),
	}
	if s.config.deadline > 0 {
		config.ProgressDeadline = s.config.deadline.String()
	}
	result := strategyOf(s.kind, config, number(s.config.concurrency, s.config.concurrencyPct))
	result.Progressive.MandatoryDecisionGroups.MandatoryDecisionGroups = s.config.mandatory
	result.ProgressivePerGroup.MandatoryDecisionGroups.MandatoryDecisionGroups = s.config.mandatory
	return result
}

// run lets things happen until nothing happens any more, and says how it ended.
func (s *simulation) run() (end string) {
	const manyRounds = 2000
	for range manyRounds {
		plan := s.decide()
		s.obey(plan)
		next, found := s.nextEvent(plan)
		if !found {
			return s.end(plan)
		}
		s.now = next
		s.happen()
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
	if !slices.Equal(plan.Clusters, again.Clusters) || plan.Phase != again.Phase || plan.Message != again.Message || !plan.Next.Equal(again.Next) {
		s.fail("the order of the input matters:\n%v\n%v", plan, again)
	}
	return plan
}

// obey holds the plan against the rules, and does what it says.
func (s *simulation) obey(plan Plan) {
	s.checkNext(plan)
	s.checkBegun(plan)
	for _, c := range plan.Clusters {
		cluster := s.fleet[c.Name]
		if (c.Verdict == Remove) != cluster.Deselected {
			s.fail("%s is %s, deselected: %t", c.Name, c.Verdict, cluster.Deselected)
		}
		switch c.Verdict {
		case Remove:
			delete(s.fleet, c.Name)
		case Begin:
			if cluster.State != ToApply {
				s.fail("%s begins as %s", c.Name, cluster.State)
			}
			cluster.State, cluster.Since = Progressing, s.now
			cluster.fate = s.drawFate()
		}
	}
}

func (s *simulation) checkNext(plan Plan) {
	var want time.Time
	if len(plan.Names(Begin)) > 0 && s.config.deadline > 0 {
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

// checkBegun are the rules of the task: order, slots and failures.
func (s *simulation) checkBegun(plan Plan) {
	begun := plan.Names(Begin)
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
	if len(begun) == 0 {
		if waiting > 0 && inFlight == 0 && !tooMany {
			s.fail("%d clusters wait for nothing: %s", waiting, plan.Message)
		}
		return
	}
	if tooMany {
		s.fail("%v begin in spite of the failures", begun)
	}
	stage := s.stage(s.fleet[begun[0]])
	slots := len(begun)
	for _, c := range s.fleet {
		if c.Deselected {
			continue
		}
		switch at := s.stage(c); {
		case at < stage && s.kind != clusterv1alpha1.All && (c.State == ToApply || s.inFlight(c)):
			s.fail("%v begin before %s of an earlier stage is done: %s", begun, c.Name, c.State)
		case at < stage && at < len(s.config.mandatory) && c.State != Succeeded && c.State != Skip:
			s.fail("%v begin although %s of a mandatory group is %s", begun, c.Name, c.State)
		case at != stage && slices.Contains(begun, c.Name):
			s.fail("%v are of several stages", begun)
		case at == stage && s.inFlight(c):
			slots++
		}
	}
	if s.kind == clusterv1alpha1.Progressive && stage == restOfPlacement && slots > s.maxConcurrency() {
		s.fail("%v begin: %d in flight, limit %d", begun, slots, s.maxConcurrency())
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
// Groups of one mandatory entry come by their index, for which the fraction stands.
func (s *simulation) stage(c *simulated) int {
	for i, m := range s.config.mandatory {
		if s.kind != clusterv1alpha1.All && (m.GroupName == c.Group.Name && m.GroupName != "" || m.GroupName == "" && m.GroupIndex == c.Group.Index) {
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

// drawFate is what a cluster that begins now is going to do.
func (s *simulation) drawFate() []turn {
	at := func(minutes int) time.Time { return s.now.Add(time.Duration(minutes)*time.Minute + time.Second) }
	first, second := s.random.IntN(25), 25+s.random.IntN(25)
	switch dice := s.random.IntN(40); {
	case dice < 30:
		return []turn{{at(first), Succeeded}}
	case dice < 33:
		return []turn{{at(first), Failed}}
	case dice < 35:
		return []turn{{at(first), Failed}, {at(second), Succeeded}}
	case dice < 37:
		return []turn{{at(first), Succeeded}, {at(second), Failed}}
	case dice < 38:
		return []turn{{at(first), Failed}, {at(second), Progressing}, {at(second + 3), Succeeded}}
	case dice < 39:
		return []turn{{at(first), TimeOut}}
	default:
		return nil // hangs
	}
}

// nextEvent is when something happens next.
func (s *simulation) nextEvent(plan Plan) (next time.Time, found bool) {
	candidates := []time.Time{plan.Next}
	if s.changes > 0 {
		candidates = append(candidates, s.now.Add(time.Duration(s.random.IntN(10))*time.Minute))
	}
	for _, c := range s.fleet {
		if len(c.fate) > 0 {
			candidates = append(candidates, c.fate[0].at)
		}
	}
	for _, at := range candidates {
		if !at.IsZero() && (next.IsZero() || at.Before(next)) {
			next = at
		}
	}
	return next, !next.IsZero()
}

// happen is what clusters do by now, and sometimes a change of the fleet.
func (s *simulation) happen() {
	for _, name := range s.names() {
		c := s.fleet[name]
		for len(c.fate) > 0 && !c.fate[0].at.After(s.now) {
			c.State, c.Since = c.fate[0].state, c.fate[0].at
			c.fate = c.fate[1:]
		}
	}
	if s.changes == 0 || s.random.IntN(4) > 0 {
		return
	}
	s.changes--
	names := s.names()
	if dice := s.random.IntN(3); dice == 0 || len(names) == 0 {
		s.appear()
	} else if c := s.fleet[names[s.random.IntN(len(names))]]; dice == 1 {
		c.Deselected = true
	} else {
		c.Group = s.drawGroup()
	}
}

func (s *simulation) appear() {
	s.newcomer++
	// Names do not follow the order of appearance.
	name := fmt.Sprintf("c%02d-%d", s.random.IntN(100), s.newcomer)
	c := &simulated{Cluster: Cluster{Name: name, Group: s.drawGroup(), State: ToApply}}
	switch s.random.IntN(20) {
	case 0:
		c.State = Skip
	case 1:
		c.State, c.Since = Succeeded, s.now.Add(-time.Hour)
	}
	s.fleet[name] = c
}

func (s *simulation) drawGroup() Group {
	index := s.random.IntN(len(groupNames))
	return Group{Index: int32(index), Name: groupNames[index]}
}

func (s *simulation) names() []string { return slices.Sorted(maps.Keys(s.fleet)) }

// end is right when the rollout is over, or has stopped, or waits for a cluster that hangs and has no deadline.
func (s *simulation) end(plan Plan) string {
	hanging := len(plan.Names(InProgress))+len(plan.Names(Begin)) > 0 && s.config.deadline == 0
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
			s.fail("rolls for ever: %s", plan.Message)
		}
		return "hanging"
	default:
		s.fail("is %s: %s", plan.Phase, plan.Message)
	}
	return string(plan.Phase)
}
