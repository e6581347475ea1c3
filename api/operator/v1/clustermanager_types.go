package v1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// ClusterManager is a hub, as its operator installs it into a Kubernetes cluster.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Cluster
// +kubebuilder:printcolumn:name="Applied",type=string,JSONPath=`.status.conditions[?(@.type=="Applied")].status`
// +kubebuilder:printcolumn:name="Progressing",type=string,JSONPath=`.status.conditions[?(@.type=="Progressing")].status`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type ClusterManager struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec says how the hub is installed.
	// +optional
	// +kubebuilder:default={deployOption:{mode:Default}}
	Spec ClusterManagerSpec `json:"spec,omitempty,omitzero"`

	// status tells how the hub is doing.
	// +optional
	Status ClusterManagerStatus `json:"status,omitempty,omitzero"`
}

// ClusterManagerSpec says how a hub is installed.
type ClusterManagerSpec struct {
	// registrationImagePullSpec is the image of the registration controllers and webhooks.
	// +optional
	// +kubebuilder:default=quay.io/open-cluster-management/registration
	RegistrationImagePullSpec string `json:"registrationImagePullSpec,omitempty"`

	// workImagePullSpec is the image of the work controllers and webhooks.
	// +optional
	// +kubebuilder:default=quay.io/open-cluster-management/work
	WorkImagePullSpec string `json:"workImagePullSpec,omitempty"`

	// placementImagePullSpec is the image of the placement controllers.
	// +optional
	// +kubebuilder:default=quay.io/open-cluster-management/placement
	PlacementImagePullSpec string `json:"placementImagePullSpec,omitempty"`

	// addOnManagerImagePullSpec is the image of the add-on controllers.
	// +optional
	// +kubebuilder:default=quay.io/open-cluster-management/addon-manager
	AddOnManagerImagePullSpec string `json:"addOnManagerImagePullSpec,omitempty"`

	// nodePlacement says on which nodes the hub runs.
	// +optional
	NodePlacement NodePlacement `json:"nodePlacement,omitempty,omitzero"`

	// deployOption says where the hub runs.
	// +optional
	// +kubebuilder:default={mode:Default}
	DeployOption ClusterManagerDeployOption `json:"deployOption,omitempty,omitzero"`

	// registrationConfiguration tunes the registration controllers.
	// +optional
	RegistrationConfiguration *RegistrationHubConfiguration `json:"registrationConfiguration,omitempty"`

	// workConfiguration tunes the work controllers.
	// +optional
	// +kubebuilder:default={workDriver:kube}
	WorkConfiguration *WorkConfiguration `json:"workConfiguration,omitempty"`

	// placementConfiguration tunes the placement controllers.
	// +optional
	PlacementConfiguration *PlacementConfiguration `json:"placementConfiguration,omitempty"`

	// addOnManagerConfiguration tunes the add-on controllers.
	// +optional
	AddOnManagerConfiguration *AddOnManagerConfiguration `json:"addOnManagerConfiguration,omitempty"`

	// serverConfiguration tunes the gRPC server.
	// +optional
	ServerConfiguration *ServerConfiguration `json:"serverConfiguration,omitempty"`

	// resourceRequirement says what resources the hub gets.
	// +optional
	ResourceRequirement *ResourceRequirement `json:"resourceRequirement,omitempty"`
}

// ClusterManagerDeployOption says where a hub runs.
type ClusterManagerDeployOption struct {
	// mode: Default runs the hub on the cluster of the operator, Hosted runs its controllers there for a hub that
	// is elsewhere, with the Secret external-hub-kubeconfig.
	// +optional
	// +kubebuilder:default=Default
	// +kubebuilder:validation:Enum=Default;Hosted
	Mode InstallMode `json:"mode,omitempty"`

	// default tunes the mode Default.
	// +optional
	Default *DefaultClusterManagerConfiguration `json:"default,omitempty"`

	// hosted tunes the mode Hosted.
	// +optional
	Hosted *HostedClusterManagerConfiguration `json:"hosted,omitempty"`
}

// DefaultClusterManagerConfiguration tunes the mode Default.
type DefaultClusterManagerConfiguration struct {
	// registrationWebhookConfiguration tunes the webhook of the registration controllers.
	// +optional
	RegistrationWebhookConfiguration DefaultWebhookConfiguration `json:"registrationWebhookConfiguration,omitempty,omitzero"`

	// workWebhookConfiguration tunes the webhook of the work controllers.
	// +optional
	WorkWebhookConfiguration DefaultWebhookConfiguration `json:"workWebhookConfiguration,omitempty,omitzero"`

	// addonWebhookConfiguration tunes the conversion webhook of add-ons.
	// +optional
	AddonWebhookConfiguration DefaultWebhookConfiguration `json:"addonWebhookConfiguration,omitempty,omitzero"`
}

// DefaultWebhookConfiguration tunes a webhook of the mode Default.
type DefaultWebhookConfiguration struct {
	// bindConfiguration says which ports the webhook listens on.
	// +optional
	BindConfiguration BindConfiguration `json:"bindConfiguration,omitempty,omitzero"`
}

// HostedClusterManagerConfiguration tunes the mode Hosted.
type HostedClusterManagerConfiguration struct {
	// registrationWebhookConfiguration tunes the webhook of the registration controllers.
	// +optional
	RegistrationWebhookConfiguration HostedWebhookConfiguration `json:"registrationWebhookConfiguration,omitempty,omitzero"`

	// workWebhookConfiguration tunes the webhook of the work controllers.
	// +optional
	WorkWebhookConfiguration HostedWebhookConfiguration `json:"workWebhookConfiguration,omitempty,omitzero"`
}

// HostedWebhookConfiguration says how a hub reaches a webhook that runs elsewhere.
type HostedWebhookConfiguration struct {
	// address of the webhook: an IP address or a host name. You make the webhook reachable there.
	// +required
	// +kubebuilder:validation:Pattern=`^(([a-zA-Z0-9]|[a-zA-Z0-9][a-zA-Z0-9\-]*[a-zA-Z0-9])\.)*([A-Za-z0-9]|[A-Za-z0-9][A-Za-z0-9\-]*[A-Za-z0-9])$`
	Address string `json:"address"`

	// port of the webhook at that address.
	// +optional
	// +kubebuilder:default=443
	// +kubebuilder:validation:Maximum=65535
	Port int32 `json:"port,omitempty"`

	// bindConfiguration says which ports the webhook listens on.
	// +optional
	BindConfiguration BindConfiguration `json:"bindConfiguration,omitempty,omitzero"`
}

// BindConfiguration says which ports a webhook listens on.
type BindConfiguration struct {
	// port of the webhook.
	// +optional
	// +kubebuilder:default=9443
	// +kubebuilder:validation:Maximum=65535
	Port int32 `json:"port,omitempty"`

	// healthProbePort is the port of the health probes. 0 or less means none.
	// +optional
	// +kubebuilder:default=8000
	// +kubebuilder:validation:Maximum=65535
	HealthProbePort *int32 `json:"healthProbePort,omitempty"`

	// metricsPort is the port of the metrics. 0 or less means none.
	// +optional
	// +kubebuilder:default=8080
	// +kubebuilder:validation:Maximum=65535
	MetricsPort *int32 `json:"metricsPort,omitempty"`

	// hostNetwork runs the webhook in the network of its node.
	// +optional
	HostNetwork bool `json:"hostNetwork,omitempty"`
}

// ClusterManagerStatus tells how a hub is doing.
type ClusterManagerStatus struct {
	// observedGeneration is the generation of the ClusterManager that the operator last looked at.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// conditions: Applied is True when everything is installed, Progressing while Deployments are rolling,
	// HubRegistrationDegraded and HubPlacementDegraded when their controllers do not work, ValidFeatureGates when
	// all feature gates exist.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// generations are those of the Deployments that the operator last applied.
	// +optional
	Generations []GenerationStatus `json:"generations,omitempty"`

	// relatedResources are all the objects that the operator applied.
	// +optional
	RelatedResources []RelatedResourceMeta `json:"relatedResources,omitempty"`
}

// ClusterManagerList is a list of ClusterManagers.
//
// +kubebuilder:object:root=true
type ClusterManagerList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []ClusterManager `json:"items"`
}
