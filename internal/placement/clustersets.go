package placement

import (
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/labels"

	clusterv1beta1 "github.com/capstan-io/capstan/api/cluster/v1beta1"
	clusterv1beta2 "github.com/capstan-io/capstan/api/cluster/v1beta2"
	"github.com/capstan-io/capstan/internal/machinery/managedcluster"
)

// clusterSet is a ManagedClusterSet and its members.
type clusterSet struct {
	name     string
	object   *clusterv1beta2.ManagedClusterSet
	selector labels.Selector
	size     int // number of members, which are selectable clusters
}

// namespace has the names of the ManagedClusterSetBindings and the placements of a namespace.
type namespace struct {
	bindings   map[string]struct{}
	placements map[Key]*placement
}

func (s *snapshot) namespace(name string) *namespace {
	n := s.namespaces[name]
	if n == nil {
		n = &namespace{bindings: map[string]struct{}{}, placements: map[Key]*placement{}}
		s.namespaces[name] = n
	}
	return n
}

func (s *snapshot) removeNamespaceIfUnused(name string) {
	if n := s.namespaces[name]; n != nil && len(n.bindings) == 0 && len(n.placements) == 0 {
		delete(s.namespaces, name)
	}
}

// SetClusterSet adds or updates a ManagedClusterSet and returns the placements that this may affect. A set whose selector is invalid has
// no members.
func (s *Scheduler) SetClusterSet(object *clusterv1beta2.ManagedClusterSet) []Key {
	s.mu.Lock()
	defer s.mu.Unlock()
	affected := affected{}
	set := s.snapshot.sets[object.Name]
	if set != nil && equality.Semantic.DeepEqual(set.object.Spec.ClusterSelector, object.Spec.ClusterSelector) {
		set.object = object
		return nil
	}
	fresh := set == nil
	if fresh {
		set = &clusterSet{name: object.Name}
		s.snapshot.sets[object.Name] = set
	}
	former := set.size
	set.object = object
	changed := s.snapshot.updateMembers(set)
	if fresh {
		s.classes.reclassifyBound(object.Name, affected)
	} else if changed {
		s.classes.dropClassesOf(set, affected)
		s.snapshot.addUnmanagedBoundTo(set.name, affected)
		if (former == 0) != (set.size == 0) {
			s.snapshot.addMisconfigured(set, affected)
		}
	}
	return affected.keys()
}

// updateMembers finds the members of a set, and reports whether they are others than before.
func (s *snapshot) updateMembers(set *clusterSet) (changed bool) {
	selector, err := managedcluster.SetSelector(set.object)
	if err != nil {
		selector = labels.Nothing()
	}
	set.selector = selector
	for _, c := range s.clusters.sorted {
		changed = set.update(c) || changed
	}
	return changed
}

// update makes a cluster a member of the set or not, and reports whether that has changed.
func (set *clusterSet) update(c *cluster) (changed bool) {
	return set.setMember(c, c.selectable() && set.selector.Matches(c.labels()))
}

func (set *clusterSet) setMember(c *cluster, member bool) (changed bool) {
	switch {
	case member == slices.Contains(c.sets, set):
		return false
	case member:
		c.sets = append(slices.Clone(c.sets), set)
		set.size++
	default:
		c.sets = slices.DeleteFunc(slices.Clone(c.sets), func(other *clusterSet) bool { return other == set })
		set.size--
	}
	return true
}

func (set *clusterSet) hasMembers() bool { return set.size > 0 }

// updateMembership updates the members of all sets after one cluster has changed.
func (s *snapshot) updateMembership(c *cluster, affected affected) {
	for _, set := range s.sets {
		had := set.hasMembers()
		if set.update(c) {
			s.addUnmanagedBoundTo(set.name, affected)
		}
		if had != set.hasMembers() {
			s.addMisconfigured(set, affected)
		}
	}
}

// addMisconfigured adds the misconfigured placements of a set that has become empty or is not empty any more: their conditions say so.
func (s *snapshot) addMisconfigured(set *clusterSet, affected affected) {
	for _, n := range s.namespaces {
		if _, bound := n.bindings[set.name]; !bound {
			continue
		}
		for _, p := range n.placements {
			if p.isMisconfigured() {
				affected.add(p)
			}
		}
	}
}

// DeleteClusterSet removes a ManagedClusterSet and returns the placements that this may affect.
func (s *Scheduler) DeleteClusterSet(name string) []Key {
	s.mu.Lock()
	defer s.mu.Unlock()
	set := s.snapshot.sets[name]
	if set == nil {
		return nil
	}
	affected := affected{}
	delete(s.snapshot.sets, name)
	for _, c := range s.snapshot.clusters.sorted {
		set.setMember(c, false)
	}
	s.classes.reclassifyBound(name, affected)
	return affected.keys()
}

// reclassifyBound reclassifies the placements of all namespaces with a binding of a name.
func (s *classCache) reclassifyBound(binding string, affected affected) {
	for _, n := range s.snapshot.namespaces {
		if _, bound := n.bindings[binding]; bound {
			s.reclassify(n, affected)
		}
	}
	s.snapshot.addUnmanagedBoundTo(binding, affected)
}

// addUnmanagedBoundTo calls addUnmanaged for all namespaces with a binding of a name.
func (s *snapshot) addUnmanagedBoundTo(binding string, affected affected) {
	for name, n := range s.namespaces {
		if _, bound := n.bindings[binding]; bound {
			s.addUnmanaged(name, affected)
		}
	}
}

// SetBinding adds or updates a ManagedClusterSetBinding and returns the placements that this may affect. A binding counts by its name,
// whatever its condition Bound says.
func (s *Scheduler) SetBinding(binding *clusterv1beta2.ManagedClusterSetBinding) []Key {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := s.snapshot.namespace(binding.Namespace)
	if _, known := n.bindings[binding.Name]; known {
		return nil
	}
	affected := affected{}
	n.bindings[binding.Name] = struct{}{}
	s.classes.reclassify(n, affected)
	s.snapshot.addUnmanaged(binding.Namespace, affected)
	return affected.keys()
}

// DeleteBinding removes a ManagedClusterSetBinding and returns the placements that this may affect.
func (s *Scheduler) DeleteBinding(key Key) []Key {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := s.snapshot.namespaces[key.Namespace]
	if n == nil {
		return nil
	}
	affected := affected{}
	delete(n.bindings, key.Name)
	s.classes.reclassify(n, affected)
	s.snapshot.addUnmanaged(key.Namespace, affected)
	s.snapshot.removeNamespaceIfUnused(key.Namespace)
	return affected.keys()
}

// reclassify adds the placements of a namespace whose cluster sets have changed to affected, and those whose reason to have none may have
// changed.
func (s *classCache) reclassify(n *namespace, affected affected) {
	for _, p := range n.placements {
		if p.spec == nil { // its condition says whether it has cluster sets
			affected.add(p)
			continue
		}
		former := p.class
		s.classify(p)
		if p.class != former || p.class == nil {
			affected.add(p)
		}
	}
}

// setsOf returns the sets that a placement selects from, by name.
func (s *snapshot) setsOf(object *clusterv1beta1.Placement) []*clusterSet {
	return filterSets(s.boundSets(object.Namespace), object.Spec.ClusterSets)
}

// boundSets returns the existing sets that a namespace has bindings for, by name.
func (s *snapshot) boundSets(namespace string) []*clusterSet {
	n := s.namespaces[namespace]
	if n == nil {
		return nil
	}
	var sets []*clusterSet
	for _, name := range slices.Sorted(maps.Keys(n.bindings)) {
		if set := s.sets[name]; set != nil {
			sets = append(sets, set)
		}
	}
	return sets
}

// filterSets returns the sets with these names; all if there are none.
func filterSets(sets []*clusterSet, names []string) []*clusterSet {
	if len(names) == 0 {
		return sets
	}
	return slices.DeleteFunc(slices.Clone(sets), func(set *clusterSet) bool { return !slices.Contains(names, set.name) })
}
