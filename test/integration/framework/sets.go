package framework

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	clusterv1beta2 "github.com/capstan-io/capstan/api/cluster/v1beta2"
)

// ClusterSet is a ManagedClusterSet with a selector.
func ClusterSet(name string, kind clusterv1beta2.SelectorType, selector *metav1.LabelSelector) *clusterv1beta2.ManagedClusterSet {
	set := &clusterv1beta2.ManagedClusterSet{ObjectMeta: metav1.ObjectMeta{Name: name}}
	set.Spec.ClusterSelector = clusterv1beta2.ManagedClusterSelector{SelectorType: kind, LabelSelector: selector}
	return set
}
