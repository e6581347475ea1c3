package topology

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
)

// NodeChanged passes the events of nodes that may change the number of replicas.
var NodeChanged = predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
	before, isNode := e.ObjectOld.(*corev1.Node)
	after, areNodes := e.ObjectNew.(*corev1.Node)
	return !isNode || !areNodes || !equality.Semantic.DeepEqual(before.Labels, after.Labels) ||
		!equality.Semantic.DeepEqual(before.Spec.Taints, after.Spec.Taints)
}}

// StripNode transforms the nodes of a cache: it keeps what Replicas reads.
func StripNode(object any) (any, error) {
	if node, ok := object.(*corev1.Node); ok {
		node.ManagedFields, node.Annotations, node.Status = nil, nil, corev1.NodeStatus{}
	}
	return object, nil
}
