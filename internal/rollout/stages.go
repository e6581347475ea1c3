package rollout

import (
	"cmp"
	"fmt"
	"slices"

	clusterv1alpha1 "github.com/capstan-io/capstan/api/cluster/v1alpha1"
	"github.com/capstan-io/capstan/internal/machinery/text"
)

// wholePlacementName is the name of a stage with all clusters.
const wholePlacementName = "the whole placement"

// stage is a set of clusters that are done before the next stage begins.
type stage struct {
	name      string
	mandatory bool
	slots     int // How many clusters may be in flight.
	tolerated int // How many clusters may fail.

	clusters []int // Indices into Input.Clusters.
	waiting  []int // Those without the change.
	absent   []int // Those that the stage waits for until they can get the change.
	inFlight int
	failed   []int
}

func (s *stage) done() bool    { return s.remaining() == 0 }
func (s *stage) stopped() bool { return len(s.failed) > s.tolerated }

// remaining is how many clusters of the stage are not done.
func (s *stage) remaining() int { return len(s.waiting) + len(s.absent) + s.inFlight }

// nextClusters returns the clusters that get the free slots, by name.
func (s *stage) nextClusters(clusters []Cluster) []int {
	free := min(max(s.slots-s.inFlight, 0), len(s.waiting))
	if free < len(s.waiting) {
		slices.SortFunc(s.waiting, func(a, b int) int { return cmp.Compare(clusters[a].Name, clusters[b].Name) })
	}
	return s.waiting[:free]
}

// buildStages divides the selected clusters into stages, and notes which numbers do not fit them.
func (p policy) buildStages(clusters []Cluster) (stages []*stage, notes []string) {
	groups, total := groupClusters(clusters)
	stages, groups, notes = p.mandatoryStages(groups)
	switch p.kind {
	case clusterv1alpha1.ProgressivePerGroup:
		rest, restNotes := p.groupStages(groups)
		return append(stages, rest...), append(notes, restNotes...)
	case clusterv1alpha1.Progressive:
		rest, restNotes := p.progressiveStage(flatten(groups, total), total)
		return append(stages, rest), append(notes, restNotes...)
	default:
		all := flatten(groups, total)
		return []*stage{{name: wholePlacementName, clusters: all, slots: len(all), tolerated: len(all)}}, notes
	}
}

// groupMembers are the clusters of a decision group.
type groupMembers struct {
	Group
	clusters []int
}

// groupClusters returns the selected clusters by decision group, in the order of the indexes.
func groupClusters(clusters []Cluster) (groups []*groupMembers, total int) {
	byGroup := map[Group]*groupMembers{}
	var group *groupMembers // Clusters usually come group by group.
	for i := range clusters {
		if clusters[i].Deselected {
			continue
		}
		total++
		if group == nil || group.Group != clusters[i].Group {
			group = byGroup[clusters[i].Group]
		}
		if group == nil {
			group = &groupMembers{Group: clusters[i].Group}
			byGroup[group.Group] = group
			groups = append(groups, group)
		}
		group.clusters = append(group.clusters, i)
	}
	slices.SortFunc(groups, func(a, b *groupMembers) int {
		return cmp.Or(cmp.Compare(a.Index, b.Index), cmp.Compare(a.Name, b.Name))
	})
	return groups, total
}

func flatten(groups []*groupMembers, total int) []int {
	all := make([]int, 0, total)
	for _, group := range groups {
		all = append(all, group.clusters...)
	}
	return all
}

// mandatoryStages returns a stage for each mandatory group, and the other groups. A mandatory group without clusters is left out: the
// Placement may have none for it at the moment.
func (p policy) mandatoryStages(groups []*groupMembers) (stages []*stage, others []*groupMembers, notes []string) {
	taken := map[*groupMembers]bool{}
	for _, mandatory := range p.mandatory {
		found := false
		for _, group := range groups {
			if !mandatory.matches(group.Group) {
				continue
			}
			found = true
			if taken[group] {
				continue
			}
			taken[group] = true
			stages = append(stages, &stage{
				name: "mandatory " + group.String(), mandatory: true,
				clusters: group.clusters, slots: len(group.clusters), tolerated: 0,
			})
		}
		if !found {
			notes = append(notes, fmt.Sprintf("%s: the placement has no clusters in a decision group %s: it is passed over",
				mandatory.path, mandatory))
		}
	}
	others = slices.DeleteFunc(groups, func(group *groupMembers) bool { return taken[group] })
	return stages, others, notes
}

// groupStages returns the stages of ProgressivePerGroup. maxFailures applies to each group.
func (p policy) groupStages(groups []*groupMembers) (stages []*stage, notes []string) {
	var tooSmall []string
	for _, group := range groups {
		tolerated, tooLarge := p.maxFailures.tolerated(len(group.clusters))
		if tooLarge {
			tooSmall = append(tooSmall, group.String())
		}
		stages = append(stages, &stage{
			name: group.String(), clusters: group.clusters, slots: len(group.clusters), tolerated: tolerated,
		})
	}
	if len(tooSmall) > 0 {
		notes = []string{fmt.Sprintf("%s: %s is more than the clusters of %s: all of them may fail",
			p.maxFailures.path, p.maxFailures, text.FirstFew(tooSmall))}
	}
	return stages, notes
}

// progressiveStage returns the last stage of Progressive. maxConcurrency applies to its clusters, maxFailures to all of the rollout.
func (p policy) progressiveStage(clusters []int, total int) (last *stage, notes []string) {
	slots, note := p.maxConcurrency.slots(len(clusters))
	if note != "" {
		notes = append(notes, note)
	}
	tolerated, tooLarge := p.maxFailures.tolerated(total)
	if tooLarge {
		notes = append(notes, fmt.Sprintf("%s: %s is more than the %s there are: %d is used",
			p.maxFailures.path, p.maxFailures, text.Count(total, "cluster"), total))
	}
	name := wholePlacementName
	if len(clusters) < total {
		name = "the rest of the placement"
	}
	return &stage{name: name, clusters: clusters, slots: slots, tolerated: tolerated}, notes
}
