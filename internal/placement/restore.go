package placement

import (
	"maps"
	"slices"

	clusterv1beta1 "github.com/capstan-io/capstan/api/cluster/v1beta1"
)

// reasonKept is the reason of decisions whose own reason is not known any more.
const reasonKept = "selected before the placement came to be misconfigured"

// Manages reports whether the scheduler decides for a placement: it exists, its scheduling is not disabled, and it was scheduled.
func (s *Scheduler) Manages(key Key) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.snapshot.placements[key]
	return p != nil && p.scheduled
}

// Restore passes the stored decisions of a placement to the scheduler, for Steady and Balance. It does nothing if the scheduler manages
// the placement. Decisions whose placement does not exist count for Balance, too.
//
// If another writer decides, only those decisions count that the hub acts on. Which ones these are may change with any event: then the
// placement is among those that SetCluster and the other methods return, and the caller restores it again.
func (s *Scheduler) Restore(key Key, groups []Group) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch p := s.snapshot.placements[key]; {
	case p == nil:
		s.snapshot.restoreOrphan(key, groups)
	case p.disabled:
		s.snapshot.setGroups(p, s.snapshot.eligible(key.Namespace, groups))
	case !p.scheduled:
		s.snapshot.setGroups(p, groups)
	}
}

// eligible returns the decisions that a placement of the namespace could have made. With the right to write PlacementDecisions in a
// namespace, a user can name any clusters; if these counted for Balance, they would keep the placements of others away from them.
func (sn *snapshot) eligible(namespace string, groups []Group) []Group {
	if sn.trustDecisions {
		return groups
	}
	bound := equivalenceClass{sets: sn.boundSets(namespace)}
	left := make([]Group, len(groups))
	for i, group := range groups {
		left[i].Name = group.Name
		for _, decision := range group.Decisions {
			if c := sn.clusters.get(decision.ClusterName); c != nil && bound.has(c) {
				left[i].Decisions = append(left[i].Decisions, decision)
			}
		}
	}
	return left
}

// addUnmanaged adds the placements of a namespace that the scheduler does not manage: other decisions may be eligible now.
func (sn *snapshot) addUnmanaged(namespace string, affected affected) {
	if !sn.trustDecisions {
		maps.Copy(affected, sn.unmanaged[namespace])
	}
}

func (sn *snapshot) restoreOrphan(key Key, groups []Group) {
	p := sn.orphans[key]
	if p == nil {
		p = &placement{key: key}
	}
	sn.setGroups(p, sn.eligible(key.Namespace, groups))
	decided := slices.ContainsFunc(groups, func(group Group) bool { return len(group.Decisions) > 0 })
	if sn.unmanaged.set(key.Namespace, key, decided); decided {
		sn.orphans[key] = p
	} else {
		delete(sn.orphans, key)
	}
}

// setGroups records the decisions of a placement. A cluster that is listed twice is in the first of its groups.
func (sn *snapshot) setGroups(p *placement, groups []Group) {
	n := 0
	for _, group := range groups {
		n += len(group.Decisions)
	}
	selected, listed := make([]*cluster, 0, n), make(map[*cluster]bool, n)
	var records []groupRecord
	for _, group := range groups {
		before := len(selected)
		for i := range group.Decisions {
			if c := sn.clusters.getOrAdd(group.Decisions[i].ClusterName); !listed[c] {
				listed[c] = true
				selected = append(selected, c)
			}
		}
		records = append(records, groupRecord{name: group.Name, size: len(selected) - before})
	}
	if len(records) == 1 && records[0].name == "" {
		records = nil
	}
	sn.setDecision(p, selected)
	p.groups = records
}

// adoptOrphan gives a new placement the decisions that were restored before it existed.
func (sn *snapshot) adoptOrphan(p *placement) {
	if orphan := sn.orphans[p.key]; orphan != nil {
		p.selected, p.groups = orphan.selected, orphan.groups
		delete(sn.orphans, p.key)
	}
}

// Selects reports whether a placement has selected a cluster when it was last scheduled.
func (s *Scheduler) Selects(key Key, cluster string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.snapshot.placements[key]
	return p != nil && p.has(s.snapshot.clusters.get(cluster))
}

// setDecision records the clusters of a placement.
func (sn *snapshot) setDecision(p *placement, selected []*cluster) {
	former := p.selected
	p.selected = selected
	for _, c := range selected {
		sn.decisionCounts.add(c, 1)
	}
	for _, c := range former {
		sn.decisionCounts.add(c, -1)
		sn.removeIfUnused(c)
	}
}

// keptGroups returns the groups of the last decision with the clusters that are members of some sets, and how many these are. A group
// without such a cluster is empty.
func (p *placement) keptGroups(sets []*clusterSet) (groups []Group, kept int) {
	records := p.groups
	if len(records) == 0 {
		records = []groupRecord{{size: len(p.selected)}}
	}
	from := equivalenceClass{sets: sets}
	groups, rest := make([]Group, len(records)), p.selected
	for i, record := range records {
		groups[i].Name = record.name
		for _, c := range rest[:record.size] {
			if from.has(c) {
				groups[i].Decisions = append(groups[i].Decisions, clusterv1beta1.ClusterDecision{ClusterName: c.name, Reason: reasonKept})
			}
		}
		kept += len(groups[i].Decisions)
		rest = rest[record.size:]
	}
	return groups, kept
}
