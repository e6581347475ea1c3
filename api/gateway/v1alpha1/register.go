// Package v1alpha1 holds the ClusterGateway, through which requests to the API of the hub go on to that of a cluster, and the rules for who
// the callers are there. The hub answers for ClusterGateways itself: there is no CRD.
//
// +kubebuilder:object:generate=true
// +kubebuilder:skip
// +groupName=cluster.core.oam.dev
package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

var (
	// GroupVersion is the API group and version of the types of this package.
	GroupVersion = schema.GroupVersion{Group: "cluster.core.oam.dev", Version: "v1alpha1"}

	// SchemeBuilder collects the types of this package.
	SchemeBuilder = runtime.NewSchemeBuilder(addKnownTypes)

	// AddToScheme registers the types of this package with a scheme.
	AddToScheme = SchemeBuilder.AddToScheme
)

func addKnownTypes(scheme *runtime.Scheme) error {
	scheme.AddKnownTypes(GroupVersion, &ClusterGateway{}, &ClusterGatewayList{}, &ClusterGatewayProxyConfiguration{},
		&VirtualCluster{}, &VirtualClusterList{})
	metav1.AddToGroupVersion(scheme, GroupVersion)
	return nil
}
