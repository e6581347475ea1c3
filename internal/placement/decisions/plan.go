// Package decisions turns what a placement selects into its PlacementDecisions with as few writes as possible (PL-16).
//
// A PlacementDecision, a slice of the decisions of a group, keeps the clusters it has for as long as they are selected.
// Clusters that are new go where there is room, and only then to a new slice; a slice is dissolved when it is empty, or
// when the slices of its group are less than half full. So one cluster more or less is one write, however many there are.
// With sortBy Score, slices follow the order of all decisions instead.
//
// Names count from 1 without gaps: when a slice goes, the last one takes its name.
package decisions

import (
	"cmp"
	"maps"
	"slices"
	"strconv"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	clusterv1beta1 "github.com/capstan-io/capstan/api/cluster/v1beta1"
	"github.com/capstan-io/capstan/internal/fleet"
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
	// Groups is status.decisionGroups of the Placement (PL-17).
	Groups []clusterv1beta1.DecisionGroupStatus
	// ScoresWritten says that scores change, and lastScoreUpdateTime of the Placement with them.
	ScoresWritten bool
	// ScoresDue is when scores may be written that were held back because of scoreRateLimit; zero when none were. The placement is
	// to be scheduled again then.
	ScoresDue time.Time
}

// New compares what a placement selects with the PlacementDecisions it has. It must not be asked about a result that is
// Disabled or Misconfigured, as then all stays as it is. Objects that are passed in are not changed.
func New(owner *clusterv1beta1.Placement, result *placement.Result, existing []*clusterv1beta1.PlacementDecision, now time.Time) *Plan {
	d := &draft{owner: owner, result: result, objects: map[string]*clusterv1beta1.PlacementDecision{}}
	for _, object := range existing {
		if object.DeletionTimestamp == nil {
			d.objects[object.Name] = object
		}
	}
	d.slices = distribute(result.Groups, d.sorted(), owner.Spec.SortBy == clusterv1beta1.SortByScore)
	d.name()
	return d.plan(now)
}

// draft of a plan.
type draft struct {
	owner   *clusterv1beta1.Placement
	result  *placement.Result
	objects map[string]*clusterv1beta1.PlacementDecision // there are, by name
	slices  []*slice
}

// sorted returns the objects there are by their numbers.
func (d *draft) sorted() []*clusterv1beta1.PlacementDecision {
	return slices.SortedFunc(maps.Values(d.objects), func(a, b *clusterv1beta1.PlacementDecision) int {
		return cmp.Or(cmp.Compare(len(a.Name), len(b.Name)), cmp.Compare(a.Name, b.Name))
	})
}

// name gives all slices names that count from 1. Those whose objects are numbered higher, and new ones, take the numbers
// that are left.
func (d *draft) name() {
	free := map[string]bool{}
	for i := range d.slices {
		free[d.numbered(i)] = true
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
			if name := d.numbered(next); free[name] {
				slice.name = name
			}
		}
	}
}

func (d *draft) numbered(i int) string {
	return d.owner.Name + "-decision-" + strconv.Itoa(i+1)
}

func (d *draft) plan(now time.Time) *Plan {
	plan := &Plan{Groups: make([]clusterv1beta1.DecisionGroupStatus, len(d.result.Groups))}
	for i, group := range d.result.Groups {
		plan.Groups[i] = clusterv1beta1.DecisionGroupStatus{
			DecisionGroupIndex: int32(i), DecisionGroupName: group.Name, ClustersCount: int32(len(group.Decisions)),
		}
	}
	due := now
	if last := d.owner.Status.LastScoreUpdateTime; last != nil {
		due = last.Add(d.result.ScoreRateLimit)
	}
	gone := maps.Clone(d.objects)
	for _, slice := range d.slices {
		delete(gone, slice.name)
		plan.Groups[slice.group].Decisions = append(plan.Groups[slice.group].Decisions, slice.name)
		d.write(plan, slice, now, due)
	}
	plan.Deletes = slices.Sorted(maps.Keys(gone))
	plan.Writes = addFirst(plan.Writes, d.objects)
	return plan
}

// write plans what it takes to make an object of a slice.
func (d *draft) write(plan *Plan, slice *slice, now, due time.Time) {
	group := d.result.Groups[slice.group]
	object := d.objects[slice.name]
	if object == nil {
		object = &clusterv1beta1.PlacementDecision{}
		object.Namespace, object.Name = d.owner.Namespace, slice.name
		d.label(object, slice.group, group.Name)
		object.Status.Decisions = slice.decisions
		plan.Writes = append(plan.Writes, Write{Decision: object, Create: true, Status: true})
		plan.ScoresWritten = true
		return
	}
	write := Write{Decision: object.DeepCopy()}
	write.Metadata = d.label(write.Decision, slice.group, group.Name)
	write.Decision.Status.Decisions = slice.decisions
	switch written := object.Status.Decisions; {
	case slices.Equal(written, slice.decisions) && written != nil:
	case sameClusters(written, slice.decisions) && now.Before(due):
		plan.ScoresDue = due
		write.Decision.Status.Decisions = written
	default:
		write.Status = true
		plan.ScoresWritten = true
	}
	if write.Metadata || write.Status {
		plan.Writes = append(plan.Writes, write)
	}
}

// label gives a PlacementDecision the labels and the owner it must have, and reports whether it lacked any.
func (d *draft) label(object *clusterv1beta1.PlacementDecision, index int, group string) bool {
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

// sameClusters tells whether two lists have the same clusters, in whatever order.
func sameClusters(a, b []clusterv1beta1.ClusterDecision) bool {
	if len(a) != len(b) || a == nil {
		return false
	}
	names := map[string]bool{}
	for _, decision := range a {
		names[decision.ClusterName] = true
	}
	for _, decision := range b {
		delete(names, decision.ClusterName)
	}
	return len(names) == 0
}

// addFirst orders writes so that a cluster is in its new PlacementDecision before it leaves its old one.
func addFirst(writes []Write, objects map[string]*clusterv1beta1.PlacementDecision) []Write {
	ordered := make([]Write, 0, len(writes))
	for len(writes) > 0 {
		at := max(0, slices.IndexFunc(writes, func(write Write) bool { return !awaited(write, writes, objects) }))
		ordered = append(ordered, writes[at])
		writes = slices.Delete(writes, at, at+1)
	}
	return ordered
}

// awaited tells whether a write removes a cluster that another of the writes has yet to add.
func awaited(write Write, writes []Write, objects map[string]*clusterv1beta1.PlacementDecision) bool {
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
