// Package v1alpha1 holds what is said about clusters, ClusterClaim and AddOnPlacementScore, and the RolloutStrategy by
// which ManifestWorkReplicaSets and add-ons proceed from cluster to cluster.
//
// +kubebuilder:object:generate=true
// +groupName=cluster.open-cluster-management.io
package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

var (
	// GroupVersion is the API group and version of the types of this package.
	GroupVersion = schema.GroupVersion{Group: "cluster.open-cluster-management.io", Version: "v1alpha1"}

	// SchemeBuilder collects the types of this package.
	SchemeBuilder = runtime.NewSchemeBuilder(addKnownTypes)

	// AddToScheme registers the types of this package with a scheme.
	AddToScheme = SchemeBuilder.AddToScheme
)

func addKnownTypes(scheme *runtime.Scheme) error {
	scheme.AddKnownTypes(GroupVersion,
		&AddOnPlacementScore{}, &AddOnPlacementScoreList{},
		&ClusterClaim{}, &ClusterClaimList{},
	)
	metav1.AddToGroupVersion(scheme, GroupVersion)
	return nil
}
