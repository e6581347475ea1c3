// Package debounce delays the reaction of controllers to events. Tracker is for clusters that are missing from the decisions of a
// placement: a scheduler needs two writes to move a cluster from one PlacementDecision to another, and between them the cluster may be
// in neither. ByName and ByLabels are for many events that concern one object, such as those of a thousand clusters.
package debounce

import (
	"maps"
	"slices"
	"sync"
	"time"
)

// Delay is how long a cluster has to be missing from all decisions before what it has because of them is deleted.
const Delay = time.Second

// Tracker remembers since when something is absent, by owner. After a restart it starts from zero, which only delays deletions.
type Tracker[Owner, What comparable] struct {
	mu    sync.Mutex
	since map[Owner]map[What]time.Time
}

// NewTracker returns a Tracker in which nothing is absent.
func NewTracker[Owner, What comparable]() *Tracker[Owner, What] {
	return &Tracker[Owner, What]{since: map[Owner]map[What]time.Time{}}
}

// Update sets what is absent now, and returns since when.
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

// Owners are those of which something is absent.
func (t *Tracker[Owner, What]) Owners() []Owner {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.Collect(maps.Keys(t.since))
}

// Forget removes everything about an owner.
func (t *Tracker[Owner, What]) Forget(of Owner) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.since, of)
}
