package applied

import (
	"sync"

	workv1 "github.com/capstan-io/capstan/api/work/v1"
	"github.com/capstan-io/capstan/internal/agent/work/conditions"
)

// Explain says why resources are left that Remove was to delete, with the error that it returned.
func (c *Cluster) Explain(left []workv1.AppliedManifestResourceMeta, err error) *conditions.Delay {
	var failures []error
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		failures = joined.Unwrap()
	}
	var waiting []conditions.Waiting
	for _, r := range left {
		asked, ok := c.asked.Load(r.UID)
		if !ok {
			continue // it could not be deleted
		}
		o := Object(r)
		waiting = append(waiting, conditions.Waiting{GroupResource: o.GroupResource(), NamespacedName: o.NamespacedName,
			Finalizers: asked.(request).finalizers})
	}
	return conditions.NewDelay(len(left), failures, waiting)
}

// delays are what delays deletions, by the name of the AppliedManifestWork.
type delays struct {
	mu        sync.Mutex
	byOwner   map[string]*conditions.Delay
	listeners []func(owner string)
}

// ListenToDelays has f called with the name of an AppliedManifestWork when what delays its end changes. f must return quickly. All
// listeners are added before the first delay is set.
func (c *Cluster) ListenToDelays(f func(owner string)) {
	c.delays.mu.Lock()
	defer c.delays.mu.Unlock()
	c.delays.listeners = append(c.delays.listeners, f)
}

// Delay is what delays the end of an AppliedManifestWork; nil if nothing is known to.
func (c *Cluster) Delay(owner string) *conditions.Delay {
	c.delays.mu.Lock()
	defer c.delays.mu.Unlock()
	return c.delays.byOwner[owner]
}

// SetDelay says what delays the end of an AppliedManifestWork; nil means nothing any more.
func (c *Cluster) SetDelay(owner string, d *conditions.Delay) {
	if c.delays.set(owner, d) {
		for _, listener := range c.delays.listeners {
			listener(owner)
		}
	}
}

func (s *delays) set(owner string, d *conditions.Delay) (changed bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	before := s.byOwner[owner]
	changed = !d.Equal(before)
	switch {
	case d == nil:
		delete(s.byOwner, owner)
	case s.byOwner == nil:
		s.byOwner = map[string]*conditions.Delay{owner: d}
	default:
		s.byOwner[owner] = d
	}
	return changed
}
