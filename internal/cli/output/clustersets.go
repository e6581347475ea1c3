package output

import (
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/labels"

	clusterv1 "github.com/capstan-io/capstan/api/cluster/v1"
	clusterv1beta2 "github.com/capstan-io/capstan/api/cluster/v1beta2"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
	"github.com/capstan-io/capstan/internal/machinery/managedcluster"
)

// ClusterSetContext is what belongs to cluster sets and is not in them.
type ClusterSetContext struct {
	Clusters []clusterv1.ManagedCluster
	Bindings []clusterv1beta2.ManagedClusterSetBinding
}

// ClusterSets shows cluster sets. Object is what YAML and JSON show: the list, or the one that was named.
func ClusterSets(object any, sets []clusterv1beta2.ManagedClusterSet, of ClusterSetContext) View {
	return View{
		Object: object,
		Grid:   func() Grid { return clusterSetGrid(sets, of) },
		Root:   func() Node { return clusterSetTree(sets, of) },
		Names:  namesOf("managedclusterset.cluster.open-cluster-management.io", sets),
	}
}

func clusterSetGrid(sets []clusterv1beta2.ManagedClusterSet, of ClusterSetContext) Grid {
	grid := Grid{Header: []string{"Name", "Bound Namespaces", "Status", "Managed Namespaces"}}
	for i := range sets {
		s := &sets[i]
		grid.Rows = append(grid.Rows, []Cell{
			Plain(s.Name), listCell(of.BoundNamespaces(s.Name)), emptyCell(s), listCell(managedNamespaces(s)),
		})
	}
	return grid
}

func clusterSetTree(sets []clusterv1beta2.ManagedClusterSet, of ClusterSetContext) Node {
	root := Node{Key: "ManagedClusterSets", Value: count(len(sets))}
	for i := range sets {
		s := &sets[i]
		root.Children = append(root.Children, Node{Key: s.Name, Children: []Node{
			Leaf("BoundNamespaces", listCell(of.BoundNamespaces(s.Name))),
			Leaf("Status", emptyCell(s)),
			Leaf("ManagedNamespaces", listCell(managedNamespaces(s))),
			Leaf("Clusters", listCell(of.Members(s))),
		}})
	}
	return root
}

// BoundNamespaces are the namespaces that a set is bound to.
func (c ClusterSetContext) BoundNamespaces(set string) []string {
	var names []string
	for i := range c.Bindings {
		if c.Bindings[i].Name == set { // a binding has the name of its set
			names = append(names, c.Bindings[i].Namespace)
		}
	}
	slices.Sort(names)
	return names
}

// Members are the names of the clusters of a set; one whose selector is broken has none, which its status says.
func (c ClusterSetContext) Members(set *clusterv1beta2.ManagedClusterSet) []string {
	selector, err := managedcluster.SetSelector(set)
	if err != nil {
		return nil
	}
	var names []string
	for i := range c.Clusters {
		if selector.Matches(labels.Set(c.Clusters[i].Labels)) {
			names = append(names, c.Clusters[i].Name)
		}
	}
	return names
}

func managedNamespaces(set *clusterv1beta2.ManagedClusterSet) []string {
	var names []string
	for _, namespace := range set.Spec.ManagedNamespaces {
		names = append(names, namespace.Name)
	}
	return names
}

// emptyCell says in words how many clusters a set has. An empty set is no bad news.
func emptyCell(set *clusterv1beta2.ManagedClusterSet) Cell {
	condition := meta.FindStatusCondition(set.Status.Conditions, fleet.ConditionClusterSetEmpty)
	if condition == nil {
		return Plain("")
	}
	return Plain(condition.Message)
}

func listCell(names []string) Cell { return Plain(strings.Join(names, ",")) }
