package placement

import (
	"slices"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/sets"

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
	had := set.hasMembers()
	set.object = object
	changed := s.snapshot.updateMembers(set)
	if fresh {
		s.classes.reclassify(s.snapshot.bound[object.Name], affected)
	} else if len(changed) > 0 {
		s.classes.dropClassesOf(set, affected)
		s.snapshot.addPlacementsOf(set, had, changed, affected)
	}
	return affected.keys()
}

// updateMembers finds the members of a set, and returns the clusters that have joined or left it.
func (sn *snapshot) updateMembers(set *clusterSet) (changed []*cluster) {
	var err error
	if set.selector, err = managedcluster.SetSelector(set.object); err != nil {
		set.selector = labels.Nothing()
	}
	for _, c := range sn.clusters.sorted {
		if set.update(c) {
			changed = append(changed, c)
		}
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
func (sn *snapshot) updateMembership(c *cluster, affected affected) {
	for _, set := range sn.sets {
		had := set.hasMembers()
		if set.update(c) {
			sn.addPlacementsOf(set, had, []*cluster{c}, affected)
		}
	}
}

// addPlacementsOf adds placements of the namespaces that have bound a set which clusters have joined or left: those that the scheduler does
// not manage; if the set has become empty or is not empty any more, the misconfigured ones, whose conditions say so; and those that keep
// their decisions, if they have selected a cluster that has left.
func (sn *snapshot) addPlacementsOf(set *clusterSet, had bool, changed []*cluster, affected affected) {
	for namespace := range sn.unmanaged { // these are few, while all namespaces may have bound the set
		if sn.bindings[namespace].Has(set.name) {
			sn.addUnmanaged(namespace, affected)
		}
	}
	refilled, lost := had != set.hasMembers(), setOf(set.selectedFormerMembers(changed))
	if !refilled && len(lost) == 0 { // so a hub that starts visits no placement for each cluster that it finds
		return
	}
	for namespace := range sn.bound[set.name] {
		for p := range sn.placementsIn[namespace] {
			if refilled && p.isMisconfigured() || p.keepsDecisions() && p.hasAny(lost) {
				affected.add(p)
			}
		}
	}
}

// selectedFormerMembers returns those of the clusters which have joined or left the set that have left it, and that a placement has
// selected.
func (set *clusterSet) selectedFormerMembers(changed []*cluster) []*cluster {
	return slices.DeleteFunc(slices.Clone(changed), func(c *cluster) bool { return c.decisions == 0 || slices.Contains(c.sets, set) })
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
	s.classes.reclassify(s.snapshot.bound[name], affected)
	return affected.keys()
}

// SetBinding adds or updates a ManagedClusterSetBinding and returns the placements that this may affect. A binding counts by its name,
// whatever its condition Bound says.
func (s *Scheduler) SetBinding(binding *clusterv1beta2.ManagedClusterSetBinding) []Key {
	return s.setBinding(Key{Namespace: binding.Namespace, Name: binding.Name}, true)
}

// DeleteBinding removes a ManagedClusterSetBinding and returns the placements that this may affect.
func (s *Scheduler) DeleteBinding(key Key) []Key { return s.setBinding(key, false) }

func (s *Scheduler) setBinding(key Key, exists bool) []Key {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.snapshot.bindings[key.Namespace].Has(key.Name) == exists {
		return nil
	}
	s.snapshot.bindings.set(key.Namespace, key.Name, exists)
	s.snapshot.bound.set(key.Name, key.Namespace, exists)
	affected := affected{}
	s.classes.reclassify(sets.New(key.Namespace), affected)
	return affected.keys()
}

// reclassify adds the placements of namespaces to affected whose cluster sets have changed, or whose reason to have none may have changed,
// and those that the scheduler does not manage.
func (cc *classCache) reclassify(namespaces sets.Set[string], affected affected) {
	for namespace := range namespaces {
		for p := range cc.snapshot.placementsIn[namespace] {
			former := p.class
			if p.spec != nil {
				cc.classify(p)
			}
			// Without a class, its conditions say why; what it keeps may be in sets that its class does not have.
			if p.class != former || p.class == nil || p.keepsDecisions() {
				affected.add(p)
			}
		}
		cc.snapshot.addUnmanaged(namespace, affected)
	}
}

// setsOf returns the sets that a placement selects from, by name.
func (sn *snapshot) setsOf(object *clusterv1beta1.Placement) []*clusterSet {
	return filterSets(sn.boundSets(object.Namespace), object.Spec.ClusterSets)
}

// boundSets returns the existing sets that a namespace has bindings for, by name.
func (sn *snapshot) boundSets(namespace string) []*clusterSet {
	var bound []*clusterSet
	for _, name := range sets.List(sn.bindings[namespace]) {
		if set := sn.sets[name]; set != nil {
			bound = append(bound, set)
		}
	}
	return bound
}

// filterSets returns the sets with these names; all if there are none.
func filterSets(sets []*clusterSet, names []string) []*clusterSet {
	if len(names) == 0 {
		return sets
	}
	return slices.DeleteFunc(slices.Clone(sets), func(set *clusterSet) bool { return !slices.Contains(names, set.name) })
}
