// Package v1beta1 holds the GitOpsCluster: which clusters an Argo CD is to know, so that it can deploy to them.
//
// +kubebuilder:object:generate=true
// +groupName=apps.open-cluster-management.io
package v1beta1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

var (
	// GroupVersion is the API group and version of the types of this package.
	GroupVersion = schema.GroupVersion{Group: "apps.open-cluster-management.io", Version: "v1beta1"}

	// SchemeBuilder collects the types of this package.
	SchemeBuilder = runtime.NewSchemeBuilder(addKnownTypes)

	// AddToScheme registers the types of this package with a scheme.
	AddToScheme = SchemeBuilder.AddToScheme
)

func addKnownTypes(scheme *runtime.Scheme) error {
	scheme.AddKnownTypes(GroupVersion, &GitOpsCluster{}, &GitOpsClusterList{})
	metav1.AddToGroupVersion(scheme, GroupVersion)
	return nil
}
