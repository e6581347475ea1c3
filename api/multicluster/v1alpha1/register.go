// Package v1alpha1 holds the ClusterProfile: how a cluster manager presents a cluster to tools that know nothing else of
// it. It is the API of the Kubernetes SIG Multicluster (KEP-4322), and only what the hub and its add-ons use of it. The PlacementDecision
// (KEP-5313) says which of these clusters a scheduler has chosen.
//
// +kubebuilder:object:generate=true
// +groupName=multicluster.x-k8s.io
package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

var (
	// GroupVersion is the API group and version of the types of this package.
	GroupVersion = schema.GroupVersion{Group: "multicluster.x-k8s.io", Version: "v1alpha1"}

	// SchemeBuilder collects the types of this package.
	SchemeBuilder = runtime.NewSchemeBuilder(addKnownTypes)

	// AddToScheme registers the types of this package with a scheme.
	AddToScheme = SchemeBuilder.AddToScheme
)

func addKnownTypes(scheme *runtime.Scheme) error {
	scheme.AddKnownTypes(GroupVersion, &ClusterProfile{}, &ClusterProfileList{}, &PlacementDecision{}, &PlacementDecisionList{})
	metav1.AddToGroupVersion(scheme, GroupVersion)
	return nil
}
