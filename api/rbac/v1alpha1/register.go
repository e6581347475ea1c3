// Package v1alpha1 holds the ClusterPermission: rights on a managed cluster, for users and for ManagedServiceAccounts.
//
// +kubebuilder:object:generate=true
// +groupName=rbac.open-cluster-management.io
package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

var (
	// GroupVersion is the API group and version of the types of this package.
	GroupVersion = schema.GroupVersion{Group: "rbac.open-cluster-management.io", Version: "v1alpha1"}

	// SchemeBuilder collects the types of this package.
	SchemeBuilder = runtime.NewSchemeBuilder(addKnownTypes)

	// AddToScheme registers the types of this package with a scheme.
	AddToScheme = SchemeBuilder.AddToScheme
)

func addKnownTypes(scheme *runtime.Scheme) error {
	scheme.AddKnownTypes(GroupVersion, &ClusterPermission{}, &ClusterPermissionList{})
	metav1.AddToGroupVersion(scheme, GroupVersion)
	return nil
}
