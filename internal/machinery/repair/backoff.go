// Package repair decides how soon an object may be repaired again that others keep changing or deleting.
package repair

import (
	"fmt"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
)

const (
	// A repair that is not made at once waits for as long as the dispute has lasted by then, so the delays double from the least to the most,
	// however often the others change the object. That makes five such repairs in the first minute, and then one in a minute.
	leastDelay = 2 * time.Second
	mostDelay  = time.Minute
	// resetAfter is how long an object needs no repair until the next one is the first again.
	resetAfter = 5 * time.Minute
)

// Object is an object of a cluster, whatever the version in which it is written.
type Object struct {
	schema.GroupKind
	types.NamespacedName
}

// Backoff knows which objects were repaired lately. All who repair objects of a cluster share one, so the delays of an object are for
// all of them together. It is in memory only: after a restart, each object starts anew. Its methods may be called at any time, from
// anywhere.
type Backoff struct {
	clock  clock.PassiveClock
	atOnce int

	mu      sync.Mutex
	objects map[Object]history
	swept   time.Time
}

// AtOnceByControllers is how many repairs of an object controllers make without a delay: scripts that delete the same object several times
// in a row, and make it again, are no dispute.
const AtOnceByControllers = 10

// BackoffError is that an object is not repaired yet.
type BackoffError struct {
	Object Object
	// Until is when it may be repaired.
	Until time.Time
}

// Error implements error.
func (e *BackoffError) Error() string {
	return fmt.Sprintf("others keep changing or deleting %s %s, so it is not written again until %s: find out who does, in "+
		"metadata.managedFields or the audit log, and end one of the two", e.Object.Kind, e.Object.NamespacedName, e.Until.UTC().Format(time.RFC3339))
}

// DisputedUntil reports whether an error consists of BackoffErrors alone, and when the first of their objects may be repaired.
func DisputedUntil(err error) (until time.Time, disputed bool) {
	switch err := err.(type) { //nolint:errorlint // it takes the error apart
	case *BackoffError:
		return err.Until, true
	case interface{ Unwrap() error }:
		return DisputedUntil(err.Unwrap())
	case interface{ Unwrap() []error }:
		for _, part := range err.Unwrap() {
			partUntil, partDisputed := DisputedUntil(part)
			if !partDisputed {
				return time.Time{}, false
			}
			if until.IsZero() || partUntil.Before(until) {
				until = partUntil
			}
		}
		return until, !until.IsZero()
	}
	return time.Time{}, false
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

// NewBackoff returns a Backoff of objects that were not repaired yet. Of the repairs of an object, the first atOnce have no delay.
func NewBackoff(clk clock.PassiveClock, atOnce int) *Backoff {
	return &Backoff{clock: clk, atOnce: atOnce, objects: map[Object]history{}, swept: clk.Now()}
}

// Dispute returns the dispute about an object, if there is one.
func (b *Backoff) Dispute(o Object) (d Dispute, disputed bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	h := b.historyOf(o)
	if h.repairs < b.atOnce {
		return Dispute{}, false
	}
	return Dispute{Due: b.due(h), Over: h.last.Add(resetAfter), Deletions: h.deletions}, true
}

// Take counts a repair that the caller is about to make; missing reports whether the object is made again. It returns a function for a
// caller that has not made it after all, or nil and the time from which on the repair may be made.
func (b *Backoff) Take(o Object, missing bool) (undo func(), due time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := b.clock.Now()
	b.sweep(now)
	h := b.historyOf(o)
	if due := b.due(h); now.Before(due) {
		return nil, due
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

// due is when the next repair of an object may be made.
func (b *Backoff) due(h history) time.Time {
	if h.repairs < b.atOnce {
		return h.last
	}
	return h.last.Add(min(max(h.last.Sub(h.first), leastDelay), mostDelay))
}
