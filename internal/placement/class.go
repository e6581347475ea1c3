package placement

import (
	"cmp"
	"slices"
	"strings"
	"time"
)

// class is the placements of equal cluster sets and selection. They have the same candidates, with the same scores but
// for Balance and Steady.
type class struct {
	key        string
	namespace  string // of the placements, if there are CEL expressions: what these cost is its own
	sets       []*clusterSet
	selection  *selection
	placements map[Key]*placement

	standing   *standing   // nil until it is needed
	evaluation *evaluation // nil without CEL expressions, and until it is needed
	asOf       time.Time   // the time for which standing holds
	next       time.Time   // when time changes something, at the earliest; zero is never
	used       int64       // when a placement was last scheduled, for evicting
}

// classify puts a placement into the class of its cluster sets and selection.
func (s *Scheduler) classify(p *placement, n *namespace) {
	sets := chosen(s.bound(n), p.object.Spec.ClusterSets)
	if len(sets) == 0 {
		s.leave(p)
		return
	}
	key := classKey(p.key.Namespace, sets, p.plan.selection)
	if p.class != nil && p.class.key == key && slices.Equal(p.class.sets, sets) {
		return
	}
	s.leave(p)
	cls := s.classes[key]
	if cls == nil || !slices.Equal(cls.sets, sets) {
		cls = &class{key: key, namespace: p.key.Namespace, sets: sets, selection: p.plan.selection, placements: map[Key]*placement{}}
		s.classes[key] = cls
	}
	cls.placements[p.key] = p
	p.class = cls
}

func classKey(namespace string, sets []*clusterSet, selection *selection) string {
	var key strings.Builder
	if selection.cel {
		key.WriteString(namespace)
		key.WriteByte('\n')
	}
	for _, set := range sets {
		key.WriteString(set.name)
		key.WriteByte('\n')
	}
	key.WriteString(selection.signature)
	return key.String()
}

func (s *Scheduler) leave(p *placement) {
	cls := p.class
	if cls == nil {
		return
	}
	p.class = nil
	delete(cls.placements, p.key)
	if len(cls.placements) > 0 {
		return
	}
	s.drop(cls)
	s.dropEvaluation(cls)
	if s.classes[cls.key] == cls {
		delete(s.classes, cls.key)
	}
}

// drop forgets the standing of a class. It is built anew when it is needed.
func (s *Scheduler) drop(cls *class) {
	if cls.standing != nil {
		s.cached -= cls.standing.size()
		cls.standing = nil
	}
}

// dropClassesOf drops the classes of a set of which many members have changed.
func (s *Scheduler) dropClassesOf(set *clusterSet, found affected) {
	for _, cls := range s.classes {
		if slices.Contains(cls.sets, set) {
			s.drop(cls)
			cls.evaluateNewMembers()
			cls.addAll(found)
		}
	}
}

// evaluateNewMembers has placements wait until members were looked at that have come with a change of the cluster sets. What cost too
// much is tried again: fewer clusters may be left.
func (cls *class) evaluateNewMembers() {
	switch e := cls.evaluation; {
	case e == nil:
	case e.tooDear:
		cls.evaluation = nil
	default:
		e.keep(cls.members())
		e.complete = without(cls.members(), e.seen).empty()
	}
}

func (cls *class) addAll(found affected) {
	for _, p := range cls.placements {
		found.add(p)
	}
}

func (cls *class) has(c *cluster) bool {
	for _, set := range cls.sets {
		if set.members.has(c.id) {
			return true
		}
	}
	return false
}

// stand returns the standing of a class, which it builds when there is none.
func (s *Scheduler) stand(cls *class) *standing {
	s.uses++
	cls.used = s.uses
	if cls.standing != nil {
		return cls.standing
	}
	cls.standing, cls.next = s.build(cls)
	s.queue(cls.evaluation)
	cls.asOf = s.now
	s.wake(cls.next)
	s.cached += cls.standing.size()
	s.evict(cls)
	return cls.standing
}

// evict drops the classes that were not used for longest, to a quarter below the limit so that it is rarely needed.
func (s *Scheduler) evict(but *class) {
	if s.cached <= s.options.CachedCandidates {
		return
	}
	var others []*class
	for _, cls := range s.classes {
		if cls != but && cls.standing != nil {
			others = append(others, cls)
		}
	}
	slices.SortFunc(others, func(a, b *class) int { return cmp.Compare(a.used, b.used) })
	for _, cls := range others {
		if s.cached <= s.options.CachedCandidates/4*3 {
			return
		}
		s.drop(cls)
	}
}

// wake makes sure that Advance looks at the classes at a time.
func (s *Scheduler) wake(at time.Time) { s.next = earliest(s.next, at) }
