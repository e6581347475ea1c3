package placement

import "time"

// filterPredicates finds the members of the cluster sets that match the predicates. next is when a toleration or a score expires at the
// earliest.
func (s *Scheduler) filterPredicates(cs *candidateSet, profile *profile) (next time.Time) {
	defer s.timed(PluginFilter, FilterPredicate)()
	considered := s.preFilter(cs, profile)
	cs.matched = make(bitset, len(considered))
	for id := range considered.all() {
		c := s.clusters.byID[id]
		next = earliest(next, profile.nextExpiry(c, s.now))
		cs.matched.setTo(id, profile.match(c, s.now, nil))
	}
	return next
}

// preFilter returns the members of the cluster sets without those that cannot match according to the indexes.
func (s *Scheduler) preFilter(cs *candidateSet, profile *profile) bitset {
	lists, ok := profile.preFilter(s.byLabel, s.byClaim, cs.inClusterSets.count())
	if !ok {
		return cs.inClusterSets
	}
	var considered bitset
	for _, list := range lists {
		for _, id := range list {
			if cs.inClusterSets.has(id) {
				considered.set(id)
			}
		}
	}
	return considered
}
