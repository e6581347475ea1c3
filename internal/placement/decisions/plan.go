// Package decisions plans the writes that make the PlacementDecisions of a placement list what it selects, with as few writes as possible.
//
// Like an EndpointSlice, a PlacementDecision has a slice of the decisions of a group. It keeps its clusters for as long as they are
// selected. New clusters are added where there is room, and only then to a new slice; a slice is removed when it is empty, or when the
// slices of its group are less than half full. So one cluster more or less is one write, however many clusters there are. With sortBy
// Score, the decisions are split in their order instead.
//
// Names have numbers from 1 without gaps, except for names that objects of other owners have. When a slice is removed, the last one takes
// its name.
package decisions

import (
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"

	clusterv1beta1 "github.com/capstan-io/capstan/api/cluster/v1beta1"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
	"github.com/capstan-io/capstan/internal/placement"
)

// Write is one PlacementDecision to write.
type Write struct {
	// Decision is a new object, or a changed copy of the existing one.
	Decision *clusterv1beta1.PlacementDecision
	// Create says that it is new. Its status is to be written after it was created.
	Create bool
	// Metadata says that labels or owner references of the existing object change.
	Metadata bool
	// Status says that the decisions change.
	Status bool
}

// Plan is what to write for a placement.
type Plan struct {
	// Writes in their order: a cluster that moves from one PlacementDecision to another is added before it is removed, so that
	// readers do not take it for deselected in between. This is not possible where slices exchange clusters, two or more in a circle.
	Writes []Write
	// Deletes are the names of PlacementDecisions to delete after the writes.
	Deletes []string
	// Groups is status.decisionGroups of the Placement.
	Groups []clusterv1beta1.DecisionGroupStatus
	// ScoresWritten is when scores were last written, according to the stored objects (WrittenAt); zero if unknown.
	ScoresWritten time.Time
	// ScoresDue is when scores that are delayed because of scoreRateLimit may be written; zero if there are none. The placement
	// is to be scheduled again then.
	ScoresDue time.Time
}

// New returns the plan for a result, given the existing PlacementDecisions of the placement, which are not changed. taken are the names
// of PlacementDecisions of other owners. The result must not be Disabled.
func New(owner *clusterv1beta1.Placement, result *placement.Result, existing []*clusterv1beta1.PlacementDecision, taken []string,
	now time.Time) *Plan {
	d := &planner{owner: owner, result: result, groups: result.Groups, taken: taken, objects: map[string]*clusterv1beta1.PlacementDecision{}}
	for _, object := range existing {
		// An object that is being deleted is used until it is gone, as its name cannot be used for another one.
		d.objects[object.Name] = object
	}
	d.decideScores(existing, now)
	d.slices = distribute(d.groups, slices.SortedFunc(maps.Values(d.objects), byNumber), d.sortedByScore())
	d.nameSlices()
	return d.build()
}

// planner makes a plan.
type planner struct {
	owner     *clusterv1beta1.Placement
	result    *placement.Result
	groups    []placement.Group                            // as they are to be written
	objects   map[string]*clusterv1beta1.PlacementDecision // existing ones, by name
	taken     []string
	slices    []*decisionSlice
	scoresDue time.Time // when scores may be written; zero if they may be written now
	plan      Plan
}

// sortedByScore reports whether decisions are split in their order. The order of a misconfigured placement is unknown.
func (d *planner) sortedByScore() bool {
	return d.owner.Spec.SortBy == clusterv1beta1.SortByScore && d.result.Misconfigured == nil
}

// decideScores replaces the groups by what is stored where scores are not to be written now: within scoreRateLimit, and while the
// placement is misconfigured.
func (d *planner) decideScores(existing []*clusterv1beta1.PlacementDecision, now time.Time) {
	var last time.Time
	if recorded := d.owner.Status.LastScoreUpdateTime; recorded != nil {
		last = recorded.Time
	}
	for _, object := range existing {
		if written := WrittenAt(object); written.After(last) {
			last = written // the status of the placement was not written afterwards
		}
	}
	d.plan.ScoresWritten = last
	due := last.Add(d.result.ScoreRateLimit)
	switch {
	case d.result.Misconfigured != nil:
		d.groups = keepStored(d.groups, GroupsOf(existing))
		return
	case last.IsZero(), last.After(now), !now.Before(due):
		return
	}
	d.scoresDue = due
	if d.sortedByScore() {
		var different bool
		if d.groups, different = suppressScoreChanges(d.groups, GroupsOf(existing)); different {
			d.plan.ScoresDue = due
		}
	}
}

// nameSlices gives every slice a name. Slices of existing objects keep their names if these are among the first ones; the others get the
// names that are left. If decisions are sorted by score, the numbers of each group follow the order of its slices, as GroupsOf reads them
// in this order.
func (d *planner) nameSlices() {
	names := d.freeNames(len(d.slices))
	free := sets.New(names...)
	for _, slice := range d.slices {
		if slice.object != nil && free.Has(slice.object.Name) {
			slice.name = slice.object.Name
			free.Delete(slice.name)
		}
	}
	names = slices.DeleteFunc(names, func(name string) bool { return !free.Has(name) })
	for _, slice := range d.slices {
		if slice.name == "" {
			slice.name, names = names[0], names[1:]
		}
	}
	if d.sortedByScore() {
		d.nameInOrder()
	}
}

// nameInOrder exchanges the names within each group so that their numbers follow the order of the slices.
func (d *planner) nameInOrder() {
	names := make([][]string, len(d.groups))
	for _, slice := range d.slices {
		names[slice.group] = append(names[slice.group], slice.name)
	}
	for i := range names {
		slices.SortFunc(names[i], compareNumbers)
	}
	for _, slice := range d.slices {
		slice.name, names[slice.group] = names[slice.group][0], names[slice.group][1:]
	}
}

// infix is the part of the names of PlacementDecisions between the name of the placement and the number.
const infix = "-decision-"

// freeNames returns the first n names that no object of another owner has.
func (d *planner) freeNames(n int) []string {
	names, taken := make([]string, 0, n), sets.New(d.taken...)
	for number := 1; len(names) < n; number++ {
		if name := d.owner.Name + infix + strconv.Itoa(number); !taken.Has(name) {
			names = append(names, name)
		}
	}
	return names
}

// PlacementNameOf returns the name of the placement in the name of a PlacementDecision; empty if the name has another form.
func PlacementNameOf(decision string) string {
	at := strings.LastIndex(decision, infix)
	if at < 0 {
		return ""
	}
	if _, err := strconv.ParseUint(decision[at+len(infix):], 10, 0); err != nil {
		return ""
	}
	return decision[:at]
}

// build plans the writes of all slices.
func (d *planner) build() *Plan {
	plan := &d.plan
	plan.Groups = make([]clusterv1beta1.DecisionGroupStatus, len(d.groups))
	for i, group := range d.groups {
		plan.Groups[i] = clusterv1beta1.DecisionGroupStatus{
			DecisionGroupIndex: int32(i),
			DecisionGroupName:  group.Name,
			ClustersCount:      int32(len(group.Decisions)), //nolint:gosec // the number of clusters is far below the limit
		}
	}
	gone := maps.Clone(d.objects)
	for _, slice := range d.slices {
		delete(gone, slice.name)
		plan.Groups[slice.group].Decisions = append(plan.Groups[slice.group].Decisions, slice.name)
		d.write(slice)
	}
	maps.DeleteFunc(gone, func(_ string, object *clusterv1beta1.PlacementDecision) bool { return object.DeletionTimestamp != nil })
	plan.Deletes = slices.Sorted(maps.Keys(gone))
	plan.Writes = orderWrites(plan.Writes, d.objects)
	return plan
}

// write plans the write of one slice.
func (d *planner) write(slice *decisionSlice) {
	plan, group := &d.plan, d.groups[slice.group]
	object := d.objects[slice.name]
	if object == nil {
		object = &clusterv1beta1.PlacementDecision{}
		object.Namespace, object.Name = d.owner.Namespace, slice.name
		d.setMetadata(object, slice.group, group.Name)
		object.Status.Decisions = slice.decisions
		plan.Writes = append(plan.Writes, Write{Decision: object, Create: true, Status: true})
		return
	}
	write := Write{Decision: object.DeepCopy()}
	write.Decision.ManagedFields = nil // Strip has removed most of them
	write.Metadata = d.setMetadata(write.Decision, slice.group, group.Name)
	write.Decision.Status.Decisions = slice.decisions
	switch written := object.Status.Decisions; {
	case slices.Equal(written, slice.decisions) && written != nil:
	case sameClusters(written, slice.decisions) && (!d.scoresDue.IsZero() || d.result.Misconfigured != nil):
		plan.ScoresDue = d.scoresDue
		write.Decision.Status.Decisions = written
	default:
		write.Status = true
	}
	if write.Metadata || write.Status {
		plan.Writes = append(plan.Writes, write)
	}
}

// setMetadata sets the labels and the owner of a PlacementDecision, and reports whether they were missing or different.
func (d *planner) setMetadata(object *clusterv1beta1.PlacementDecision, index int, group string) bool {
	changed := false
	for key, value := range map[string]string{
		fleet.LabelPlacement:          d.owner.Name,
		fleet.LabelDecisionGroupName:  group,
		fleet.LabelDecisionGroupIndex: strconv.Itoa(index),
	} {
		if present, has := object.Labels[key]; !has || present != value {
			changed = true
			metav1.SetMetaDataLabel(&object.ObjectMeta, key, value)
		}
	}
	if !metav1.IsControlledBy(object, d.owner) {
		changed = true
		object.OwnerReferences = slices.DeleteFunc(object.OwnerReferences, func(other metav1.OwnerReference) bool {
			return other.Controller != nil && *other.Controller // there can only be one controller
		})
		object.OwnerReferences = append(object.OwnerReferences,
			*metav1.NewControllerRef(d.owner, clusterv1beta1.GroupVersion.WithKind("Placement")))
	}
	return changed
}

// sameClusters reports whether two lists have the same clusters, each once, in any order.
func sameClusters(a, b []clusterv1beta1.ClusterDecision) bool {
	if len(a) != len(b) || a == nil {
		return false
	}
	names := map[string]bool{}
	for _, decision := range a {
		names[decision.ClusterName] = true
	}
	for _, decision := range b {
		if !names[decision.ClusterName] {
			return false
		}
		delete(names, decision.ClusterName)
	}
	return true
}

// orderWrites orders the writes so that clusters are added to their new PlacementDecisions before they are removed from the old ones: a
// write waits for those that list a cluster it removes, and the next one is always the first that waits for none. If all that are left
// wait, as some of them exchange clusters, the next one is the first of all.
func orderWrites(writes []Write, objects map[string]*clusterv1beta1.PlacementDecision) []Write {
	waits, waiters := waitsOf(writes, objects)
	var ready []int // in ascending order
	for i := range writes {
		if waits[i] == 0 {
			ready = append(ready, i)
		}
	}
	ordered, done := make([]Write, 0, len(writes)), make([]bool, len(writes))
	first := 0 // all before it are done
	for len(ordered) < len(writes) {
		if len(ready) == 0 {
			for done[first] {
				first++
			}
			ready = append(ready, first)
		}
		next := ready[0]
		ready = ready[1:]
		ordered = append(ordered, writes[next])
		done[next] = true
		for _, i := range waiters[next] {
			if waits[i]--; waits[i] == 0 && !done[i] {
				at, _ := slices.BinarySearch(ready, i)
				ready = slices.Insert(ready, at, i)
			}
		}
	}
	return ordered
}

// waitsOf returns how many clusters each write removes that another one lists, and for each write those that wait for it, once for each
// such cluster. As groups have no cluster in common, at most one write lists a cluster.
func waitsOf(writes []Write, objects map[string]*clusterv1beta1.PlacementDecision) (waits []int, waiters [][]int) {
	listedBy := map[string]int{}
	for i, write := range writes {
		for _, decision := range write.Decision.Status.Decisions {
			listedBy[decision.ClusterName] = i
		}
	}
	waits, waiters = make([]int, len(writes)), make([][]int, len(writes))
	for i, write := range writes {
		object := objects[write.Decision.Name]
		if object == nil {
			continue // a new one removes no cluster
		}
		for _, former := range object.Status.Decisions {
			if other, listed := listedBy[former.ClusterName]; listed && other != i {
				waits[i]++
				waiters[other] = append(waiters[other], i)
			}
		}
	}
	return waits, waiters
}
