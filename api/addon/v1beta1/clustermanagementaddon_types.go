package v1beta1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	clusterv1alpha1 "github.com/capstan-io/capstan/api/cluster/v1alpha1"
)

// ReservedNoDefaultConfigName is the name in spec.defaultConfigs of a ClusterManagementAddOn that stands for no
// default: the add-on supports the type, but has no configuration of it unless one is given. In version v1alpha1 such
// an entry of supportedConfigs has no defaultConfig.
const ReservedNoDefaultConfigName = "__reserved_no_default__"

// ClusterManagementAddOn is an add-on in the catalogue of the hub, with the name of the add-on. It says how the add-on
// is configured and on which clusters it is installed.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Cluster,shortName={cma,cmas}
// +kubebuilder:printcolumn:name="DISPLAY NAME",type=string,JSONPath=`.spec.addOnMeta.displayName`
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
	AddOnMeta AddOnMeta `json:"addOnMeta,omitempty,omitzero"`

	// defaultConfigs are the types of configurations that the add-on supports, and their defaults. The name
	// __reserved_no_default__ stands for no default.
	// +optional
	// +listType=map
	// +listMapKey=group
	// +listMapKey=resource
	DefaultConfigs []AddOnConfig `json:"defaultConfigs,omitempty"`

	// installStrategy says on which clusters the add-on is installed by itself. Without it, it is installed only
	// where a user creates a ManagedClusterAddOn.
	// +optional
	// +kubebuilder:default={type:Manual}
	InstallStrategy InstallStrategy `json:"installStrategy,omitempty,omitzero"`
}

// InstallStrategy says on which clusters an add-on is installed by itself.
type InstallStrategy struct {
	// type: Manual installs nothing, Placements installs the add-on on the clusters of placements.
	// +optional
	// +kubebuilder:default=Manual
	Type InstallStrategyType `json:"type,omitempty"`

	// placements are the placements of the type Placements. On a cluster of several of them, the configurations of
	// the last one apply.
	// +optional
	// +listType=map
	// +listMapKey=namespace
	// +listMapKey=name
	Placements []PlacementStrategy `json:"placements,omitempty"`
}

// InstallStrategyType is a way to install an add-on.
//
// +kubebuilder:validation:Enum=Manual;Placements
type InstallStrategyType string

const (
	// InstallStrategyManual installs nothing.
	InstallStrategyManual InstallStrategyType = "Manual"
	// InstallStrategyPlacements installs the add-on on the clusters of placements.
	InstallStrategyPlacements InstallStrategyType = "Placements"
)

// PlacementRef names a placement.
type PlacementRef struct {
	// namespace of the Placement.
	// +required
	// +kubebuilder:validation:MinLength=1
	Namespace string `json:"namespace"`

	// name of the Placement.
	// +required
	// +kubebuilder:validation:MinLength=1
	Name string `json:"name"`
}

// PlacementStrategy is how an add-on is installed on the clusters of a placement.
type PlacementStrategy struct {
	PlacementRef `json:",inline"`

	// configs of the add-on on these clusters. For each type given here they replace the default.
	// +optional
	Configs []AddOnConfig `json:"configs,omitempty"`

	// rolloutStrategy is the order and the pace in which changes of the configuration reach the clusters. Without
	// it all change at once.
	// +optional
	// +kubebuilder:default={type:All}
	RolloutStrategy clusterv1alpha1.RolloutStrategy `json:"rolloutStrategy,omitempty,omitzero"`
}

// ClusterManagementAddOnStatus tells how far installation and upgrade have come.
type ClusterManagementAddOnStatus struct {
	// defaultConfigReferences are the default configurations in their current state.
	// +optional
	DefaultConfigReferences []DefaultConfigReference `json:"defaultConfigReferences,omitempty"`

	// installProgressions tell how far each placement has come.
	// +optional
	InstallProgressions []InstallProgression `json:"installProgressions,omitempty"`
}

// DefaultConfigReference is a default configuration in its current state.
type DefaultConfigReference struct {
	ConfigGroupResource `json:",inline"`

	// desiredConfig is the configuration.
	// +optional
	DesiredConfig *ConfigSpecHash `json:"desiredConfig,omitempty"`
}

// InstallProgression tells how far the clusters of a placement have come.
type InstallProgression struct {
	PlacementRef `json:",inline"`

	// configReferences are the configurations on these clusters.
	// +optional
	ConfigReferences []InstallConfigReference `json:"configReferences,omitempty"`

	// conditions: Progressing is True until all clusters have the desired configurations.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// InstallConfigReference is a configuration on its way to the clusters of a placement.
type InstallConfigReference struct {
	ConfigGroupResource `json:",inline"`

	// desiredConfig is what the clusters should have.
	// +optional
	DesiredConfig *ConfigSpecHash `json:"desiredConfig,omitempty"`

	// lastKnownGoodConfig is what last reached all clusters without errors.
	// +optional
	LastKnownGoodConfig *ConfigSpecHash `json:"lastKnownGoodConfig,omitempty"`

	// lastAppliedConfig is what last reached all clusters. Like lastKnownGoodConfig, it does not change while any of them fails.
	// +optional
	LastAppliedConfig *ConfigSpecHash `json:"lastAppliedConfig,omitempty"`
}

// ClusterManagementAddOnList is a list of add-ons.
//
// +kubebuilder:object:root=true
type ClusterManagementAddOnList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []ClusterManagementAddOn `json:"items"`
}
