package output

import (
	"fmt"
	"strconv"

	"k8s.io/apimachinery/pkg/api/meta"

	workv1 "github.com/capstan-io/capstan/api/work/v1"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
)

// Works shows ManifestWorks. Object is what YAML and JSON show: the list, or the one that was named.
func Works(object any, works []workv1.ManifestWork) View {
	return View{
		Object: object,
		Grid:   func() Grid { return workGrid(works) },
		Root:   func() Node { return workTree(works) },
		Names:  namesOf("manifestwork.work.open-cluster-management.io", works),
	}
}

func workGrid(works []workv1.ManifestWork) Grid {
	grid := Grid{Header: []string{"Name", "Cluster", "Number Of Manifests", "Applied", "Available"}}
	for i := range works {
		w := &works[i]
		grid.Rows = append(grid.Rows, []Cell{
			Plain(w.Name),
			Plain(w.Namespace),
			Plain(strconv.Itoa(len(w.Spec.Workload.Manifests))),
			ConditionCell(w.Status.Conditions, fleet.ConditionApplied),
			ConditionCell(w.Status.Conditions, fleet.ConditionAvailable),
		})
	}
	return grid
}

func workTree(works []workv1.ManifestWork) Node {
	root := Node{Key: "ManifestWorks", Value: count(len(works))}
	for i := range works {
		w := &works[i]
		root.Children = append(root.Children, Node{Key: w.Name, Children: []Node{
			Leaf("Cluster", Plain(w.Namespace)),
			Leaf("Number of Manifests", Plain(strconv.Itoa(len(w.Spec.Workload.Manifests)))),
			Leaf("Applied", ConditionCell(w.Status.Conditions, fleet.ConditionApplied)),
			Leaf("Available", ConditionCell(w.Status.Conditions, fleet.ConditionAvailable)),
			{Key: "Resources", Children: resourceNodes(w.Status.ResourceStatus.Manifests)},
		}})
	}
	return root
}

// resourceNodes names each object that the agent reported on, and says whether it is on the cluster as written, or why not.
func resourceNodes(manifests []workv1.ManifestCondition) []Node {
	nodes := make([]Node, len(manifests))
	for i := range manifests {
		resource := manifests[i].ResourceMeta
		name := resource.Name
		if resource.Namespace != "" {
			name = resource.Namespace + "/" + name
		}
		state := Plain("applied")
		if ConditionCell(manifests[i].Conditions, fleet.ConditionApplied).Bad {
			state = Cell{Text: "not-applied", Bad: true}
			if applied := meta.FindStatusCondition(manifests[i].Conditions, fleet.ConditionApplied); applied != nil && applied.Message != "" {
				state.Text += " (" + applied.Message + ")"
			}
		}
		nodes[i] = Leaf(fmt.Sprintf("%s %s", resource.Kind, name), state)
	}
	return nodes
}
