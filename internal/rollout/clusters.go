package rollout

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"time"

	clusterv1beta1 "github.com/capstan-io/capstan/api/cluster/v1beta1"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
)

// Cluster is the state of a cluster in a rollout. Names are unique.
type Cluster struct {
	Name string
	// Group is the decision group that the Placement put it in.
	Group Group
	// Deselected says that the Placement does not select the cluster any more, but it still has what is rolled out.
	Deselected bool
	// State is how far the change is on a cluster. Package internal/hub/work/replicaset derives it from works, and
	// internal/hub/addon/configuration from add-ons.
	State State
	// Since is when the state Succeeded began, for minSuccessTime. For the progressDeadline of a cluster that is Progressing or
	// Failed, it is when the cluster got the change or, if that is later, when it was last Succeeded. The time of the last
	// transition can be used as well, but then a cluster that alternates between the two never reaches the deadline.
	// Zero is long ago: both times are over.
	Since time.Time
}

// Group is a decision group of a Placement.
type Group struct {
	// Index counts from 0 over all groups.
	Index int32
	// Name is that of decisionGroups of the Placement. It may be empty, and several groups may have the same.
	Name string
}

func (g Group) String() string {
	if g.Name == "" {
		return fmt.Sprintf("decision group %d", g.Index)
	}
	return fmt.Sprintf("decision group %d (%s)", g.Index, g.Name)
}

// State is how far a cluster is with a change. Package internal/hub/work/replicaset derives it from works, and
// internal/hub/addon/configuration from add-ons.
type State string

const (
	// ToApply is a cluster that has not got the change.
	ToApply State = "ToApply"
	// Progressing is a cluster that has got the change and is not done with it. It begins when the change is written on the hub,
	// not when the agent acknowledges it: otherwise an agent that does not answer would take no slot and have no deadline.
	Progressing State = "Progressing"
	// Succeeded is a cluster that has the change and is not degraded.
	Succeeded State = "Succeeded"
	// Failed is a cluster that has the change and is degraded. It may recover.
	Failed State = "Failed"
	// TimeOut is a cluster that has missed its deadline. Decide finds that out itself for clusters that are Progressing or Failed.
	TimeOut State = "TimeOut"
	// Skip is a cluster that the rollout leaves out: it neither begins nor counts.
	Skip State = "Skip"
	// Absent is a cluster on which there is nothing that could get the change, or that cannot be given it. The rollout leaves it out, too,
	// but not where the change would go on without having been tried: a mandatory group in which no cluster is Done waits for it. It begins
	// when it is ToApply.
	Absent State = "Absent"
)

// Selected lists the clusters of the PlacementDecisions of one Placement by group and name, all in the state ToApply. Decisions without
// the labels of a decision group, as other schedulers may write them, are in group 0. A cluster that is in two of them, as while a
// Placement moves it, is listed once.
func Selected(decisions []clusterv1beta1.PlacementDecision) []Cluster {
	total := 0
	for i := range decisions {
		total += len(decisions[i].Status.Decisions)
	}
	clusters := make([]Cluster, 0, total)
	for i := range decisions {
		group := groupOf(&decisions[i])
		for _, decision := range decisions[i].Status.Decisions {
			clusters = append(clusters, Cluster{Name: decision.ClusterName, Group: group, State: ToApply})
		}
	}
	slices.SortFunc(clusters, func(a, b Cluster) int {
		return cmp.Or(cmp.Compare(a.Group.Index, b.Group.Index), cmp.Compare(a.Name, b.Name))
	})
	seen := make(map[string]bool, len(clusters))
	return slices.DeleteFunc(clusters, func(c Cluster) bool {
		again := seen[c.Name]
		seen[c.Name] = true
		return again
	})
}

func groupOf(decision *clusterv1beta1.PlacementDecision) Group {
	index, err := strconv.ParseInt(decision.Labels[fleet.LabelDecisionGroupIndex], 10, 32)
	if err != nil {
		index = 0
	}
	return Group{Index: int32(index), Name: decision.Labels[fleet.LabelDecisionGroupName]}
}
