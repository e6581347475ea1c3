package frame

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/labels"
	scheduling "k8s.io/component-helpers/scheduling/corev1"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	operatorv1 "github.com/capstan-io/capstan/api/operator/v1"
)

// mostReplicas is the number of replicas on a cluster with enough nodes: one may be down while another one is replaced.
const mostReplicas = 3

// replicas is the number for pods with that placement: one for each node that they can run on, three at most. Nodes that the selector does
// not match do not count; nil matches all.
func replicas(nodes []corev1.Node, placement operatorv1.NodePlacement, selector labels.Selector) int32 {
	usable := int32(0)
	for i := range nodes {
		if canRunOn(&nodes[i], placement) && (selector == nil || selector.Matches(labels.Set(nodes[i].Labels))) {
			usable++
		}
	}
	return min(max(usable, 1), mostReplicas)
}

// canRunOn reports whether pods with that placement can run on the node. A node that is cordoned or not ready counts: it comes back, and
// another number of replicas would restart all components meanwhile.
func canRunOn(node *corev1.Node, placement operatorv1.NodePlacement) bool {
	if !labels.SelectorFromSet(placement.NodeSelector).Matches(labels.Set(node.Labels)) {
		return false
	}
	_, isTainted := scheduling.FindMatchingUntoleratedTaint(klog.Background(), node.Spec.Taints, placement.Tolerations, isPermanent, false)
	return !isTainted
}

// isPermanent reports whether a taint keeps pods away for good: Kubernetes itself puts some on nodes for as long as something is wrong with
// them.
func isPermanent(taint *corev1.Taint) bool {
	return taint.Effect != corev1.TaintEffectPreferNoSchedule && !strings.HasPrefix(taint.Key, "node.kubernetes.io/") &&
		!strings.HasPrefix(taint.Key, "node.cloudprovider.kubernetes.io/")
}

// nodeChanged passes the events of nodes that may change the number of replicas.
var nodeChanged = predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
	before, isNode := e.ObjectOld.(*corev1.Node)
	after, areNodes := e.ObjectNew.(*corev1.Node)
	return !isNode || !areNodes || !equality.Semantic.DeepEqual(before.Labels, after.Labels) ||
		!equality.Semantic.DeepEqual(before.Spec.Taints, after.Spec.Taints)
}}

// stripNode transforms the nodes of a cache: it keeps what the number of replicas depends on.
func stripNode(object any) (any, error) {
	if node, ok := object.(*corev1.Node); ok {
		node.ManagedFields, node.Annotations, node.Status = nil, nil, corev1.NodeStatus{}
	}
	return object, nil
}
