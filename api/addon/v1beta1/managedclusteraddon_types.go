package v1beta1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// ManagedClusterAddOn is an add-on installed on one cluster. It lives in the namespace of the cluster on the hub and has
// the name of the ClusterManagementAddOn.
//
// +kubebuilder:object:root=true
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
	// configs of the add-on on this cluster. For each type given here they replace those of the
	// ClusterManagementAddOn.
	// +optional
	Configs []AddOnConfig `json:"configs,omitempty"`
}

// RegistrationConfigType is what an agent registers for.
//
// +kubebuilder:validation:Enum=kubeClient;customSigner
type RegistrationConfigType string

const (
	// KubeClient is access to the API server of the hub.
	KubeClient RegistrationConfigType = "kubeClient"
	// CustomSigner is a certificate of any other signer.
	CustomSigner RegistrationConfigType = "customSigner"
)

// RegistrationConfig is what the agent of an add-on registers for.
//
// +kubebuilder:validation:XValidation:rule="self.type != 'customSigner' || has(self.customSigner)",message="customSigner is required when type is customSigner"
type RegistrationConfig struct {
	// type: kubeClient is access to the API server of the hub, customSigner a certificate of any other signer.
	// +required
	Type RegistrationConfigType `json:"type"`

	// kubeClient tells as whom the agent acts on the hub, for the type kubeClient.
	// +optional
	KubeClient *KubeClientConfig `json:"kubeClient,omitempty"`

	// customSigner is the certificate, for the type customSigner.
	// +optional
	CustomSigner *CustomSignerConfig `json:"customSigner,omitempty"`
}

// KubeClientConfig tells as whom an agent acts on the hub.
type KubeClientConfig struct {
	// subject is the identity. The add-on asks for it, and it has effect once the agent has registered.
	// +optional
	Subject KubeClientSubject `json:"subject,omitempty,omitzero"`

	// driver is how the agent of the cluster gets the credential: csr or token. It is set by that agent.
	// +optional
	Driver KubeClientDriver `json:"driver,omitempty"`
}

// KubeClientSubject is an identity on the hub.
type KubeClientSubject struct {
	// user name.
	// +optional
	User string `json:"user,omitempty"`

	// groups of the user.
	// +optional
	Groups []string `json:"groups,omitempty"`
}

// KubeClientDriver is how an agent gets a credential for the hub.
//
// +kubebuilder:validation:Enum=csr;token
type KubeClientDriver string

const (
	// KubeClientDriverCSR gets a client certificate by a certificate signing request.
	KubeClientDriverCSR KubeClientDriver = "csr"
	// KubeClientDriverToken gets a token of a service account.
	KubeClientDriverToken KubeClientDriver = "token"
)

// CustomSignerConfig is a certificate of a signer other than that of the API server.
type CustomSignerConfig struct {
	// signerName of the certificate requests, such as example.com/hello.
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

	// organizationUnits are the organisational units.
	// +optional
	OrganizationUnits []string `json:"organizationUnits,omitempty"`
}

// HealthCheckMode is how the condition Available of an add-on is found.
//
// +kubebuilder:validation:Enum=Lease;Customized
type HealthCheckMode string

const (
	// HealthCheckModeLease looks at the lease that the agent of the add-on renews.
	HealthCheckModeLease HealthCheckMode = "Lease"
	// HealthCheckModeCustomized leaves it to the add-on.
	HealthCheckModeCustomized HealthCheckMode = "Customized"
)

// HealthCheck is how the condition Available of an add-on is found.
type HealthCheck struct {
	// mode: Lease looks at the lease that the agent of the add-on renews, Customized leaves it to the add-on.
	// +optional
	// +kubebuilder:default=Lease
	Mode HealthCheckMode `json:"mode,omitempty"`
}

// ObjectReference names an object on the hub.
type ObjectReference struct {
	// group of the object; empty is the core group.
	// +required
	Group string `json:"group"`

	// resource of the object: plural and lower case.
	// +required
	Resource string `json:"resource"`

	// namespace of the object; empty when it is cluster-scoped.
	// +optional
	Namespace string `json:"namespace,omitempty"`

	// name of the object.
	// +required
	Name string `json:"name"`
}

// ConfigReference is a configuration on its way to a cluster.
type ConfigReference struct {
	ConfigGroupResource `json:",inline"`

	// lastObservedGeneration is the generation of the configuration that was last looked at.
	// +optional
	LastObservedGeneration int64 `json:"lastObservedGeneration,omitempty"`

	// desiredConfig is what the cluster should have. It changes when the rollout reaches the cluster.
	// +optional
	DesiredConfig *ConfigSpecHash `json:"desiredConfig,omitempty"`

	// lastAppliedConfig is desiredConfig as last applied.
	// +optional
	LastAppliedConfig *ConfigSpecHash `json:"lastAppliedConfig,omitempty"`
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
	RelatedObjects []ObjectReference `json:"relatedObjects,omitempty"`

	// addOnMeta describes the add-on to people.
	// +optional
	AddOnMeta AddOnMeta `json:"addOnMeta,omitempty,omitzero"`

	// supportedConfigs are the types of configurations that the add-on supports.
	// +optional
	// +listType=map
	// +listMapKey=group
	// +listMapKey=resource
	SupportedConfigs []ConfigGroupResource `json:"supportedConfigs,omitempty"`

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
	HealthCheck HealthCheck `json:"healthCheck,omitempty,omitzero"`
}

// ManagedClusterAddOnList is a list of add-ons.
//
// +kubebuilder:object:root=true
type ManagedClusterAddOnList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []ManagedClusterAddOn `json:"items"`
}
