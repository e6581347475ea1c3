package placement

import (
	"slices"
	"time"
)

// standing is how the clusters stand with a class: who is a candidate, and with what score. Candidates that are open to
// all its placements have a seat, in the order of their ids.
type standing struct {
	inSets  bitset // members of the cluster sets
	matched bitset // of those, meet the predicates
	open    bitset // of those, have no taint that matters
	held    bitset // have a taint that only placements that select them already do not mind
	avoided bitset // have a taint because of which they rank last
	expired bitset // open ones of which a score that matters has expired
	counts  *counts

	among spans // of open ones
	ids   []int32
	keys  []int64 // by seat: the sum of weighted scores, less penalty if avoided
	board board
	first []int32 // seats by the names of their clusters, the first ones; nil when they are not known
}

// counts are the sizes of the sets of a standing; nil after it has changed.
type counts struct{ inSets, matched int }

func (st *standing) count() {
	if st.counts == nil {
		st.counts = &counts{inSets: st.inSets.count(), matched: st.matched.count()}
	}
}

// penalty ranks clusters with a PreferNoSelect taint behind all others. It is far above any sum of scores.
const penalty = int64(1) << 40

// size is what a standing weighs, in candidates. Bitsets weigh little.
func (st *standing) size() int { return len(st.ids) + len(st.inSets) }

func (st *standing) seat(id int32) (int, bool) { return slices.BinarySearch(st.ids, id) }

// build finds the candidates of a class as of now, and the time that changes them. Of a class that is pending there are none.
func (s *Scheduler) build(cls *class) (st *standing, next time.Time) {
	s.fleet.order()
	st = &standing{inSets: cls.members()}
	if cls.selection.cel {
		next = s.recall(cls, st)
	} else {
		next = s.match(st, cls.selection)
	}
	if !cls.pending() {
		s.admit(st, cls.selection)
		s.reseat(st, cls.selection)
	}
	return st, next
}

// admit finds those of the matching clusters whose taints do not matter.
func (s *Scheduler) admit(st *standing, selection *selection) {
	defer s.timed(PluginFilter, FilterTaintToleration)()
	for id := range st.matched.all() {
		c := s.fleet.clusters[id]
		st.enter(c, selection.look(c, s.now))
		if st.open.has(id) {
			st.among.include(c, &selection.measures)
		}
	}
}

// reseat gives all open candidates seats and keys anew.
func (s *Scheduler) reseat(st *standing, selection *selection) {
	st.ids = slices.AppendSeq(slices.Grow(st.ids[:0], st.open.count()), st.open.all())
	st.keys = slices.Grow(st.keys[:0], len(st.ids))[:len(st.ids)]
	for seat, id := range st.ids {
		st.keys[seat] = avoidance(st.avoided.has(id))
		st.expired.clear(id)
	}
	for i := range selection.sources {
		s.prioritize(st, &selection.sources[i])
	}
	st.first = nil
	st.board.sort(st, s.fleet.ranks)
}

// prioritize adds the weighted scores of a source to the keys.
func (s *Scheduler) prioritize(st *standing, by *source) {
	defer s.timed(PluginPrioritizer, by.plugin())()
	for seat, id := range st.ids {
		score, stale := by.score(s.fleet.clusters[id], &st.among, s.now)
		st.keys[seat] += by.weight * score
		if stale {
			st.expired.set(id)
		}
	}
}

// verdict is what a member of the cluster sets is to a selection by itself.
type verdict struct {
	matched, open, held, avoided bool
}

// judge goes by what is known of CEL expressions.
func (cls *class) judge(c *cluster, now time.Time) verdict {
	matched := false
	if cls.evaluation != nil {
		matched = cls.evaluation.matched.has(c.id)
	} else {
		matched = cls.selection.match(c, now, nil)
	}
	if !matched {
		return verdict{}
	}
	return cls.selection.look(c, now)
}

// look is the verdict on a cluster that meets the predicates.
func (s *selection) look(c *cluster, now time.Time) verdict {
	t := s.tolerate(c, now)
	return verdict{
		matched: true,
		open:    t.repelled == nil && t.held == nil,
		held:    t.repelled == nil && t.held != nil,
		avoided: t.avoided != nil,
	}
}

func (st *standing) enter(c *cluster, v verdict) {
	st.matched.put(c.id, v.matched)
	st.open.put(c.id, v.open)
	st.held.put(c.id, v.held)
	st.avoided.put(c.id, v.avoided)
}

// include widens the spans of the resources that matter.
func (s *spans) include(c *cluster, measures *[len(resourceNames)]bool) {
	for i, measured := range measures {
		if measured {
			s[i].include(c.resources[i])
		}
	}
}

// rate sums the scores of a cluster up.
func (s *selection) rate(c *cluster, among *spans, avoided bool, now time.Time) (key int64, expired bool) {
	for i := range s.sources {
		score, stale := s.sources[i].score(c, among, now)
		key += s.sources[i].weight * score
		expired = expired || stale
	}
	return key + avoidance(avoided), expired
}

// avoidance is what a PreferNoSelect taint adds to the key.
func avoidance(avoided bool) int64 {
	if avoided {
		return -penalty
	}
	return 0
}

// measure finds the spans of the candidates anew.
func (s *Scheduler) measure(st *standing, selection *selection) spans {
	var among spans
	for id := range st.open.all() {
		among.include(s.fleet.clusters[id], &selection.measures)
	}
	return among
}
