package placement

import (
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/labels"

	clusterv1beta2 "github.com/capstan-io/capstan/api/cluster/v1beta2"
	"github.com/capstan-io/capstan/internal/placement/clusterset"
)

// clusterSet is a ManagedClusterSet and its members.
type clusterSet struct {
	name     string
	object   *clusterv1beta2.ManagedClusterSet
	selector labels.Selector
	members  bitset // that are selectable
}

// namespace holds the names of its ManagedClusterSetBindings and its placements.
type namespace struct {
	bindings   map[string]struct{}
	placements map[Key]*placement
}

func (s *Scheduler) namespace(name string) *namespace {
	n := s.namespaces[name]
	if n == nil {
		n = &namespace{bindings: map[string]struct{}{}, placements: map[Key]*placement{}}
		s.namespaces[name] = n
	}
	return n
}

func (s *Scheduler) forgetNamespace(name string) {
	if n := s.namespaces[name]; n != nil && len(n.bindings) == 0 && len(n.placements) == 0 {
		delete(s.namespaces, name)
	}
}

// SetClusterSet takes in a ManagedClusterSet that is new or has changed. One whose selector makes no sense has no
// members.
func (s *Scheduler) SetClusterSet(object *clusterv1beta2.ManagedClusterSet) []Key {
	s.mu.Lock()
	defer s.mu.Unlock()
	affected := affected{}
	set := s.sets[object.Name]
	if set != nil && equality.Semantic.DeepEqual(set.object.Spec.ClusterSelector, object.Spec.ClusterSelector) {
		set.object = object
		return nil
	}
	fresh := set == nil
	if fresh {
		set = &clusterSet{name: object.Name}
		s.sets[object.Name] = set
	}
	former := slices.Clone(set.members)
	set.object = object
	s.fillMembers(set)
	if fresh {
		s.reclassifyBound(object.Name, affected)
	} else if !slices.Equal(former, set.members) {
		s.dropClassesOf(set, affected)
		s.addUnmanagedBoundTo(set.name, affected)
		if former.empty() == set.hasMembers() {
			s.addMisconfigured(set, affected)
		}
	}
	return affected.keys()
}

// fillMembers finds the members of a set.
func (s *Scheduler) fillMembers(set *clusterSet) {
	set.members = nil
	selector, err := clusterset.Selector(set.object)
	if err != nil {
		selector = labels.Nothing()
	}
	set.selector = selector
	if lists, _, ok := s.byLabel.lookup(selector); ok {
		for _, ids := range lists {
			for _, id := range ids {
				set.updateMember(s.clusters.byID[id])
			}
		}
		return
	}
	for _, id := range s.clusters.idByName {
		set.updateMember(s.clusters.byID[id])
	}
}

func (set *clusterSet) updateMember(c *cluster) {
	set.members.setTo(c.id, c.selectable() && set.selector.Matches(c.labels()))
}

func (set *clusterSet) hasMembers() bool { return !set.members.empty() }

// updateMembership is consider for all sets, when one cluster has changed.
func (s *Scheduler) updateMembership(c *cluster, affected affected) {
	for _, set := range s.sets {
		had, was := set.hasMembers(), set.members.has(c.id)
		set.updateMember(c)
		if was != set.members.has(c.id) {
			s.addUnmanagedBoundTo(set.name, affected)
		}
		if had != set.hasMembers() {
			s.addMisconfigured(set, affected)
		}
	}
}

// addMisconfigured finds the misconfigured placements with a set that has members now, or none any more: they select nothing, but say why.
func (s *Scheduler) addMisconfigured(set *clusterSet, affected affected) {
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

// DeleteClusterSet forgets a ManagedClusterSet.
func (s *Scheduler) DeleteClusterSet(name string) []Key {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.sets[name] == nil {
		return nil
	}
	affected := affected{}
	delete(s.sets, name)
	s.reclassifyBound(name, affected)
	return affected.keys()
}

// reclassifyBound gives the placements of all namespaces with a binding of that name their cluster sets anew.
func (s *Scheduler) reclassifyBound(binding string, affected affected) {
	for _, n := range s.namespaces {
		if _, bound := n.bindings[binding]; bound {
			s.reclassify(n, affected)
		}
	}
	s.addUnmanagedBoundTo(binding, affected)
}

// addUnmanagedBoundTo is addDecidedByOthers for all namespaces with a binding of that name.
func (s *Scheduler) addUnmanagedBoundTo(binding string, affected affected) {
	for name, n := range s.namespaces {
		if _, bound := n.bindings[binding]; bound {
			s.addUnmanaged(name, affected)
		}
	}
}

// SetBinding adds or updates a ManagedClusterSetBinding. It counts by its name, whatever its condition Bound says.
func (s *Scheduler) SetBinding(binding *clusterv1beta2.ManagedClusterSetBinding) []Key {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := s.namespace(binding.Namespace)
	if _, known := n.bindings[binding.Name]; known {
		return nil
	}
	affected := affected{}
	n.bindings[binding.Name] = struct{}{}
	s.reclassify(n, affected)
	s.addUnmanaged(binding.Namespace, affected)
	return affected.keys()
}

// DeleteBinding forgets a ManagedClusterSetBinding.
func (s *Scheduler) DeleteBinding(key Key) []Key {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := s.namespaces[key.Namespace]
	if n == nil {
		return nil
	}
	affected := affected{}
	delete(n.bindings, key.Name)
	s.reclassify(n, affected)
	s.addUnmanaged(key.Namespace, affected)
	s.forgetNamespace(key.Namespace)
	return affected.keys()
}

// reclassify finds the placements of a namespace that now have other cluster sets, or another reason to have none.
func (s *Scheduler) reclassify(n *namespace, affected affected) {
	for _, p := range n.placements {
		if p.spec == nil { // it selects nothing, but says why
			affected.add(p)
			continue
		}
		former := p.class
		s.classify(p, n)
		if p.class != former || p.class == nil {
			affected.add(p)
		}
	}
}

// boundSets returns the sets that bindings of the namespace lead to, by name.
func (s *Scheduler) boundSets(n *namespace) []*clusterSet {
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

// filterSets returns those of the sets that a placement wants.
func filterSets(sets []*clusterSet, wanted []string) []*clusterSet {
	if len(wanted) == 0 {
		return sets
	}
	return slices.DeleteFunc(slices.Clone(sets), func(set *clusterSet) bool { return !slices.Contains(wanted, set.name) })
}
