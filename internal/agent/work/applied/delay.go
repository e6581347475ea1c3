package applied

import (
	"fmt"
	"slices"
	"strings"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	workv1 "github.com/capstan-io/capstan/api/work/v1"
)

// Delay is why what an AppliedManifestWork owns does not go.
type Delay struct {
	// Left is how many objects are still there.
	Left int
	// Reasons are those of the first of them, a few words each.
	Reasons []string
	// Dependents tells whether an object waits until its dependents have gone.
	Dependents bool
}

// maxReasons is how many objects a Delay speaks of.
const maxReasons = 3

// Explain says why resources are left that Remove was to delete, with the error that it returned.
func (c *Cluster) Explain(left []workv1.AppliedManifestResourceMeta, err error) *Delay {
	d := &Delay{Left: len(left)}
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		for _, failure := range joined.Unwrap() {
			d.Reasons = append(d.Reasons, "could not "+failure.Error())
		}
	}
	for _, r := range left {
		asked, ok := c.asked.Load(r.UID)
		if !ok {
			continue // it could not be deleted
		}
		finalizers := asked.(request).finalizers
		d.Dependents = d.Dependents || slices.Contains(finalizers, metav1.FinalizerDeleteDependents)
		if len(d.Reasons) < maxReasons {
			d.Reasons = append(d.Reasons, fmt.Sprintf("%s %s %s", Object(r).GroupResource(), Object(r).NamespacedName, hold(finalizers)))
		}
	}
	d.Reasons = d.Reasons[:min(len(d.Reasons), maxReasons)]
	return d
}

// hold says what keeps an object with the finalizers, which is being deleted.
func hold(finalizers []string) string {
	others := slices.DeleteFunc(slices.Clone(finalizers), func(f string) bool { return f == metav1.FinalizerDeleteDependents })
	switch {
	case len(others) > 0:
		return "has the finalizers " + strings.Join(others, ", ")
	case len(finalizers) > 0:
		return "waits for the garbage collector of the cluster to delete its dependents (finalizer " + metav1.FinalizerDeleteDependents + ")"
	}
	return "is being deleted"
}

// delays are what holds up deletions, by the name of the AppliedManifestWork.
type delays struct {
	mu        sync.Mutex
	byOwner   map[string]*Delay
	listeners []func(owner string)
}

// ListenToDelays has f called with the name of an AppliedManifestWork when what delays its end changes. f must return quickly. All
// listeners are added before the first delay is set.
func (c *Cluster) ListenToDelays(f func(owner string)) {
	c.delays.mu.Lock()
	defer c.delays.mu.Unlock()
	c.delays.listeners = append(c.delays.listeners, f)
}

// Delay is what holds up the end of an AppliedManifestWork, nil if nothing is known to.
func (c *Cluster) Delay(owner string) *Delay {
	c.delays.mu.Lock()
	defer c.delays.mu.Unlock()
	return c.delays.byOwner[owner]
}

// SetDelay says what holds up the end of an AppliedManifestWork; nil is nothing any more.
func (c *Cluster) SetDelay(owner string, d *Delay) {
	if c.delays.set(owner, d) {
		for _, listener := range c.delays.listeners {
			listener(owner)
		}
	}
}

func (s *delays) set(owner string, d *Delay) (changed bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	before := s.byOwner[owner]
	changed = (d == nil) != (before == nil) || d != nil && !d.equal(before)
	switch {
	case d == nil:
		delete(s.byOwner, owner)
	case s.byOwner == nil:
		s.byOwner = map[string]*Delay{owner: d}
	default:
		s.byOwner[owner] = d
	}
	return changed
}

func (d *Delay) equal(o *Delay) bool {
	return d.Left == o.Left && d.Dependents == o.Dependents && slices.Equal(d.Reasons, o.Reasons)
}
