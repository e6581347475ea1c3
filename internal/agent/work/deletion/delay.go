package deletion

import (
	"context"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	workv1 "github.com/capstan-io/capstan/api/work/v1"
	"github.com/capstan-io/capstan/internal/agent/work/appliedmanifestwork"
	"github.com/capstan-io/capstan/internal/agent/work/conditions"
)

// Blocked is why an AppliedManifestWork does not go whose deletion fails before anything is deleted.
func Blocked(amw *workv1.AppliedManifestWork, err error) *conditions.Delay {
	return conditions.NewDelay(len(amw.Status.AppliedResources), conditions.Failures(err), nil)
}

// explain says why resources are left that removeAll was to delete, with the error that it returned.
func (c *Cluster) explain(ctx context.Context, left []workv1.AppliedManifestResourceMeta, err error) *conditions.Delay {
	var waiting []conditions.Waiting
	for _, r := range left {
		requested, ok := c.requested.Load(r.UID)
		if !ok {
			continue // it could not be deleted
		}
		o := appliedmanifestwork.Object(r)
		waiting = append(waiting, conditions.Waiting{GroupResource: o.GroupResource(), NamespacedName: o.NamespacedName,
			Finalizers: requested.(request).finalizers, Content: c.contentOf(ctx, &r)})
	}
	return conditions.NewDelay(len(left), conditions.Failures(err), waiting)
}

// contentOf is what a namespace or a definition that is being deleted waits for, as far as it says so.
func (c *Cluster) contentOf(ctx context.Context, r *workv1.AppliedManifestResourceMeta) string {
	if rank(r) == 0 {
		return ""
	}
	live, err := c.Complete.Resource(appliedmanifestwork.Object(*r).GroupVersionResource).Get(ctx, r.Name, metav1.GetOptions{})
	if err != nil {
		return "" // it may have gone; what is left is said all the same
	}
	return conditions.ContentOf(live)
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

// setDelay says what delays the end of an AppliedManifestWork; nil means nothing any more.
func (c *Cluster) setDelay(owner string, d *conditions.Delay) {
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
