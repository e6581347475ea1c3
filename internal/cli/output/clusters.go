package output

import (
	"fmt"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	clusterv1 "github.com/capstan-io/capstan/api/cluster/v1"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
)

// ConditionCell shows the status of a condition: anything but True is bad news, a missing condition is Unknown.
func ConditionCell(conditions []metav1.Condition, conditionType string) Cell {
	condition := meta.FindStatusCondition(conditions, conditionType)
	if condition == nil {
		return Cell{Text: string(metav1.ConditionUnknown), Bad: true}
	}
	return Cell{Text: string(condition.Status), Bad: condition.Status != metav1.ConditionTrue}
}

// conditionWithReason shows the status of a condition, and the message of one that is not True.
func conditionWithReason(conditions []metav1.Condition, conditionType string) Cell {
	cell := ConditionCell(conditions, conditionType)
	if condition := meta.FindStatusCondition(conditions, conditionType); cell.Bad && condition != nil && condition.Message != "" {
		cell.Text += " (" + condition.Message + ")"
	}
	return cell
}

// Clusters shows managed clusters. Object is what YAML and JSON show: the list, or the one that was named.
func Clusters(object any, clusters []clusterv1.ManagedCluster) View {
	return View{
		Object: object,
		Grid:   func() Grid { return clusterGrid(clusters) },
		Root:   func() Node { return clusterTree(clusters) },
		Names:  namesOf("managedcluster.cluster.open-cluster-management.io", clusters),
	}
}

func clusterGrid(clusters []clusterv1.ManagedCluster) Grid {
	grid := Grid{Header: []string{"Name", "Accepted", "Available", "ClusterSet", "CPU", "Memory", "Kubernetes Version"}}
	for i := range clusters {
		c := &clusters[i]
		grid.Rows = append(grid.Rows, []Cell{
			Plain(c.Name),
			acceptedCell(c),
			ConditionCell(c.Status.Conditions, fleet.ConditionClusterAvailable),
			Plain(c.Labels[fleet.LabelClusterSet]),
			Plain(quantity(c.Status.Capacity, corev1.ResourceCPU)),
			Plain(quantity(c.Status.Capacity, corev1.ResourceMemory)),
			Plain(c.Status.Version.Kubernetes),
		})
	}
	return grid
}

func clusterTree(clusters []clusterv1.ManagedCluster) Node {
	root := Node{Key: "ManagedClusters", Value: count(len(clusters))}
	for i := range clusters {
		c := &clusters[i]
		root.Children = append(root.Children, Node{Key: c.Name, Children: []Node{
			Leaf("Accepted", acceptedCell(c)),
			Leaf("Available", ConditionCell(c.Status.Conditions, fleet.ConditionClusterAvailable)),
			Leaf("ClusterSet", Plain(c.Labels[fleet.LabelClusterSet])),
			Leaf("KubernetesVersion", Plain(c.Status.Version.Kubernetes)),
			{Key: "Capacity", Children: []Node{
				Leaf("Cpu", Plain(quantity(c.Status.Capacity, corev1.ResourceCPU))),
				Leaf("Memory", Plain(quantity(c.Status.Capacity, corev1.ResourceMemory))),
			}},
		}})
	}
	return root
}

func acceptedCell(cluster *clusterv1.ManagedCluster) Cell {
	return Cell{Text: strconv.FormatBool(cluster.Spec.HubAcceptsClient), Bad: !cluster.Spec.HubAcceptsClient}
}

func quantity(list corev1.ResourceList, name corev1.ResourceName) string {
	value, ok := list[name]
	if !ok {
		return ""
	}
	return value.String()
}

func count(n int) Cell {
	if n == 0 {
		return Plain("none")
	}
	return Plain(fmt.Sprint(n))
}
