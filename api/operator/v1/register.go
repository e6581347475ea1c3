// Package v1 holds the ClusterManager and the Klusterlet: how hub and agents are installed by their operators.
//
// +kubebuilder:object:generate=true
// +groupName=operator.open-cluster-management.io
package v1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

var (
	// GroupVersion is the API group and version of the types of this package.
	GroupVersion = schema.GroupVersion{Group: "operator.open-cluster-management.io", Version: "v1"}

	// SchemeBuilder collects the types of this package.
	SchemeBuilder = runtime.NewSchemeBuilder(addKnownTypes)

	// AddToScheme registers the types of this package with a scheme.
	AddToScheme = SchemeBuilder.AddToScheme
)

func addKnownTypes(scheme *runtime.Scheme) error {
	scheme.AddKnownTypes(GroupVersion,
		&ClusterManager{}, &ClusterManagerList{},
		&Klusterlet{}, &KlusterletList{},
	)
	metav1.AddToGroupVersion(scheme, GroupVersion)
	return nil
}
