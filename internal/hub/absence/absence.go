// Package absence remembers since when something is missing that may only be on its way: a scheduler that moves a cluster from
// one PlacementDecision to another needs two writes, and the cluster may be in neither between them.
package absence

import (
	"sync"
	"time"
)

// Settle is how long a cluster must be in no decision before what it has because of them is taken away.
const Settle = time.Second

// Tracker remembers absences, of each owner by themselves. After a restart it counts anew, which only keeps things a
// little longer.
type Tracker[Owner, What comparable] struct {
	mu    sync.Mutex
	since map[Owner]map[What]time.Time
}

// NewTracker returns a Tracker that knows of no absence.
func NewTracker[Owner, What comparable]() *Tracker[Owner, What] {
	return &Tracker[Owner, What]{since: map[Owner]map[What]time.Time{}}
}

// Update notes what is absent now, and returns since when.
func (t *Tracker[Owner, What]) Update(of Owner, absent map[What]bool, now time.Time) map[What]time.Time {
	t.mu.Lock()
	defer t.mu.Unlock()
	since := make(map[What]time.Time, len(absent))
	for what := range absent {
		since[what] = now
		if before, found := t.since[of][what]; found {
			since[what] = before
		}
	}
	if len(since) == 0 {
		delete(t.since, of)
	} else {
		t.since[of] = since
	}
	return since
}

// Forget everything of an owner.
func (t *Tracker[Owner, What]) Forget(of Owner) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.since, of)
}
