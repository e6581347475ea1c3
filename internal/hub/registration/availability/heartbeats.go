package availability

import (
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
)

// longestWait is for how long after an interruption heartbeats may come that have waited: agents give a renewal up after half of that.
const longestWait = time.Minute

// heartbeats has the times at which the hub received the last heartbeat of each cluster. It uses the hub's clock, because that of the
// cluster, whose time is in the heartbeat, may be wrong.
type heartbeats struct {
	clock  clock.PassiveClock
	mu     sync.Mutex
	last   map[string]heartbeat
	graces map[string]grace
	// lastReceived is when the hub last renewed its own Lease, or learned that an agent has; zero if the first says nothing.
	lastReceived time.Time
	// lost is for how long altogether no heartbeat could come, and resumed when the last such time ended.
	lost    time.Duration
	resumed time.Time
}

// grace is how long the hub waits for a heartbeat of a cluster, and when it was last shortened.
type grace struct {
	length time.Duration
	since  moment
}

// heartbeat has the time in the lease, when it was written to the API server, and since when this process knows of it.
type heartbeat struct {
	renewTime metav1.MicroTime
	written   time.Time
	known     moment
}

// moment is a time by the wall clock, which goes on while a machine is suspended, and what was lost by then.
type moment struct {
	time time.Time
	lost time.Duration
}

func newHeartbeats(clk clock.PassiveClock) *heartbeats {
	return &heartbeats{clock: clk, last: map[string]heartbeat{}, graces: map[string]grace{}}
}

// observe records a lease when the hub's watch delivers it. Unless it is new to the process, as after a restart, it ends an interruption.
func (h *heartbeats) observe(lease *coordinationv1.Lease) {
	var renewed metav1.MicroTime
	if lease.Spec.RenewTime != nil {
		renewed = *lease.Spec.RenewTime
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	last, known := h.last[lease.Namespace]
	if known && last.renewTime.Equal(&renewed) {
		return
	}
	written := writtenAt(lease, h.now())
	if known && !h.lastReceived.IsZero() {
		h.endInterruption()
	}
	h.last[lease.Namespace] = heartbeat{renewTime: renewed, written: written, known: h.moment()}
}

// of returns the last heartbeat of a cluster; ok is false if there was none.
func (h *heartbeats) of(cluster string) (last heartbeat, ok bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	last, ok = h.last[cluster]
	return last, ok
}

// overdue returns when the next heartbeat of a cluster is overdue, with a grace of this length. The grace starts when this process knows of
// the last heartbeat, which may be old: none can come while the hub is away, or before it is restored from a backup. An interruption of the
// hub does not count, for the same reason. A shorter grace counts from its change: the last heartbeat came at the old pace, until the agent
// learns about the new one.
func (h *heartbeats) overdue(cluster string, length time.Duration) time.Time {
	h.mu.Lock()
	defer h.mu.Unlock()
	now, known := h.graces[cluster]
	if known && length < now.length {
		now.since = h.moment()
	}
	now.length = length
	h.graces[cluster] = now
	from := h.last[cluster].known
	if now.since.time.After(from.time) {
		from = now.since
	}
	return from.time.Add(length + h.lost + h.interruption() - from.lost)
}

// now is the time by the wall clock.
func (h *heartbeats) now() time.Time { return h.clock.Now().Round(0) }

func (h *heartbeats) moment() moment { return moment{time: h.now(), lost: h.lost} }

// interruption is for how long the hub has been without a heartbeat, its own included, if that is too long for one that receives them. It
// is negative if the clock has been set back. The caller holds the lock.
func (h *heartbeats) interruption() time.Duration {
	silence := h.now().Sub(h.lastReceived)
	if h.lastReceived.IsZero() || silence >= 0 && silence <= longestSilence {
		return 0
	}
	return silence
}

// endInterruption ends an interruption. The caller holds the lock.
func (h *heartbeats) endInterruption() (interrupted time.Duration) {
	interrupted = h.interruption()
	h.lost += interrupted
	h.lastReceived = h.now()
	if interrupted > 0 {
		h.resumed = h.lastReceived
	}
	return interrupted
}

// renewedOwn records that the hub has renewed its own Lease, and returns how long the interruption was that this ends; see interruption.
func (h *heartbeats) renewedOwn() (interrupted time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.endInterruption()
}

// refusedOwn makes the hub's own Lease say nothing: it is not renewed for another reason than that nothing can be written.
func (h *heartbeats) refusedOwn() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.lastReceived = time.Time{}
}

// waited reports whether a heartbeat may have waited for the hub: it was sent before the last interruption ended, and written at most
// longestWait after that. One with such a time that is written later is of a cluster whose clock is behind.
func (h *heartbeats) waited(last heartbeat) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.interruption() > 0 || last.renewTime.Time.Before(h.resumed) && last.written.Before(h.resumed.Add(longestWait))
}

func (h *heartbeats) forget(cluster string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.last, cluster)
	delete(h.graces, cluster)
}

// writtenAt returns when the API server last wrote the lease, as its field managers record it, or now without a record.
func writtenAt(lease *coordinationv1.Lease, now time.Time) time.Time {
	var written time.Time
	for _, m := range lease.ManagedFields {
		if m.Time != nil && m.Time.After(written) {
			written = m.Time.Time
		}
	}
	if written.IsZero() || written.After(now) {
		return now
	}
	return written
}

// StripLease is the transform for a cache of leases. It strips the field managers, except for the time of the last write.
func StripLease(o any) (any, error) {
	lease, ok := o.(*coordinationv1.Lease)
	if !ok || len(lease.ManagedFields) == 0 {
		return o, nil
	}
	written := metav1.NewTime(writtenAt(lease, time.Unix(1<<40, 0)))
	lease.ManagedFields = []metav1.ManagedFieldsEntry{{Time: &written}}
	return lease, nil
}
