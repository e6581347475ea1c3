package fleetsim

import (
	"strconv"
	"sync"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
)

// key is where an object is found.
type key struct {
	schema.GroupVersionResource
	types.NamespacedName
}

// change is what happened at a resource version: the object is what it was made, or what it was last.
type change struct {
	key
	kind   watch.EventType
	object *unstructured.Unstructured
}

// store keeps objects, which nobody changes: a write puts another one in the place of the first. It remembers all changes,
// for a simulation is over before that is much.
type store struct {
	mu      sync.Mutex
	objects map[key]*unstructured.Unstructured
	history []change      // that of resource version n is at n-1
	updated chan struct{} // closed, and replaced, by the next write
}

func newStore() *store {
	return &store{objects: map[key]*unstructured.Unstructured{}, updated: make(chan struct{})}
}

// get returns nil for what does not exist.
func (s *store) get(k key) *unstructured.Unstructured {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.objects[k]
}

// list returns the objects that are wanted, in no order, and the resource version they are of.
func (s *store) list(selects func(key, *unstructured.Unstructured) bool) (all []*unstructured.Unstructured, version int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for k, o := range s.objects {
		if selects(k, o) {
			all = append(all, o)
		}
	}
	return all, len(s.history)
}

// since returns the changes after a resource version, and a channel that is closed when there are more.
func (s *store) since(version int) ([]change, <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.history[min(version, len(s.history)):], s.updated
}

// write replaces an object by what become makes of it, and returns that. Either is nil for an object that does not exist.
// An object that comes out equal is not written.
func (s *store) write(k key, become func(old *unstructured.Unstructured) (*unstructured.Unstructured, error)) (*unstructured.Unstructured,
	error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	old := s.objects[k]
	next, err := become(old)
	if err != nil || (old == nil && next == nil) {
		return nil, err
	}
	if old != nil && next != nil {
		next.SetResourceVersion(old.GetResourceVersion())
		if equality.Semantic.DeepEqual(old.Object, next.Object) {
			return old, nil
		}
	}
	c := change{key: k, kind: watch.Modified, object: next}
	switch {
	case next == nil:
		c.kind, c.object = watch.Deleted, old.DeepCopy()
		delete(s.objects, k)
	case old == nil:
		c.kind = watch.Added
		fallthrough
	default:
		s.objects[k] = next
	}
	c.object.SetResourceVersion(strconv.Itoa(len(s.history) + 1))
	s.history = append(s.history, c)
	close(s.updated)
	s.updated = make(chan struct{})
	return c.object, nil
}

// in tells whether the object at k is in a namespace; empty means in any.
func (k key) in(namespace string) bool { return namespace == "" || k.Namespace == namespace }

// parseVersion reads a resource version; empty and "0" are any.
func parseVersion(text string) (int, error) {
	if text == "" {
		return 0, nil
	}
	return strconv.Atoi(text)
}
