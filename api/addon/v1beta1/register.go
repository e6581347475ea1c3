// Package v1beta1 holds the add-on API: the catalogue entry, its installation on one cluster, and what configures it.
//
// The hub stores add-on objects as v1alpha1 and converts them. What is the same in both versions is defined here.
//
// +kubebuilder:object:generate=true
// +groupName=addon.open-cluster-management.io
package v1beta1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

var (
	// GroupVersion is the API group and version of the types of this package.
	GroupVersion = schema.GroupVersion{Group: "addon.open-cluster-management.io", Version: "v1beta1"}

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
