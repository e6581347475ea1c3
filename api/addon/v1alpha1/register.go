// Package v1alpha1 holds the add-on API in the version that the hub stores. Types that are the same in v1beta1 are
// taken from there.
//
// +kubebuilder:object:generate=true
// +groupName=addon.open-cluster-management.io
package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

var (
	// GroupVersion is the API group and version of the types of this package.
	GroupVersion = schema.GroupVersion{Group: "addon.open-cluster-management.io", Version: "v1alpha1"}

	// SchemeBuilder collects the types of this package.
	SchemeBuilder = runtime.NewSchemeBuilder(addKnownTypes)

	// AddToScheme registers the types of this package with a scheme.
	AddToScheme = SchemeBuilder.AddToScheme
)

func addKnownTypes(scheme *runtime.Scheme) error {
	scheme.AddKnownTypes(GroupVersion,
		&AddOnDeploymentConfig{}, &AddOnDeploymentConfigList{},
		&AddOnTemplate{}, &AddOnTemplateList{},
		&ClusterManagementAddOn{}, &ClusterManagementAddOnList{},
		&ManagedClusterAddOn{}, &ManagedClusterAddOnList{},
	)
	metav1.AddToGroupVersion(scheme, GroupVersion)
	return nil
}
