package placement

import (
	"cmp"
	"iter"
	"slices"
	"strings"
	"time"
)

// equivalenceClass is the placements with the same cluster sets and the same profile. They have the same candidates with the same base
// scores, which are computed once for all of them; only Balance and Steady differ. Placements with CEL expressions share a class only
// within a namespace, as the costs of the expressions are accounted to the namespace.
type equivalenceClass struct {
	key        string
	namespace  string // of the placements, if they have CEL expressions
	sets       []*clusterSet
	profile    *profile
	placements map[Key]*placement

	candidates *candidateSet  // nil until a placement is scheduled
	discarded  bool           // from when candidates are discarded until an event has affected all placements for lack of them
	evaluation *celEvaluation // nil without CEL expressions, and until a placement is scheduled
	asOf       time.Time      // the time for which candidates hold
	nextChange time.Time      // when a toleration or score expires at the earliest; zero is never
	lastUse    int64          // the useCount at which a placement was last scheduled, for evict
}

// classCache has the equivalence classes. It keeps their candidates and CEL results up to date, and bounds how many candidates they have.
type classCache struct {
	snapshot    *snapshot
	framework   *framework
	evaluations *evaluations

	byKey            map[string]*equivalenceClass
	limit            int   // of cachedCandidates
	cachedCandidates int   // of all classes together
	useCount         int64 // counts calls of candidatesOf, for evict
}

// classify moves a placement to the class of its cluster sets and profile.
func (s *classCache) classify(p *placement) {
	sets := s.snapshot.setsOf(p.object)
	if len(sets) == 0 {
		s.leaveClass(p)
		return
	}
	key := classKey(p.key.Namespace, sets, p.spec.profile)
	if p.class != nil && p.class.key == key && slices.Equal(p.class.sets, sets) {
		p.spec.profile = p.class.profile
		return
	}
	s.leaveClass(p)
	class := s.byKey[key]
	if class == nil || !slices.Equal(class.sets, sets) {
		class = &equivalenceClass{key: key, namespace: p.key.Namespace, sets: sets, profile: p.spec.profile, placements: map[Key]*placement{}}
		s.byKey[key] = class
	}
	class.placements[p.key] = p
	p.class, p.spec.profile = class, class.profile
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

func (s *classCache) leaveClass(p *placement) {
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
	s.evaluations.cancel(class)
	if s.byKey[class.key] == class {
		delete(s.byKey, class.key)
	}
}

// dropCandidates discards the candidates of a class. They are computed again when a placement is scheduled.
func (s *classCache) dropCandidates(class *equivalenceClass) {
	if class.candidates != nil {
		s.cachedCandidates -= class.candidates.size()
		class.candidates, class.discarded = nil, true
	}
}

// dropClassesOf discards the candidates of the classes with a cluster set, after its selector has changed. Placements wait until the CEL
// expressions were evaluated for clusters that are new to the set.
func (s *classCache) dropClassesOf(set *clusterSet, affected affected) {
	for _, class := range s.byKey {
		if slices.Contains(class.sets, set) {
			s.retryOverBudget(class, affected) // there may be fewer clusters now
			s.dropCandidates(class)
			if e := class.evaluation; e != nil {
				e.complete = s.snapshot.retainMembers(e)
			}
			class.addAll(affected)
		}
	}
}

func (class *equivalenceClass) addAll(affected affected) {
	for _, p := range class.placements {
		affected.add(p)
	}
}

// has reports whether a cluster is a member of one of the cluster sets.
func (class *equivalenceClass) has(c *cluster) bool {
	return slices.ContainsFunc(c.sets, func(set *clusterSet) bool { return slices.Contains(class.sets, set) })
}

// members iterates over the members of the cluster sets of a class, by name.
func (s *snapshot) members(class *equivalenceClass) iter.Seq[*cluster] {
	return func(yield func(*cluster) bool) {
		for _, c := range s.clusters.sorted {
			if class.has(c) && !yield(c) {
				return
			}
		}
	}
}

// candidatesOf returns the candidates of a class, which it computes if they are not cached.
func (s *classCache) candidatesOf(class *equivalenceClass) *candidateSet {
	s.useCount++
	class.lastUse = s.useCount
	if class.candidates != nil {
		return class.candidates
	}
	class.candidates, class.nextChange = s.framework.buildCandidates(class)
	s.evaluations.enqueue(class.evaluation)
	class.asOf = s.snapshot.now
	s.snapshot.scheduleAdvance(class.nextChange)
	s.cachedCandidates += class.candidates.size()
	s.evict(class)
	return class.candidates
}

// evict discards the candidates of the least recently used classes, down to three quarters of the limit so that it rarely runs.
func (s *classCache) evict(but *equivalenceClass) {
	if s.cachedCandidates <= s.limit {
		return
	}
	var others []*equivalenceClass
	for _, class := range s.byKey {
		if class != but && class.candidates != nil {
			others = append(others, class)
		}
	}
	slices.SortFunc(others, func(a, b *equivalenceClass) int { return cmp.Compare(a.lastUse, b.lastUse) })
	for _, class := range others {
		if s.cachedCandidates <= s.limit/4*3 {
			return
		}
		s.dropCandidates(class)
	}
}

// scheduleAdvance makes Advance update the classes at a time.
func (s *snapshot) scheduleAdvance(at time.Time) { s.nextAdvance = earliest(s.nextAdvance, at) }
