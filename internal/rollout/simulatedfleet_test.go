package rollout

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/util/intstr"

	clusterv1alpha1 "github.com/capstan-io/capstan/api/cluster/v1alpha1"
)

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
	states []stateChange
}

// stateChange is a state that a cluster comes into.
type stateChange struct {
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
			{GroupName: "canary"}, {GroupName: "east"}, {GroupName: "none"}, {GroupIndex: 1}, {GroupIndex: 0}}[s.random.IntN(5)])
	}
	for range s.random.IntN(30) {
		s.addCluster()
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

// randomStates is what a cluster that begins now is going to do.
func (s *simulation) randomStates() []stateChange {
	at := func(minutes int) time.Time { return s.now.Add(time.Duration(minutes)*time.Minute + time.Second) }
	first, second := s.random.IntN(25), 25+s.random.IntN(25)
	switch dice := s.random.IntN(40); {
	case dice < 30:
		return []stateChange{{at(first), Succeeded}}
	case dice < 33:
		return []stateChange{{at(first), Failed}}
	case dice < 35:
		return []stateChange{{at(first), Failed}, {at(second), Succeeded}}
	case dice < 37:
		return []stateChange{{at(first), Succeeded}, {at(second), Failed}}
	case dice < 38:
		return []stateChange{{at(first), Failed}, {at(second), Progressing}, {at(second + 3), Succeeded}}
	case dice < 39:
		return []stateChange{{at(first), TimeOut}}
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
		if len(c.states) > 0 {
			candidates = append(candidates, c.states[0].at)
		}
	}
	for _, at := range candidates {
		if !at.IsZero() && (next.IsZero() || at.Before(next)) {
			next = at
		}
	}
	return next, !next.IsZero()
}

// applyNextEvents is what clusters do by now, and sometimes a change of the fleet.
func (s *simulation) applyNextEvents() {
	for _, name := range s.names() {
		c := s.fleet[name]
		for len(c.states) > 0 && !c.states[0].at.After(s.now) {
			c.State, c.Since = c.states[0].state, c.states[0].at
			c.states = c.states[1:]
		}
	}
	if s.changes == 0 || s.random.IntN(4) > 0 {
		return
	}
	s.changes--
	names := s.names()
	if dice := s.random.IntN(3); dice == 0 || len(names) == 0 {
		s.addCluster()
	} else if c := s.fleet[names[s.random.IntN(len(names))]]; dice == 1 {
		c.Deselected = true
	} else {
		c.Group = s.randomGroup()
	}
}

func (s *simulation) addCluster() {
	s.newcomer++
	// Names do not follow the order of appearance.
	name := fmt.Sprintf("c%02d-%d", s.random.IntN(100), s.newcomer)
	c := &simulated{Cluster: Cluster{Name: name, Group: s.randomGroup(), State: ToApply}}
	switch s.random.IntN(20) {
	case 0:
		c.State = Skip
	case 1:
		c.State, c.Since = Succeeded, s.now.Add(-time.Hour)
	}
	s.fleet[name] = c
}

func (s *simulation) randomGroup() Group {
	index := s.random.IntN(len(groupNames))
	return Group{Index: int32(index), Name: groupNames[index]}
}

func (s *simulation) names() []string { return slices.Sorted(maps.Keys(s.fleet)) }
