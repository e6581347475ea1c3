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
func (cc *classCache) classify(p *placement) {
	sets := cc.snapshot.setsOf(p.object)
	if len(sets) == 0 {
		cc.leaveClass(p)
		return
	}
	key := classKey(p.key.Namespace, sets, p.spec.profile)
	if p.class != nil && p.class.key == key && slices.Equal(p.class.sets, sets) {
		p.spec.profile = p.class.profile
		return
	}
	cc.leaveClass(p)
	class := cc.byKey[key]
	if class == nil || !slices.Equal(class.sets, sets) {
		class = &equivalenceClass{key: key, namespace: p.key.Namespace, sets: sets, profile: p.spec.profile, placements: map[Key]*placement{}}
		cc.byKey[key] = class
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

func (cc *classCache) leaveClass(p *placement) {
	class := p.class
	if class == nil {
		return
	}
	p.class = nil
	delete(class.placements, p.key)
	if len(class.placements) > 0 {
		return
	}
	cc.dropCandidates(class)
	cc.evaluations.cancel(class)
	if cc.byKey[class.key] == class {
		delete(cc.byKey, class.key)
	}
}

// dropCandidates discards the candidates of a class. They are computed again when a placement is scheduled.
func (cc *classCache) dropCandidates(class *equivalenceClass) {
	if class.candidates != nil {
		cc.cachedCandidates -= class.candidates.size()
		class.candidates, class.discarded = nil, true
	}
}

// dropClassesOf discards the candidates of the classes with a cluster set, after its selector has changed. Placements wait until the CEL
// expressions were evaluated for clusters that are new to the set.
func (cc *classCache) dropClassesOf(set *clusterSet, affected affected) {
	for _, class := range cc.byKey {
		if slices.Contains(class.sets, set) {
			cc.retryOverBudget(class, affected) // there may be fewer clusters now
			cc.dropCandidates(class)
			if e := class.evaluation; e != nil {
				e.complete = cc.snapshot.retainMembers(e)
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
func (sn *snapshot) members(class *equivalenceClass) iter.Seq[*cluster] {
	return func(yield func(*cluster) bool) {
		for _, c := range sn.clusters.sorted {
			if class.has(c) && !yield(c) {
				return
			}
		}
	}
}

// candidatesOf returns the candidates of a class, which it computes if they are not cached.
func (cc *classCache) candidatesOf(class *equivalenceClass) *candidateSet {
	cc.useCount++
	class.lastUse = cc.useCount
	if class.candidates != nil {
		return class.candidates
	}
	class.candidates, class.nextChange = cc.framework.buildCandidates(class)
	cc.evaluations.enqueue(class.evaluation)
	class.asOf = cc.snapshot.now
	cc.snapshot.scheduleAdvance(class.nextChange)
	cc.cachedCandidates += class.candidates.size()
	cc.evict(class)
	return class.candidates
}

// evict discards the candidates of the least recently used classes, down to three quarters of the limit so that it rarely runs.
func (cc *classCache) evict(but *equivalenceClass) {
	if cc.cachedCandidates <= cc.limit {
		return
	}
	var others []*equivalenceClass
	for _, class := range cc.byKey {
		if class != but && class.candidates != nil {
			others = append(others, class)
		}
	}
	slices.SortFunc(others, func(a, b *equivalenceClass) int { return cmp.Compare(a.lastUse, b.lastUse) })
	for _, class := range others {
		if cc.cachedCandidates <= cc.limit/4*3 {
			return
		}
		cc.dropCandidates(class)
	}
}

// scheduleAdvance makes Advance update the classes at a time.
func (sn *snapshot) scheduleAdvance(at time.Time) { sn.nextAdvance = earliest(sn.nextAdvance, at) }
