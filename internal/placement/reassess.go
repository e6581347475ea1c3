package placement

import (
	"math"
	"slices"
)

// rating is how one cluster stands with a class.
type rating struct {
	verdict
	inSets  bool
	key     int64
	expired bool
}

func (st *standing) ratingOf(c *cluster) rating {
	r := rating{
		inSets: st.inSets.has(c.id),
		verdict: verdict{
			matched: st.matched.has(c.id),
			open:    st.open.has(c.id),
			held:    st.held.has(c.id),
			avoided: st.avoided.has(c.id),
		},
		expired: st.expired.has(c.id),
	}
	if seat, seated := st.seat(c.id); seated {
		r.key = st.keys[seat]
	}
	return r
}

// reassess brings the standing of a class up to date after one of the clusters has changed, and finds the placements of
// the class whose selection that may change. They are:
//
//   - those that have selected the cluster, if it stands in any other way than before;
//   - those for which it ranks, before or after, where it may be selected. What ranks further behind than the clusters
//     that the placement takes, and those it has already, whose scores are its own, is out of reach;
//   - all, if the scores of the other clusters depend on this one;
//   - those with constraints or groups, if topologies have changed.
func (s *Scheduler) reassess(cls *class, ch change, found affected) {
	c, st := ch.cluster, cls.standing
	if !ch.evaluated {
		s.notice(cls, c)
	}
	if st == nil {
		if !cls.tooDear() {
			cls.addAll(found)
		}
		return
	}
	size := st.size()
	defer func() { s.cached += st.size() - size }()
	if cls.tooDear() || cls.pending() {
		st.inSets.put(c.id, cls.has(c))
		return
	}
	s.fleet.order()
	was, is := st.ratingOf(c), rating{inSets: cls.has(c)}
	if !was.inSets && !is.inSets {
		return
	}
	if is.inSets {
		is.verdict = cls.judge(c, s.now)
		cls.next = earliest(cls.next, cls.selection.deadline(c, s.now))
		s.wake(cls.next)
	}
	empty, closed := st.inSets.empty(), st.open.empty()
	st.place(c, is)
	among := s.spansAfter(cls, ch, was, is)
	if is.open {
		is.key, is.expired = cls.selection.rate(c, &among, is.avoided, s.now)
	}
	st.expired.put(c.id, is.expired)
	if empty != st.inSets.empty() || closed != st.open.empty() { // another reason for having selected nothing
		cls.addAll(found)
	}
	if among != st.among {
		st.among = among
		s.reseat(st, cls.selection)
		cls.addAll(found)
		return
	}
	i := impact{change: ch, was: was, is: is}
	if i.ranked() || i.topology() {
		i.reaches = s.reaches(cls)
		s.rank(st, c, was, i.reaches)
		s.move(st, c, was, is)
		s.rank(st, c, is, i.reaches)
	}
	for _, p := range cls.placements {
		if s.touches(p, st, &i) {
			found.add(p)
		}
	}
}

// place takes over a verdict, but for the seat.
func (st *standing) place(c *cluster, is rating) {
	st.counts = nil
	st.inSets.put(c.id, is.inSets)
	st.enter(c, is.verdict)
}

// spansAfter are the spans of the candidates now that one cluster has changed.
func (s *Scheduler) spansAfter(cls *class, ch change, was, is rating) spans {
	st := cls.standing
	for i, measured := range cls.selection.measures {
		if !measured {
			continue
		}
		former, present := ch.former.resources[i], ch.cluster.resources[i]
		if was.open && is.open && former == present {
			continue
		}
		if (was.open && st.among[i].edge(former)) || (is.open && !st.among[i].covers(present)) {
			return s.measure(st, cls.selection)
		}
	}
	return st.among
}

// move gives a cluster the seat that it is entitled to.
func (s *Scheduler) move(st *standing, c *cluster, was, is rating) {
	ranks := s.fleet.ranks
	at, _ := st.seat(c.id)
	seat := int32(at)
	if was.open {
		st.board.leave(st, seat, ranks)
	}
	if was.open != is.open {
		st.first = nil
	}
	switch {
	case was.open && !is.open:
		st.ids = slices.Delete(st.ids, at, at+1)
		st.keys = slices.Delete(st.keys, at, at+1)
		st.board.close(seat)
	case is.open && !was.open:
		st.ids = slices.Insert(st.ids, at, c.id)
		st.keys = slices.Insert(st.keys, at, is.key)
		st.board.open(seat, s.load.of(c.id))
	}
	if is.open {
		st.keys[at] = is.key
		st.board.enter(st, seat, ranks)
	}
}

// impact is what a change does to a class.
type impact struct {
	change
	was, is rating
	reaches map[scale]int
}

// ranked tells whether the cluster ranks elsewhere among the candidates, or for another reason.
func (i *impact) ranked() bool {
	reexpired := (i.was.expired || i.is.expired) && i.rescored() // what counts as 0 may have been 0
	return i.was.open != i.is.open || i.was.key != i.is.key || reexpired
}

// rescored tells whether the scores may have changed.
func (i *impact) rescored() bool { return i.resources || i.score != "" || i.time }

// stands tells whether the cluster stands in any other way for those who have selected it, or for another reason.
func (i *impact) stands() bool {
	tainted := i.is.held || i.is.avoided
	return i.ranked() || i.was.held != i.is.held || (tainted && (i.taints || i.time)) ||
		(i.is.held && i.rescored()) // it has no seat that would tell
}

// touches tells whether an impact may change what a placement selects.
func (s *Scheduler) touches(p *placement, st *standing, i *impact) bool {
	candidate := i.was.open || i.is.open
	switch {
	case p.decided.has(i.cluster.id):
		return i.stands() || (i.topology() && (len(p.plan.groups) > 0 || len(p.plan.spread) > 0))
	case !candidate:
		return false
	case len(p.plan.spread) > 0:
		return i.ranked() || i.topology()
	case !i.ranked() && (!i.topology() || len(p.plan.groups) == 0):
		return false
	case p.plan.limit == unlimited:
		return true
	case p.decided.intersects(st.held) && slices.Contains(p.plan.selection.measures[:], true):
		return true // its scores may be its own
	}
	return i.reaches[s.scaleOf(p)] < p.plan.limit+len(p.ids)
}

func (s *Scheduler) scaleOf(p *placement) scale {
	return scale{weight: p.plan.balance, highest: s.load.highestWithout(p.ids)}
}

// reaches collects the scales of the placements of a class: they have few in common.
func (s *Scheduler) reaches(cls *class) map[scale]int {
	reaches := map[scale]int{}
	for _, p := range cls.placements {
		reaches[s.scaleOf(p)] = math.MaxInt
	}
	return reaches
}

// rank lowers reaches to how many clusters rank before one.
func (s *Scheduler) rank(st *standing, c *cluster, r rating, reaches map[scale]int) {
	if !r.open {
		return
	}
	st.board.catchUp(st, &s.load, s.fleet.ranks)
	byName := s.options.TieBreak != TieBreakHash
	for scale, reach := range reaches {
		reaches[scale] = min(reach, st.board.ahead(st, s.fleet.ranks, c, r.key, s.load.of(c.id), scale, byName))
	}
}
