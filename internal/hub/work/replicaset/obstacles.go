package replicaset

import (
	"time"

	"github.com/capstan-io/capstan/internal/rollout"
)

// patience is how long a cluster keeps its place in a rollout while its work cannot be written or is being deleted. Then the rollout leaves
// the cluster out, so that others begin, unless these are to come after it has succeeded. A write is tried again as often.
const patience = 5 * time.Minute

// obstacle is why a work cannot be given a spec: the last error, and when the first and the last attempt failed.
type obstacle struct {
	spec        identity
	err         error
	first, last time.Time
}

// leavesOut reports whether the rollout leaves the cluster out until the next attempt.
func (o obstacle) leavesOut(now time.Time) bool {
	return o.last.Sub(o.first) >= patience && now.Before(o.last.Add(patience))
}

// due is when the obstacle changes: the cluster is left out, or tried again.
func (o obstacle) due() time.Time {
	if o.last.Sub(o.first) < patience {
		return o.first.Add(patience)
	}
	return o.last.Add(patience)
}

// noteObstacles updates the obstacles after the changes of a pass. Those of clusters that were not tried stay while the spec is the same.
func (s *snapshot) noteObstacles(failed failures) {
	now := map[place]obstacle{}
	for _, p := range s.placements {
		for _, cluster := range p.plan.Clusters {
			at := place{p.Name, cluster.Name}
			if o, found := s.obstacleAt(at); found && (cluster.Phase == rollout.Waiting || cluster.Phase == rollout.Skipped) {
				now[at] = o
			}
		}
	}
	for at, err := range failed {
		o, again := s.obstacleAt(at)
		if !again {
			o = obstacle{spec: s.identityOn(at.cluster), first: s.now}
		}
		o.err, o.last = err, s.now
		now[at] = o
		s.requeueBy(o.due())
	}
	s.obstacles = now
}

// obstacleAt returns the obstacle to the present spec of a cluster.
func (s *snapshot) obstacleAt(at place) (o obstacle, found bool) {
	o, found = s.obstacles[at]
	return o, found && o.spec == s.identityOn(at.cluster)
}

// obstacleTo returns why the rollout leaves a cluster without its spec out; nil if it does not.
func (s *snapshot) obstacleTo(at place) error {
	o, found := s.obstacleAt(at)
	if !found || !o.leavesOut(s.now) {
		return nil
	}
	s.requeueBy(o.due())
	return o.err
}

// isStuck reports whether a work is being deleted for so long that the rollout leaves its cluster out until it has gone.
func (s *snapshot) isStuck(w *work) bool {
	if !w.isGoing() {
		return false
	}
	due := w.DeletionTimestamp.Add(patience)
	if s.now.Before(due) {
		s.requeueBy(due)
		return false
	}
	return true
}
