package placement

import (
	"cmp"
	"slices"
	"strings"
	"time"
)

// equivalenceClass is the placements of equal cluster sets and selection. They have the same candidates, with the same scores but
// for Balance and Steady.
type equivalenceClass struct {
	key        string
	namespace  string // of the placements, if there are CEL expressions: what these cost is its own
	sets       []*clusterSet
	profile    *profile
	placements map[Key]*placement

	candidates *candidateSet  // nil until it is needed
	evaluation *celEvaluation // nil without CEL expressions, and until it is needed
	asOf       time.Time      // the time for which standing holds
	nextChange time.Time      // when time changes something, at the earliest; zero is never
	lastUse    int64          // when a placement was last scheduled, for evicting
}

// classify puts a placement into the class of its cluster sets and selection.
func (s *Scheduler) classify(p *placement, n *namespace) {
	sets := filterSets(s.boundSets(n), p.object.Spec.ClusterSets)
	if len(sets) == 0 {
		s.leaveClass(p)
		return
	}
	key := classKey(p.key.Namespace, sets, p.spec.profile)
	if p.class != nil && p.class.key == key && slices.Equal(p.class.sets, sets) {
		return
	}
	s.leaveClass(p)
	class := s.classes[key]
	if class == nil || !slices.Equal(class.sets, sets) {
		class = &equivalenceClass{key: key, namespace: p.key.Namespace, sets: sets, profile: p.spec.profile, placements: map[Key]*placement{}}
		s.classes[key] = class
	}
	class.placements[p.key] = p
	p.class = class
}

func classKey(namespace string, sets []*clusterSet, profile *profile) string {
	var key strings.Builder
	if profile.cel {
		key.WriteString(namespace)
		key.WriteByte('\n')
	}
	for _, set := range sets {
		key.WriteString(set.name)
		key.WriteByte('\n')
	}
	key.WriteString(profile.signature)
	return key.String()
}

func (s *Scheduler) leaveClass(p *placement) {
	class := p.class
	if class == nil {
		return
	}
	p.class = nil
	delete(class.placements, p.key)
	if len(class.placements) > 0 {
		return
	}
	s.dropCandidates(class)
	s.cancelEvaluation(class)
	if s.classes[class.key] == class {
		delete(s.classes, class.key)
	}
}

// dropCandidates forgets the standing of a class. It is built anew when it is needed.
func (s *Scheduler) dropCandidates(class *equivalenceClass) {
	if class.candidates != nil {
		s.cachedCandidates -= class.candidates.size()
		class.candidates = nil
	}
}

// dropClassesOf drops the classes of a set of which many members have changed.
func (s *Scheduler) dropClassesOf(set *clusterSet, affected affected) {
	for _, class := range s.classes {
		if slices.Contains(class.sets, set) {
			s.dropCandidates(class)
			class.evaluateNewMembers()
			class.addAll(affected)
		}
	}
}

// evaluateNewMembers has placements wait until members were looked at that have come with a change of the cluster sets. What cost too
// much is tried again: fewer clusters may be left.
func (class *equivalenceClass) evaluateNewMembers() {
	switch e := class.evaluation; {
	case e == nil:
	case e.overBudget:
		class.evaluation = nil
	default:
		e.retain(class.members())
		e.complete = difference(class.members(), e.evaluated).empty()
	}
}

func (class *equivalenceClass) addAll(affected affected) {
	for _, p := range class.placements {
		affected.add(p)
	}
}

func (class *equivalenceClass) has(c *cluster) bool {
	for _, set := range class.sets {
		if set.members.has(c.id) {
			return true
		}
	}
	return false
}

// candidatesOf returns the standing of a class, which it builds when there is none.
func (s *Scheduler) candidatesOf(class *equivalenceClass) *candidateSet {
	s.useCount++
	class.lastUse = s.useCount
	if class.candidates != nil {
		return class.candidates
	}
	class.candidates, class.nextChange = s.buildCandidates(class)
	s.enqueue(class.evaluation)
	class.asOf = s.now
	s.scheduleAdvance(class.nextChange)
	s.cachedCandidates += class.candidates.size()
	s.evict(class)
	return class.candidates
}

// evict drops the classes that were not used for longest, to a quarter below the limit so that it is rarely needed.
func (s *Scheduler) evict(but *equivalenceClass) {
	if s.cachedCandidates <= s.options.CachedCandidates {
		return
	}
	var others []*equivalenceClass
	for _, class := range s.classes {
		if class != but && class.candidates != nil {
			others = append(others, class)
		}
	}
	slices.SortFunc(others, func(a, b *equivalenceClass) int { return cmp.Compare(a.lastUse, b.lastUse) })
	for _, class := range others {
		if s.cachedCandidates <= s.options.CachedCandidates/4*3 {
			return
		}
		s.dropCandidates(class)
	}
}

// scheduleAdvance makes sure that Advance looks at the classes at a time.
func (s *Scheduler) scheduleAdvance(at time.Time) { s.nextAdvance = earliest(s.nextAdvance, at) }
