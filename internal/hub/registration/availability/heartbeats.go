package availability

import (
	"slices"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
)

// heartbeats has the times at which the hub received the last heartbeat of each cluster. It uses the hub's clock, because that of the
// cluster, whose time is in the heartbeat, may be wrong.
type heartbeats struct {
	clock  clock.PassiveClock
	mu     sync.Mutex
	last   map[string]heartbeat
	graces map[string]grace
	// own is when the hub last renewed its own Lease; zero if that says nothing. Since receiving, it has done so without an interruption.
	own, receiving time.Time
}

// grace is how long the hub waits for a heartbeat of a cluster, and when it was last shortened.
type grace struct {
	length time.Duration
	since  time.Time
}

// heartbeat has the time in the lease, when it was written to the API server, and since when this process knows of it.
type heartbeat struct {
	renewTime metav1.MicroTime
	received  time.Time
	known     time.Time
}

func newHeartbeats(clk clock.PassiveClock) *heartbeats {
	return &heartbeats{clock: clk, last: map[string]heartbeat{}, graces: map[string]grace{}}
}

// observe records a lease when the hub's watch delivers it. The time of a lease that is new to the process, as after a restart, is that of
// its last write to the API server.
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
	now := h.clock.Now()
	received := now
	if !known {
		received = writtenAt(lease, now)
	}
	h.last[lease.Namespace] = heartbeat{renewTime: renewed, received: received, known: now}
}

// of returns the last heartbeat of a cluster; ok is false if there was none.
func (h *heartbeats) of(cluster string) (last heartbeat, ok bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	last, ok = h.last[cluster]
	return last, ok
}

// overdue returns when the next heartbeat of a cluster is overdue, with a grace of this length. The grace begins when this process knows of
// the last heartbeat, which may be old: none can come while the hub is away, or before it is restored from a backup. It begins again after
// an interruption of the hub, for the same reason. A shorter grace counts from its change: the last heartbeat came at the old pace, until
// the agent learns about the new one.
func (h *heartbeats) overdue(cluster string, length time.Duration) time.Time {
	h.mu.Lock()
	defer h.mu.Unlock()
	now, known := h.graces[cluster]
	if known && length < now.length {
		now.since = h.clock.Now()
	}
	now.length = length
	h.graces[cluster] = now
	return slices.MaxFunc([]time.Time{h.last[cluster].known, now.since, h.receivingSince()}, time.Time.Compare).Add(length)
}

// receivingSince is when the last interruption of the hub ended: now, if it has not. The caller holds the lock.
func (h *heartbeats) receivingSince() time.Time {
	if now := h.clock.Now(); !h.own.IsZero() && now.Sub(h.own) > interruption {
		return now
	}
	return h.receiving
}

// observeOwn records that the hub has renewed its own Lease, and returns for how long it did not, if that was an interruption.
func (h *heartbeats) observeOwn() (interrupted time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	now := h.clock.Now()
	if gap := now.Sub(h.own); !h.own.IsZero() && gap > interruption {
		h.receiving, interrupted = now, gap
	}
	h.own = now
	return interrupted
}

// forgetOwn makes the hub's own Lease say nothing, because it cannot be renewed for another reason than that nothing can be written.
func (h *heartbeats) forgetOwn() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.own = time.Time{}
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
