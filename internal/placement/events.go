package placement

import (
	"slices"
	"time"

	clusterv1 "github.com/capstan-io/capstan/api/cluster/v1"
	clusterv1alpha1 "github.com/capstan-io/capstan/api/cluster/v1alpha1"
)

// SetCluster takes in a ManagedCluster that is new or has changed.
func (s *Scheduler) SetCluster(object *clusterv1.ManagedCluster) []Key {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.describe(s.fleet.intern(object.Name), object)
}

// DeleteCluster forgets a ManagedCluster.
func (s *Scheduler) DeleteCluster(name string) []Key {
	s.mu.Lock()
	defer s.mu.Unlock()
	id, known := s.fleet.ids[name]
	if !known {
		return nil
	}
	c := s.fleet.clusters[id]
	keys := s.describe(c, nil)
	s.forget(c)
	return keys
}

func (s *Scheduler) describe(c *cluster, object *clusterv1.ManagedCluster) []Key {
	former := *c
	c.describe(object)
	switch {
	case former.object == nil && object != nil:
		s.existing++
	case former.object != nil && object == nil:
		s.existing--
	}
	ch := compare(former, c)
	if ch.labels {
		s.byLabel.replace(c.id, former.labels(), c.labels())
	}
	if ch.claims {
		s.byClaim.replace(c.id, former.claims, c.claims)
	}
	found := affected{}
	if ch.labels || ch.existence {
		s.reconsider(c, found)
	}
	s.reassessAll(ch, found)
	return found.keys()
}

// forget frees the id of a cluster when no object, score or decision names it.
func (s *Scheduler) forget(c *cluster) {
	if c.object == nil && len(c.scores) == 0 && s.load.of(c.id) == 0 {
		s.fleet.forget(c)
	}
}

// SetScore takes in an AddOnPlacementScore, of the cluster whose namespace it is in.
func (s *Scheduler) SetScore(object *clusterv1alpha1.AddOnPlacementScore) []Key {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.fleet.intern(object.Namespace)
	former := *c
	c.setScore(object.Name, object)
	return s.rescore(former, c, object.Name)
}

// DeleteScore forgets an AddOnPlacementScore.
func (s *Scheduler) DeleteScore(key Key) []Key {
	s.mu.Lock()
	defer s.mu.Unlock()
	id, known := s.fleet.ids[key.Namespace]
	if !known {
		return nil
	}
	c := s.fleet.clusters[id]
	former := *c
	c.setScore(key.Name, nil)
	keys := s.rescore(former, c, key.Name)
	s.forget(c)
	return keys
}

func (s *Scheduler) rescore(former cluster, c *cluster, name string) []Key {
	found := affected{}
	s.reassessAll(change{cluster: c, former: former, score: name}, found)
	return found.keys()
}

func (s *Scheduler) reassessAll(ch change, found affected) {
	for _, cls := range s.classes {
		if ch.matters(cls.selection) {
			s.reassess(cls, ch, found)
		}
	}
}

// matters tells whether a selection looks at what has changed.
func (ch *change) matters(selection *selection) bool {
	switch {
	case ch.labels, ch.claims, ch.taints, ch.existence:
		return true
	case ch.score != "":
		return selection.readsScore(ch.score)
	}
	return (ch.object && selection.cel) || (ch.resources && slices.Contains(selection.measures[:], true))
}

// Advance lets time go on to now, which must not lie before the last one, and returns the placements that this may
// change: those for which a toleration or a score has expired.
func (s *Scheduler) Advance(now time.Time) []Key {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !now.After(s.now) {
		return nil
	}
	s.now = now
	if s.next.IsZero() || now.Before(s.next) {
		return nil
	}
	found := affected{}
	s.next = time.Time{}
	for _, cls := range s.classes {
		if !cls.next.IsZero() && !now.Before(cls.next) {
			s.age(cls, found)
		}
		s.wake(cls.next)
	}
	return found.keys()
}

// NextTime is when Advance is due: never, when it is zero. Before, it need not be called.
func (s *Scheduler) NextTime() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.next
}

// age reassesses the clusters of a class for which time has changed something.
func (s *Scheduler) age(cls *class, found affected) {
	since := cls.asOf
	cls.asOf, cls.next = s.now, time.Time{}
	if cls.standing == nil {
		s.noticeTime(cls, since)
		cls.addAll(found)
		return
	}
	for id := range cls.standing.inSets.all() {
		c := s.fleet.clusters[id]
		due := cls.selection.deadline(c, since)
		if due.IsZero() {
			continue
		}
		if !due.After(s.now) {
			s.reassess(cls, change{cluster: c, former: *c, time: true}, found)
		}
		cls.next = earliest(cls.next, cls.selection.deadline(c, s.now))
	}
}

// noticeTime takes in for which clusters of a class time has changed something.
func (s *Scheduler) noticeTime(cls *class, since time.Time) {
	if cls.evaluation == nil {
		return
	}
	for id := range cls.members().all() {
		c := s.fleet.clusters[id]
		if due := cls.selection.deadline(c, since); !due.IsZero() && !due.After(s.now) {
			s.notice(cls, c)
		}
		cls.next = earliest(cls.next, cls.selection.deadline(c, s.now))
	}
}
