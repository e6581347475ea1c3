package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	addonv1beta1 "github.com/capstan-io/capstan/api/addon/v1beta1"
)

// ManagedClusterAddOn is an add-on installed on one cluster. It lives in the namespace of the cluster on the hub and has
// the name of the ClusterManagementAddOn.
//
// +kubebuilder:object:root=true
// +kubebuilder:storageversion
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Namespaced,shortName={mca,mcas}
// +kubebuilder:printcolumn:name="Available",type=string,JSONPath=`.status.conditions[?(@.type=="Available")].status`
// +kubebuilder:printcolumn:name="Degraded",type=string,JSONPath=`.status.conditions[?(@.type=="Degraded")].status`
// +kubebuilder:printcolumn:name="Progressing",type=string,JSONPath=`.status.conditions[?(@.type=="Progressing")].status`
type ManagedClusterAddOn struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec configures the add-on on this cluster.
	// +required
	Spec ManagedClusterAddOnSpec `json:"spec"`

	// status tells how the add-on is doing on this cluster.
	// +optional
	Status ManagedClusterAddOnStatus `json:"status,omitempty,omitzero"`
}

// ManagedClusterAddOnSpec configures an add-on on one cluster.
type ManagedClusterAddOnSpec struct {
	// installNamespace is the namespace for the agent on the managed cluster. It is deprecated: use
	// agentInstallNamespace of an AddOnDeploymentConfig. Version v1beta1 has the annotation
	// addon.open-cluster-management.io/v1alpha1-install-namespace instead.
	// +optional
	// +kubebuilder:default=open-cluster-management-agent-addon
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`
	InstallNamespace string `json:"installNamespace,omitempty"`

	// configs of the add-on on this cluster. For each type given here they replace those of the
	// ClusterManagementAddOn.
	// +optional
	Configs []addonv1beta1.AddOnConfig `json:"configs,omitempty"`
}

// RegistrationConfig is what the agent of an add-on registers for.
type RegistrationConfig struct {
	// signerName of the certificate requests. kubernetes.io/kube-apiserver-client is access to the API server of the
	// hub.
	// +required
	// +kubebuilder:validation:MinLength=5
	// +kubebuilder:validation:MaxLength=571
	// +kubebuilder:validation:Pattern=`^([a-z0-9][a-z0-9-]*[a-z0-9]\.)+[a-z]+\/[a-z0-9-\.]+$`
	SignerName string `json:"signerName"`

	// subject of the certificate.
	// +optional
	Subject Subject `json:"subject,omitempty,omitzero"`
}

// Subject is the subject of a certificate.
type Subject struct {
	// user is the common name.
	// +optional
	User string `json:"user,omitempty"`

	// groups are the organisations.
	// +optional
	Groups []string `json:"groups,omitempty"`

	// organizationUnit are the organisational units. Access to the API server of the hub has none.
	// +optional
	OrganizationUnits []string `json:"organizationUnit,omitempty"`
}

// ConfigReference is a configuration on its way to a cluster.
type ConfigReference struct {
	addonv1beta1.ConfigGroupResource `json:",inline"`

	// ConfigReferent is deprecated: a copy of desiredConfig, without the hash.
	addonv1beta1.ConfigReferent `json:",inline"`

	// lastObservedGeneration is the generation of the configuration that was last looked at.
	// +optional
	LastObservedGeneration int64 `json:"lastObservedGeneration,omitempty"`

	// desiredConfig is what the cluster should have. It changes when the rollout reaches the cluster.
	// +optional
	DesiredConfig *addonv1beta1.ConfigSpecHash `json:"desiredConfig,omitempty"`

	// lastAppliedConfig is desiredConfig as last applied.
	// +optional
	LastAppliedConfig *addonv1beta1.ConfigSpecHash `json:"lastAppliedConfig,omitempty"`
}

// ManagedClusterAddOnStatus tells how an add-on is doing on a cluster.
type ManagedClusterAddOnStatus struct {
	// conditions: Available tells whether the agent works, Degraded and Progressing whether it is impaired or
	// changing, ManifestApplied and RegistrationApplied how far its installation is.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// relatedObjects are objects on the hub that belong to the add-on on this cluster.
	// +optional
	RelatedObjects []addonv1beta1.ObjectReference `json:"relatedObjects,omitempty"`

	// addOnMeta describes the add-on to people.
	// +optional
	AddOnMeta addonv1beta1.AddOnMeta `json:"addOnMeta,omitempty,omitzero"`

	// addOnConfiguration is deprecated and has no effect; use configReferences. Version v1beta1 does not have it.
	// +optional
	AddOnConfiguration ConfigCoordinates `json:"addOnConfiguration,omitempty,omitzero"`

	// supportedConfigs are the types of configurations that the add-on supports.
	// +optional
	// +listType=map
	// +listMapKey=group
	// +listMapKey=resource
	SupportedConfigs []addonv1beta1.ConfigGroupResource `json:"supportedConfigs,omitempty"`

	// configReferences are the configurations of the add-on on this cluster.
	// +optional
	ConfigReferences []ConfigReference `json:"configReferences,omitempty"`

	// namespace of the agent on the managed cluster, or on the hosting one.
	// +optional
	Namespace string `json:"namespace,omitempty"`

	// registrations are what the agent registers for.
	// +optional
	Registrations []RegistrationConfig `json:"registrations,omitempty"`

	// healthCheck is how the condition Available is found.
	// +optional
	HealthCheck addonv1beta1.HealthCheck `json:"healthCheck,omitempty,omitzero"`

	// kubeClientDriver is how the agent of the cluster gets the credential for the hub: csr or token. It is set by
	// that agent. Version v1beta1 has it in registrations.
	// +optional
	KubeClientDriver addonv1beta1.KubeClientDriver `json:"kubeClientDriver,omitempty"`
}

// ManagedClusterAddOnList is a list of add-ons.
//
// +kubebuilder:object:root=true
type ManagedClusterAddOnList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []ManagedClusterAddOn `json:"items"`
}
