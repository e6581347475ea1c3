package status

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"

	clusterv1 "github.com/capstan-io/capstan/api/cluster/v1"
)

// setResources sums the capacity of all nodes, and the allocatable resources of the schedulable ones. Capacities of other names, which
// others report, are kept.
func (c *Controller) setResources(ctx context.Context, mc *clusterv1.ManagedCluster) error {
	if !c.Nodes {
		return nil
	}
	nodes := &corev1.NodeList{}
	if err := c.managed.List(ctx, nodes); err != nil {
		return fmt.Errorf("list the nodes of the managed cluster: %w", err)
	}
	capacity, allocatable := corev1.ResourceList{}, corev1.ResourceList{}
	for i := range nodes.Items {
		node := &nodes.Items[i]
		addTo(capacity, node.Status.Capacity)
		if !node.Spec.Unschedulable {
			addTo(allocatable, node.Status.Allocatable)
		}
	}
	for name, quantity := range mc.Status.Capacity {
		if _, ours := capacity[name]; !ours {
			capacity[name] = quantity
		}
	}
	mc.Status.Capacity, mc.Status.Allocatable = capacity, allocatable
	return nil
}

func addTo(sum, more corev1.ResourceList) {
	for name, quantity := range more {
		total := sum[name]
		total.Add(quantity)
		sum[name] = total
	}
}
