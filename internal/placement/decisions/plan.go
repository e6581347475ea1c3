// Package decisions turns what a placement selects into its PlacementDecisions with as few writes as possible.
//
// A PlacementDecision, a slice of the decisions of a group, keeps the clusters it has for as long as they are selected.
// Clusters that are new go where there is room, and only then to a new slice; a slice is dissolved when it is empty, or
// when the slices of its group are less than half full. So one cluster more or less is one write, however many there are.
// With sortBy Score, slices follow the order of all decisions instead.
//
// Names count from 1 without gaps, but for names that somebody else has taken: when a slice goes, the last one takes its name.
package decisions

import (
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	clusterv1beta1 "github.com/capstan-io/capstan/api/cluster/v1beta1"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
	"github.com/capstan-io/capstan/internal/placement"
)

// Write is one PlacementDecision to write.
type Write struct {
	// Decision as it is to be: a new object, or a changed copy of the one there is.
	Decision *clusterv1beta1.PlacementDecision
	// Create says that it is new. Its status is to be written after it is created.
	Create bool
	// Metadata says that labels or owner references of the one there is change.
	Metadata bool
	// Status says that the decisions change.
	Status bool
}

// Plan is what to write for a placement.
type Plan struct {
	// Writes in the order to do them in: a cluster that moves from one PlacementDecision to another is added before
	// it is removed, so that nobody who reads in between takes it for deselected. Only where two slices exchange
	// clusters this cannot be.
	Writes []Write
	// Deletes are names of PlacementDecisions to delete after the writes.
	Deletes []string
	// Groups is status.decisionGroups of the Placement.
	Groups []clusterv1beta1.DecisionGroupStatus
	// ScoresWritten is when scores were last written, as far as is known from what is stored (WrittenAt); zero if it is not.
	ScoresWritten time.Time
	// ScoresDue is when scores may be written that were held back because of scoreRateLimit; zero when none were. The placement is
	// to be scheduled again then.
	ScoresDue time.Time
}

// New compares what a placement selects with the PlacementDecisions it has. taken are names of PlacementDecisions that are not
// of the placement and that it leaves alone. New must not be asked about a result that is Disabled, as then all stays as it is.
// Objects that are passed in are not changed.
func New(owner *clusterv1beta1.Placement, result *placement.Result, existing []*clusterv1beta1.PlacementDecision, taken []string,
	now time.Time) *Plan {
	d := &planner{owner: owner, result: result, groups: result.Groups, taken: taken, objects: map[string]*clusterv1beta1.PlacementDecision{}}
	for _, object := range existing {
		// One that waits for finalizers is in use for as long as it is there: nobody else can have its name.
		d.objects[object.Name] = object
	}
	d.decideScores(existing, now)
	d.slices = distribute(d.groups, slices.SortedFunc(maps.Values(d.objects), byNumber), d.sortedByScore())
	d.nameSlices()
	return d.build()
}

// planner of a plan.
type planner struct {
	owner     *clusterv1beta1.Placement
	result    *placement.Result
	groups    []placement.Group                            // as they are to be stored
	objects   map[string]*clusterv1beta1.PlacementDecision // there are, by name
	taken     []string
	slices    []*decisionSlice
	scoresDue time.Time // when scores may be written; zero if they may
	plan      Plan
}

// sortedByScore tells whether slices follow the order of the groups. Which that was is not known when a placement is misconfigured.
func (d *planner) sortedByScore() bool {
	return d.owner.Spec.SortBy == clusterv1beta1.SortByScore && d.result.Misconfigured == nil
}

// decideScores decides which scores the groups come with: the new ones or, where it is too early for them, those that are stored.
func (d *planner) decideScores(existing []*clusterv1beta1.PlacementDecision, now time.Time) {
	var last time.Time
	if recorded := d.owner.Status.LastScoreUpdateTime; recorded != nil {
		last = recorded.Time
	}
	for _, object := range existing {
		if written := WrittenAt(object); written.After(last) {
			last = written // the status of the placement was not written after that
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
		if d.groups, different = holdScores(d.groups, GroupsOf(existing)); different {
			d.plan.ScoresDue = due
		}
	}
}

// nameSlices gives all slices names that count from 1. Those whose objects are numbered higher, and new ones, take the numbers
// that are left. Slices that follow an order then exchange names with others of their group, as that of the numbers is the one
// that Stored finds.
func (d *planner) nameSlices() {
	names := d.freeNames(len(d.slices))
	free := map[string]bool{}
	for _, name := range names {
		free[name] = true
	}
	for _, slice := range d.slices {
		if slice.object != nil && free[slice.object.Name] {
			slice.name = slice.object.Name
			delete(free, slice.name)
		}
	}
	next := 0
	for _, slice := range d.slices {
		for ; slice.name == ""; next++ {
			if name := names[next]; free[name] {
				slice.name = name
			}
		}
	}
	if d.sortedByScore() {
		d.nameInOrder()
	}
}

// nameInOrder gives the slices of each group the names of the group in the order of their numbers.
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

// infix of the names of PlacementDecisions, between that of the placement and the number.
const infix = "-decision-"

// freeNames are the first n that the placement can have.
func (d *planner) freeNames(n int) []string {
	names := make([]string, 0, n)
	for number := 1; len(names) < n; number++ {
		if name := d.owner.Name + infix + strconv.Itoa(number); !slices.Contains(d.taken, name) {
			names = append(names, name)
		}
	}
	return names
}

// PlacementNameOf is the name of the placement whose PlacementDecisions have names such as this one; empty if it is no such name.
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

// write plans what it takes to make an object of a slice.
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
	write.Decision.ManagedFields = nil // Strip has left too little of them to be sent
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

// setMetadata gives a PlacementDecision the labels and the owner it must have, and reports whether it lacked any.
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
			return other.Controller != nil && *other.Controller // there can be one controller only
		})
		object.OwnerReferences = append(object.OwnerReferences,
			*metav1.NewControllerRef(d.owner, clusterv1beta1.GroupVersion.WithKind("Placement")))
	}
	return changed
}

// sameClusters tells whether two lists have the same clusters, each once, in whatever order.
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

// orderWrites orders writes so that a cluster is in its new PlacementDecision before it leaves its old one.
func orderWrites(writes []Write, objects map[string]*clusterv1beta1.PlacementDecision) []Write {
	ordered := make([]Write, 0, len(writes))
	for len(writes) > 0 {
		at := max(0, slices.IndexFunc(writes, func(write Write) bool { return !mustWait(write, writes, objects) }))
		ordered = append(ordered, writes[at])
		writes = slices.Delete(writes, at, at+1)
	}
	return ordered
}

// mustWait tells whether a write removes a cluster that another of the writes has yet to add.
func mustWait(write Write, writes []Write, objects map[string]*clusterv1beta1.PlacementDecision) bool {
	object := objects[write.Decision.Name]
	if object == nil || len(writes) == 1 {
		return false
	}
	removed := map[string]bool{}
	for _, decision := range object.Status.Decisions {
		removed[decision.ClusterName] = true
	}
	for _, decision := range write.Decision.Status.Decisions {
		delete(removed, decision.ClusterName)
	}
	for _, other := range writes {
		for _, decision := range other.Decision.Status.Decisions {
			if removed[decision.ClusterName] {
				return true
			}
		}
	}
	return false
}
