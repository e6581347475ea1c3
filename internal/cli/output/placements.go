package output

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	clusterv1beta1 "github.com/capstan-io/capstan/api/cluster/v1beta1"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
)

// Placements shows Placements and their decisions. Object is what YAML and JSON show: the list, or the one that was
// named.
func Placements(object any, placements []clusterv1beta1.Placement, decisions []clusterv1beta1.PlacementDecision) View {
	return View{
		Object: object,
		Grid:   func() Grid { return placementGrid(placements, decisions) },
		Root:   func() Node { return placementTree(placements, decisions) },
		Names:  namesOf("placement.cluster.open-cluster-management.io", placements),
	}
}

func placementGrid(placements []clusterv1beta1.Placement, all []clusterv1beta1.PlacementDecision) Grid {
	decisions := byPlacement(all)
	grid := Grid{Header: []string{"Name", "Status", "Reason", "SelectedClusters", "Namespace"}}
	for i := range placements {
		p := &placements[i]
		grid.Rows = append(grid.Rows, []Cell{
			Plain(p.Name),
			ConditionCell(p.Status.Conditions, fleet.ConditionPlacementSatisfied),
			Plain(placementReason(p)),
			Plain(firstClusters(decisions[decisionsKey(p)])),
			Plain(p.Namespace),
		})
	}
	return grid
}

// mostInCell is how many clusters are named in a cell of a table.
const mostInCell = 5

// firstClusters are as many selected clusters as fit into a cell.
func firstClusters(decisions []*clusterv1beta1.PlacementDecision) string {
	var names []string
	for _, d := range decisions {
		for _, one := range d.Status.Decisions {
			names = append(names, one.ClusterName)
		}
	}
	if len(names) > mostInCell {
		return fmt.Sprintf("%s and %d more", strings.Join(names[:mostInCell], ","), len(names)-mostInCell)
	}
	return strings.Join(names, ",")
}

// placementReason is why a placement is satisfied or not; one that makes no sense is broken before all else.
func placementReason(p *clusterv1beta1.Placement) string {
	for _, kind := range []string{fleet.ConditionPlacementMisconfigured, fleet.ConditionPlacementSatisfied} {
		condition := meta.FindStatusCondition(p.Status.Conditions, kind)
		if condition != nil && (kind == fleet.ConditionPlacementSatisfied || condition.Status == metav1.ConditionTrue) {
			return condition.Reason
		}
	}
	return ""
}

func placementTree(placements []clusterv1beta1.Placement, all []clusterv1beta1.PlacementDecision) Node {
	decisions := byPlacement(all)
	root := Node{Key: "Placements", Value: count(len(placements))}
	for i := range placements {
		p := &placements[i]
		sets := Plain("all that are bound")
		if len(p.Spec.ClusterSets) > 0 {
			sets = listCell(p.Spec.ClusterSets)
		}
		root.Children = append(root.Children, Node{Key: p.Name, Children: []Node{
			Leaf("Namespace", Plain(p.Namespace)),
			Leaf("ClusterSet", sets),
			{Key: "Status", Children: []Node{
				Leaf("NumberOfSelectedClusters", Plain(strconv.Itoa(int(p.Status.NumberOfSelectedClusters)))),
				{Key: "Conditions", Children: []Node{
					Leaf(fleet.ConditionPlacementSatisfied, conditionWithMessage(p, fleet.ConditionPlacementSatisfied, metav1.ConditionTrue)),
					Leaf(fleet.ConditionPlacementMisconfigured, conditionWithMessage(p, fleet.ConditionPlacementMisconfigured, metav1.ConditionFalse)),
				}},
			}},
			{Key: "PlacementDecision", Children: decisionNodes(decisions[decisionsKey(p)])},
		}})
	}
	return root
}

// conditionWithMessage shows a condition, with its message when it is not as it should be.
func conditionWithMessage(p *clusterv1beta1.Placement, kind string, good metav1.ConditionStatus) Cell {
	condition := meta.FindStatusCondition(p.Status.Conditions, kind)
	switch {
	case condition == nil:
		return Cell{Text: string(metav1.ConditionUnknown), Bad: true}
	case condition.Status == good:
		return Plain(string(condition.Status))
	}
	return Cell{Text: string(condition.Status) + " (" + condition.Message + ")", Bad: true}
}

func decisionNodes(decisions []*clusterv1beta1.PlacementDecision) []Node {
	var nodes []Node
	for _, d := range decisions {
		names := make([]string, len(d.Status.Decisions))
		for i, one := range d.Status.Decisions {
			names[i] = one.ClusterName
		}
		nodes = append(nodes, Leaf(d.Name, listCell(names)))
	}
	return nodes
}

// byPlacement are the decisions of each placement in their order: -9 before -10. The name of a placement is the value of the label.
func byPlacement(decisions []clusterv1beta1.PlacementDecision) map[types.NamespacedName][]*clusterv1beta1.PlacementDecision {
	of := map[types.NamespacedName][]*clusterv1beta1.PlacementDecision{}
	for i := range decisions {
		key := types.NamespacedName{Namespace: decisions[i].Namespace, Name: decisions[i].Labels[fleet.LabelPlacement]}
		of[key] = append(of[key], &decisions[i])
	}
	for _, own := range of {
		slices.SortFunc(own, func(a, b *clusterv1beta1.PlacementDecision) int {
			return cmp.Or(cmp.Compare(len(a.Name), len(b.Name)), cmp.Compare(a.Name, b.Name))
		})
	}
	return of
}

// decisionsKey is that of the decisions of a placement.
func decisionsKey(p *clusterv1beta1.Placement) types.NamespacedName {
	return types.NamespacedName{Namespace: p.Namespace, Name: fleet.LabelValue(p.Name)}
}
