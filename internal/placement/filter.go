package placement

import "time"

// filterPredicates finds the members of the cluster sets that match the predicates. next is when a toleration or a score expires at the
// earliest.
func (s *Scheduler) filterPredicates(cs *candidateSet, profile *profile) (next time.Time) {
	defer s.timed(PluginFilter, FilterPredicate)()
	cs.matched = make(bitset, len(cs.inClusterSets))
	for id := range cs.inClusterSets.all() {
		c := s.clusters.byID[id]
		next = earliest(next, profile.nextExpiry(c, s.now))
		cs.matched.setTo(id, profile.match(c, s.now, nil))
	}
	return next
}
