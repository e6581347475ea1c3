package framework

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	clusterv1beta2 "github.com/capstan-io/capstan/api/cluster/v1beta2"
)

// SetBinding binds a set of clusters to a namespace.
func SetBinding(namespace, name, set string) *clusterv1beta2.ManagedClusterSetBinding {
	return &clusterv1beta2.ManagedClusterSetBinding{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Spec: clusterv1beta2.ManagedClusterSetBindingSpec{ClusterSet: set},
	}
}

// ClusterSet is a ManagedClusterSet with a selector.
func ClusterSet(name string, kind clusterv1beta2.SelectorType, selector *metav1.LabelSelector) *clusterv1beta2.ManagedClusterSet {
	set := &clusterv1beta2.ManagedClusterSet{ObjectMeta: metav1.ObjectMeta{Name: name}}
	set.Spec.ClusterSelector = clusterv1beta2.ManagedClusterSelector{SelectorType: kind, LabelSelector: selector}
	return set
}
