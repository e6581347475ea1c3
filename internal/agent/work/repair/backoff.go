// Package repair decides how soon an object may be repaired again that others keep changing or deleting.
package repair

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
)

const (
	// atOnce is how many repairs of an object are made without a delay.
	atOnce = 3
	// A further repair waits for as long as the dispute has lasted by then, so the delays double from the least to the most, however often
	// the others change the object. That makes 8 repairs in the first minute, and then one in a minute.
	leastDelay = 2 * time.Second
	mostDelay  = time.Minute
	// resetAfter is how long an object needs no repair until the next one is the first again.
	resetAfter = 5 * time.Minute
)

// Object is an object of the managed cluster, whatever the version in which manifests name it.
type Object struct {
	schema.GroupResource
	types.NamespacedName
}

// Backoff knows which objects were repaired lately. All works share one, so the delays of an object hold for all of them together. It is
// in memory only: after a restart, each object begins anew. Its methods may be called at any time, from anywhere.
type Backoff struct {
	clock clock.PassiveClock

	mu      sync.Mutex
	objects map[Object]history
	swept   time.Time
}

// history is that of an object that was repaired.
type history struct {
	// repairs is how many there were without a pause of resetAfter, and deletions is how many of them made the object again.
	repairs, deletions int
	first, last        time.Time
}

// Dispute is what is known of an object that was repaired so often that the next repair has a delay.
type Dispute struct {
	// Due is when the next repair may be made.
	Due time.Time
	// Over is when the dispute has ended if the object is not repaired until then.
	Over time.Time
	// Deletions is how many repairs made the object again.
	Deletions int
}

// NewBackoff returns a Backoff of objects that were not repaired yet.
func NewBackoff(clk clock.PassiveClock) *Backoff {
	return &Backoff{clock: clk, objects: map[Object]history{}, swept: clk.Now()}
}

// Dispute returns the dispute about an object, if there is one.
func (b *Backoff) Dispute(o Object) (d Dispute, disputed bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	h := b.historyOf(o)
	if h.repairs < atOnce {
		return Dispute{}, false
	}
	return Dispute{Due: h.due(), Over: h.last.Add(resetAfter), Deletions: h.deletions}, true
}

// Take counts a repair that the caller is about to make; missing tells whether the object is made again. It returns a function for a
// caller that has not made it after all, or nil and the time from which on the repair may be made.
func (b *Backoff) Take(o Object, missing bool) (undo func(), due time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := b.clock.Now()
	b.sweep(now)
	h := b.historyOf(o)
	if now.Before(h.due()) {
		return nil, h.due()
	}
	if h.repairs == 0 {
		h.first = now
	}
	before := h.last
	h.repairs, h.last = h.repairs+1, now
	if missing {
		h.deletions++
	}
	b.objects[o] = h
	return func() { b.undo(o, missing, now, before) }, now
}

func (b *Backoff) undo(o Object, missing bool, at, before time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	h := b.objects[o]
	if h.repairs <= 1 {
		delete(b.objects, o)
		return
	}
	h.repairs--
	if missing {
		h.deletions--
	}
	if h.last.Equal(at) {
		h.last = before
	}
	b.objects[o] = h
}

// historyOf is that of an object that was not left alone since. It needs the lock.
func (b *Backoff) historyOf(o Object) history {
	if h := b.objects[o]; !h.isOver(b.clock.Now()) {
		return h
	}
	return history{}
}

// sweep forgets the objects that need no repairs any more, or are not applied any more. It needs the lock.
func (b *Backoff) sweep(now time.Time) {
	if now.Sub(b.swept) < resetAfter {
		return
	}
	b.swept = now
	for o, h := range b.objects {
		if h.isOver(now) {
			delete(b.objects, o)
		}
	}
}

func (h history) isOver(now time.Time) bool { return now.Sub(h.last) >= resetAfter }

// due is when the next repair may be made.
func (h history) due() time.Time {
	if h.repairs < atOnce {
		return h.last
	}
	return h.last.Add(min(max(h.last.Sub(h.first), leastDelay), mostDelay))
}
