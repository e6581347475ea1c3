package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	addonv1beta1 "github.com/capstan-io/capstan/api/addon/v1beta1"
)

// ClusterManagementAddOn is an add-on in the catalogue of the hub, with the name of the add-on. It says how the add-on
// is configured and on which clusters it is installed.
//
// +kubebuilder:object:root=true
// +kubebuilder:storageversion
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Cluster,shortName={cma,cmas}
// +kubebuilder:printcolumn:name="DISPLAY NAME",type=string,JSONPath=`.spec.addOnMeta.displayName`
// +kubebuilder:printcolumn:name="CRD NAME",type=string,JSONPath=`.spec.addOnConfiguration.crdName`
type ClusterManagementAddOn struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec says how the add-on is configured and installed.
	// +required
	Spec ClusterManagementAddOnSpec `json:"spec"`

	// status tells how far installation and upgrade have come.
	// +optional
	Status ClusterManagementAddOnStatus `json:"status,omitempty,omitzero"`
}

// ClusterManagementAddOnSpec says how an add-on is configured and installed.
type ClusterManagementAddOnSpec struct {
	// addOnMeta describes the add-on to people.
	// +optional
	AddOnMeta addonv1beta1.AddOnMeta `json:"addOnMeta,omitempty,omitzero"`

	// addOnConfiguration is deprecated and has no effect; use supportedConfigs. Version v1beta1 does not have it.
	// +optional
	AddOnConfiguration ConfigCoordinates `json:"addOnConfiguration,omitempty,omitzero"`

	// supportedConfigs are the types of configurations that the add-on supports, and their defaults.
	// +optional
	// +listType=map
	// +listMapKey=group
	// +listMapKey=resource
	SupportedConfigs []ConfigMeta `json:"supportedConfigs,omitempty"`

	// installStrategy says on which clusters the add-on is installed by itself. Without it, it is installed only
	// where a user creates a ManagedClusterAddOn.
	// +optional
	// +kubebuilder:default={type:Manual}
	InstallStrategy addonv1beta1.InstallStrategy `json:"installStrategy,omitempty,omitzero"`
}

// ConfigMeta is a type of configurations and its default.
type ConfigMeta struct {
	addonv1beta1.ConfigGroupResource `json:",inline"`

	// defaultConfig is the configuration to use unless another one is given. Empty means none.
	// +optional
	DefaultConfig *addonv1beta1.ConfigReferent `json:"defaultConfig,omitempty"`
}

// ConfigCoordinates is how add-ons were configured before they had configurations by type.
type ConfigCoordinates struct {
	// crdName is the name of the CRD of the configuration.
	// +optional
	CRDName string `json:"crdName,omitempty"`

	// crName is the name of the configuration.
	// +optional
	CRName string `json:"crName,omitempty"`

	// lastObservedGeneration is the generation of the configuration that was last looked at.
	// +optional
	LastObservedGeneration int64 `json:"lastObservedGeneration,omitempty"`
}

// ClusterManagementAddOnStatus tells how far installation and upgrade have come.
type ClusterManagementAddOnStatus struct {
	// defaultconfigReferences are the default configurations in their current state. Version v1beta1 spells it
	// defaultConfigReferences.
	// +optional
	DefaultConfigReferences []addonv1beta1.DefaultConfigReference `json:"defaultconfigReferences,omitempty"`

	// installProgressions tell how far each placement has come.
	// +optional
	InstallProgressions []addonv1beta1.InstallProgression `json:"installProgressions,omitempty"`
}

// ClusterManagementAddOnList is a list of add-ons.
//
// +kubebuilder:object:root=true
type ClusterManagementAddOnList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []ClusterManagementAddOn `json:"items"`
}
