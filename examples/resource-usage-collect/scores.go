package main

import (
	"math"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	resourcehelper "k8s.io/component-helpers/resource"

	"github.com/capstan-io/capstan/addon/score"
	clusterv1alpha1 "github.com/capstan-io/capstan/api/cluster/v1alpha1"
)

// measure is a resource that is scored.
type measure struct {
	resource corev1.ResourceName
	// prefix begins the names of the scores.
	prefix string
	// most is the amount that has the highest score: cores, bytes, or devices.
	most resource.Quantity
	// whole adds the score of the blog post, from 0 to 100 for the whole cluster.
	whole bool
}

// maxima are the amounts that have the highest score. They have to be the same on all clusters, or the scores cannot be
// compared.
type maxima struct {
	cpu, memory, gpu, tpu resource.Quantity
}

func (m maxima) measures() []measure {
	return []measure{
		{resource: corev1.ResourceCPU, prefix: "cpu", most: m.cpu, whole: true},
		{resource: corev1.ResourceMemory, prefix: "mem", most: m.memory, whole: true},
		{resource: "nvidia.com/gpu", prefix: "gpu", most: m.gpu},
		{resource: "google.com/tpu", prefix: "tpu", most: m.tpu},
	}
}

// scores say how much of its resources a cluster has left: for each resource on all its nodes together, and on the node
// that has most left, which is what a single pod can get.
func scores(nodes []corev1.Node, pods []corev1.Pod, m maxima) []clusterv1alpha1.AddOnPlacementScoreItem {
	requested, pending := requests(pods)
	var items []clusterv1alpha1.AddOnPlacementScoreItem
	add := func(name string, value int32) {
		items = append(items, clusterv1alpha1.AddOnPlacementScoreItem{Name: name, Value: value})
	}
	for _, of := range m.measures() {
		best, all := 0.0, -amount(pending, of.resource)
		for i := range nodes {
			if node := &nodes[i]; takesPods(node) {
				left := amount(node.Status.Allocatable, of.resource) - amount(requested[node.Name], of.resource)
				best, all = max(best, left), all+left
			}
		}
		most := of.most.AsApproximateFloat64()
		add(of.prefix+"NodeAvailable", score.Normalize(best, 0, most))
		add(of.prefix+"ClusterAvailable", score.Normalize(all, 0, most))
		if of.whole {
			add(of.prefix+"Available", percent(all, most))
		}
	}
	slices.SortFunc(items, func(a, b clusterv1alpha1.AddOnPlacementScoreItem) int { return strings.Compare(a.Name, b.Name) })
	return items
}

// requests sums up what the pods that have not ended request, by their nodes, and what those request that have none yet.
func requests(pods []corev1.Pod) (byNode map[string]corev1.ResourceList, pending corev1.ResourceList) {
	byNode, pending = map[string]corev1.ResourceList{}, corev1.ResourceList{}
	for i := range pods {
		pod := &pods[i]
		if pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed {
			continue
		}
		sum := pending
		if node := pod.Spec.NodeName; node != "" {
			if byNode[node] == nil {
				byNode[node] = corev1.ResourceList{}
			}
			sum = byNode[node]
		}
		for name, quantity := range resourcehelper.PodRequests(pod, resourcehelper.PodResourcesOptions{}) {
			total := sum[name]
			total.Add(quantity)
			sum[name] = total
		}
	}
	return byNode, pending
}

// takesPods tells whether new pods may come to the node.
func takesPods(node *corev1.Node) bool {
	if node.Spec.Unschedulable {
		return false
	}
	return slices.ContainsFunc(node.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
	})
}

// amount is in cores, bytes, or devices.
func amount(list corev1.ResourceList, name corev1.ResourceName) float64 {
	quantity := list[name]
	return quantity.AsApproximateFloat64()
}

// percent is from 0 for nothing to 100 for the most.
func percent(left, most float64) int32 {
	return int32(100 * math.Max(0, math.Min(1, left/most)))
}
