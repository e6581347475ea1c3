package placement

import (
	"time"

	clusterv1 "github.com/capstan-io/capstan/api/cluster/v1"
	clusterv1alpha1 "github.com/capstan-io/capstan/api/cluster/v1alpha1"
)

// SetCluster adds or updates a ManagedCluster and returns the placements that this may affect.
func (s *Scheduler) SetCluster(object *clusterv1.ManagedCluster) []Key {
	return s.setCluster(object.Name, object)
}

// DeleteCluster removes a ManagedCluster and returns the placements that this may affect.
func (s *Scheduler) DeleteCluster(name string) []Key { return s.setCluster(name, nil) }

func (s *Scheduler) setCluster(name string, object *clusterv1.ManagedCluster) []Key {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.snapshot.clusters.getOrAdd(name)
	former := *c
	c.update(object)
	s.snapshot.clusterCount += asInt(object != nil) - asInt(former.object != nil)
	change := diffCluster(former, c)
	affected := affected{}
	if change.labels || change.selectable {
		s.snapshot.updateMembership(c, affected)
	}
	return s.classes.update(change, affected)
}

// SetScore adds or updates an AddOnPlacementScore, which belongs to the cluster of its namespace, and returns the placements that this
// may affect.
func (s *Scheduler) SetScore(object *clusterv1alpha1.AddOnPlacementScore) []Key {
	return s.setScore(Key{Namespace: object.Namespace, Name: object.Name}, object)
}

// DeleteScore removes an AddOnPlacementScore and returns the placements that this may affect.
func (s *Scheduler) DeleteScore(key Key) []Key { return s.setScore(key, nil) }

func (s *Scheduler) setScore(key Key, object *clusterv1alpha1.AddOnPlacementScore) []Key {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.snapshot.clusters.getOrAdd(key.Namespace)
	former := *c
	c.setScore(key.Name, object)
	return s.classes.update(clusterChange{cluster: c, old: former, score: key.Name}, affected{})
}

// removeIfUnused removes a cluster without an object, scores and decisions.
func (sn *snapshot) removeIfUnused(c *cluster) {
	if c.object == nil && len(c.scores) == 0 && c.decisions == 0 {
		sn.clusters.remove(c)
	}
}

// update updates all classes after a cluster has changed, and returns the affected placements.
func (cc *classCache) update(change clusterChange, affected affected) []Key {
	for _, class := range cc.byKey {
		if change.affects(class.profile) {
			cc.updateClass(class, change, affected)
		}
	}
	cc.snapshot.removeIfUnused(change.cluster)
	return affected.keys()
}

// affects reports whether a profile reads what has changed.
func (change *clusterChange) affects(profile *profile) bool {
	switch {
	case change.labels, change.claims, change.taints, change.selectable:
		return true
	case change.score != "":
		return profile.readsScore(change.score)
	}
	return (change.anyField && profile.cel) || (change.resources && profile.readsResources())
}

// Advance sets the time of the scheduler, which must not go back, and returns the placements that this may affect: those for which a
// toleration or a score has expired.
func (s *Scheduler) Advance(now time.Time) []Key {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !now.After(s.snapshot.now) {
		return nil
	}
	s.snapshot.now = now
	if s.snapshot.nextAdvance.IsZero() || now.Before(s.snapshot.nextAdvance) {
		return nil
	}
	affected := affected{}
	s.snapshot.nextAdvance = time.Time{}
	for _, class := range s.classes.byKey {
		if !class.nextChange.IsZero() && !now.Before(class.nextChange) {
			s.classes.expire(class, affected)
		}
		s.snapshot.scheduleAdvance(class.nextChange)
	}
	return affected.keys()
}

// NextAdvance is when Advance has an effect at the earliest; zero is never.
func (s *Scheduler) NextAdvance() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.snapshot.nextAdvance
}

// expire updates the clusters of a class for which a toleration or a score has expired.
func (cc *classCache) expire(class *equivalenceClass, affected affected) {
	since := class.asOf
	class.asOf, class.nextChange = cc.snapshot.now, time.Time{}
	if class.candidates == nil {
		class.addAll(affected)
		if class.evaluation == nil {
			return
		}
	}
	for c := range cc.snapshot.members(class) {
		due := class.profile.nextExpiry(c, since)
		if due.IsZero() {
			continue
		}
		if !due.After(cc.snapshot.now) {
			cc.updateClass(class, clusterChange{cluster: c, old: *c, expiry: true}, affected)
		}
		class.nextChange = earliest(class.nextChange, class.profile.nextExpiry(c, cc.snapshot.now))
	}
}
