package placement

import "time"

// match finds the members of the cluster sets that meet the predicates, and when time changes that.
func (s *Scheduler) match(st *standing, selection *selection) (next time.Time) {
	defer s.timed(PluginFilter, FilterPredicate)()
	considered := s.consider(st, selection)
	st.matched = make(bitset, len(considered))
	for id := range considered.all() {
		c := s.fleet.clusters[id]
		next = earliest(next, selection.deadline(c, s.now))
		st.matched.put(id, selection.match(c, s.now, nil))
	}
	return next
}

// consider leaves out members of the cluster sets that the indexes tell do not match.
func (s *Scheduler) consider(st *standing, selection *selection) bitset {
	lists, ok := selection.narrow(s.byLabel, s.byClaim, st.inSets.count())
	if !ok {
		return st.inSets
	}
	var considered bitset
	for _, list := range lists {
		for _, id := range list {
			if st.inSets.has(id) {
				considered.set(id)
			}
		}
	}
	return considered
}
