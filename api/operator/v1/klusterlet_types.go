package v1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// Klusterlet is the agent of a managed cluster, as its operator installs it. A cluster managed by several hubs has
// one for each.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Cluster
// +kubebuilder:printcolumn:name="Cluster",type=string,JSONPath=`.spec.clusterName`
// +kubebuilder:printcolumn:name="Applied",type=string,JSONPath=`.status.conditions[?(@.type=="Applied")].status`
// +kubebuilder:printcolumn:name="Available",type=string,JSONPath=`.status.conditions[?(@.type=="Available")].status`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type Klusterlet struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec says how the agent is installed.
	// +optional
	Spec KlusterletSpec `json:"spec,omitempty"`

	// status tells how the agent is doing.
	// +optional
	Status KlusterletStatus `json:"status,omitempty,omitzero"`
}

// KlusterletSpec says how an agent is installed.
type KlusterletSpec struct {
	// namespace of the agent on the managed cluster. Empty means open-cluster-management-agent. In the hosted modes
	// it holds the service accounts there; the agent itself runs in a namespace with the name of the Klusterlet.
	// +optional
	// +kubebuilder:validation:MaxLength=57
	// +kubebuilder:validation:Pattern=`^open-cluster-management-[-a-z0-9]*[a-z0-9]$`
	Namespace string `json:"namespace,omitempty"`

	// registrationImagePullSpec is the image of the registration agent.
	// +optional
	RegistrationImagePullSpec string `json:"registrationImagePullSpec,omitempty"`

	// workImagePullSpec is the image of the work agent.
	// +optional
	WorkImagePullSpec string `json:"workImagePullSpec,omitempty"`

	// imagePullSpec is the image of the agent in the modes Singleton and SingletonHosted.
	// +optional
	ImagePullSpec string `json:"imagePullSpec,omitempty"`

	// clusterName is the name of the ManagedCluster. Empty lets the agent make one up.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`
	ClusterName string `json:"clusterName,omitempty"`

	// externalServerURLs are the addresses of the API server of the cluster, to be published in the
	// ManagedCluster. They must be https.
	// +optional
	ExternalServerURLs []ServerURL `json:"externalServerURLs,omitempty"`

	// nodePlacement says on which nodes the agent runs.
	// +optional
	NodePlacement NodePlacement `json:"nodePlacement,omitempty,omitzero"`

	// deployOption says where the agent runs and in how many parts.
	// +optional
	DeployOption KlusterletDeployOption `json:"deployOption,omitempty,omitzero"`

	// registrationConfiguration tunes the registration agent.
	// +optional
	RegistrationConfiguration *RegistrationConfiguration `json:"registrationConfiguration,omitempty"`

	// workConfiguration tunes the work agent.
	// +optional
	WorkConfiguration *WorkAgentConfiguration `json:"workConfiguration,omitempty"`

	// hubApiServerHostAlias gives the host name of the hub an address, where DNS does not.
	// +optional
	HubAPIServerHostAlias *HubAPIServerHostAlias `json:"hubApiServerHostAlias,omitempty"`

	// resourceRequirement says what resources the agent gets.
	// +optional
	ResourceRequirement *ResourceRequirement `json:"resourceRequirement,omitempty"`

	// priorityClassName of the pods of the agent.
	// +optional
	PriorityClassName string `json:"priorityClassName,omitempty"`
}

// ServerURL is an address of an API server.
type ServerURL struct {
	// url of the API server, such as https://cluster1.example.com:6443.
	// +required
	URL string `json:"url"`

	// caBundle is the PEM-encoded certificates to verify the server with.
	// +optional
	CABundle []byte `json:"caBundle,omitempty"`
}

// HubAPIServerHostAlias gives a host name an address.
type HubAPIServerHostAlias struct {
	// ip is the IPv4 address.
	// +required
	// +kubebuilder:validation:Pattern=`^(?:(?:25[0-5]|2[0-4][0-9]|[01]?[0-9][0-9]?)\.){3}(?:25[0-5]|2[0-4][0-9]|[01]?[0-9][0-9]?)$`
	IP string `json:"ip"`

	// hostname is the host name of the hub.
	// +required
	// +kubebuilder:validation:Pattern=`^(([a-zA-Z0-9]|[a-zA-Z0-9][a-zA-Z0-9\-]*[a-zA-Z0-9])\.)*([A-Za-z0-9]|[A-Za-z0-9][A-Za-z0-9\-]*[A-Za-z0-9])$`
	Hostname string `json:"hostname"`
}

// KlusterletDeployOption says where an agent runs and in how many parts.
type KlusterletDeployOption struct {
	// mode: Default runs two Deployments on the managed cluster, Singleton one; Hosted and SingletonHosted run them
	// on the cluster of the operator instead, with the Secret external-managed-kubeconfig. Empty means Default.
	// +optional
	Mode InstallMode `json:"mode,omitempty"`
}

// InstallMode is where hub or agent run.
type InstallMode string

const (
	// InstallModeDefault runs everything on the cluster of the operator.
	InstallModeDefault InstallMode = "Default"
	// InstallModeSingleton runs the agent in one Deployment.
	InstallModeSingleton InstallMode = "Singleton"
	// InstallModeHosted runs the agent, or the hub, away from the cluster that it is for.
	InstallModeHosted InstallMode = "Hosted"
	// InstallModeSingletonHosted runs the agent in one Deployment, away from its cluster.
	InstallModeSingletonHosted InstallMode = "SingletonHosted"
)

// RegistrationConfiguration tunes the registration agent.
type RegistrationConfiguration struct {
	// clientCertExpirationSeconds is how long, in seconds, the certificate of the agent should be valid: 600 at
	// least. 0 leaves it to the hub, which may also shorten it.
	// +optional
	ClientCertExpirationSeconds int32 `json:"clientCertExpirationSeconds,omitempty"`

	// featureGates of the registration agent.
	// +optional
	FeatureGates []FeatureGate `json:"featureGates,omitempty"`

	// clusterAnnotations are set on the ManagedCluster when it is created. Their keys must begin with
	// agent.open-cluster-management.io.
	// +optional
	ClusterAnnotations map[string]string `json:"clusterAnnotations,omitempty"`

	// clusterLabels are set on the ManagedCluster when it is created.
	// +optional
	ClusterLabels map[string]string `json:"clusterLabels,omitempty"`

	// kubeAPIQPS is how many requests a second the agent sends to the API server of the cluster.
	// +optional
	// +kubebuilder:default=50
	KubeAPIQPS int32 `json:"kubeAPIQPS,omitempty"`

	// kubeAPIBurst is how many requests it may send at once.
	// +optional
	// +kubebuilder:default=100
	KubeAPIBurst int32 `json:"kubeAPIBurst,omitempty"`

	// bootstrapKubeConfigs lets the agent choose among several hubs.
	// +optional
	BootstrapKubeConfigs BootstrapKubeConfigs `json:"bootstrapKubeConfigs,omitempty,omitzero"`

	// registrationDriver is how the agent proves to the hub who it is.
	// +optional
	RegistrationDriver RegistrationDriver `json:"registrationDriver,omitempty,omitzero"`

	// addOnKubeClientRegistrationDriver is how the agents of add-ons do.
	// +optional
	AddOnKubeClientRegistrationDriver *AddOnRegistrationDriver `json:"addOnKubeClientRegistrationDriver,omitempty"`

	// clusterClaimConfiguration says which claims are exposed on the hub.
	// +optional
	ClusterClaimConfiguration *ClusterClaimConfiguration `json:"clusterClaimConfiguration,omitempty"`
}

// RegistrationDriver is how an agent proves to the hub who it is.
type RegistrationDriver struct {
	// authType: csr, awsirsa or grpc.
	// +optional
	// +kubebuilder:default=csr
	AuthType RegistrationAuthType `json:"authType,omitempty"`

	// awsIrsa tunes the type awsirsa, which requires it.
	// +optional
	AwsIrsa *AwsIrsa `json:"awsIrsa,omitempty"`
}

// AwsIrsa names the two EKS clusters.
type AwsIrsa struct {
	// hubClusterArn is the ARN of the hub.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:Pattern=`^arn:aws:eks:([a-zA-Z0-9-]+):(\d{12}):cluster/([a-zA-Z0-9-]+)$`
	HubClusterARN string `json:"hubClusterArn"`

	// managedClusterArn is the ARN of the managed cluster.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:Pattern=`^arn:aws:eks:([a-zA-Z0-9-]+):(\d{12}):cluster/([a-zA-Z0-9-]+)$`
	ManagedClusterARN string `json:"managedClusterArn"`
}

// AddOnRegistrationDriver is how the agents of add-ons prove to the hub who they are.
type AddOnRegistrationDriver struct {
	// authType: csr or token. Empty means csr.
	// +optional
	// +kubebuilder:validation:Enum=csr;token
	AuthType string `json:"authType,omitempty"`

	// token tunes the type token.
	// +optional
	Token *AddOnTokenConfiguration `json:"token,omitempty"`
}

// AddOnTokenConfiguration tunes the tokens of add-ons.
type AddOnTokenConfiguration struct {
	// expirationSeconds is how long, in seconds, a token should be valid: 600 at least. 0 means a year.
	// +optional
	ExpirationSeconds int64 `json:"expirationSeconds,omitempty"`
}

// ClusterClaimConfiguration says which claims are exposed on the hub.
type ClusterClaimConfiguration struct {
	// maxCustomClusterClaims is how many claims that are not reserved are exposed.
	// +optional
	// +kubebuilder:default=20
	MaxCustomClusterClaims int32 `json:"maxCustomClusterClaims"`

	// reservedClusterClaimSuffixes make claims whose names end in one of them count as reserved.
	// +optional
	// +kubebuilder:validation:MaxItems=10
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=64
	ReservedClusterClaimSuffixes []string `json:"reservedClusterClaimSuffixes,omitempty"`
}

// BootstrapKubeConfigs are the hubs that an agent chooses among.
type BootstrapKubeConfigs struct {
	// type: None uses the Secret bootstrap-hub-kubeconfig, LocalSecrets several Secrets. LocalSecrets needs the
	// feature gate MultipleHubs.
	// +optional
	// +kubebuilder:default=None
	Type BootstrapKubeConfigsType `json:"type,omitempty"`

	// localSecretsConfig are the Secrets of the type LocalSecrets.
	// +optional
	LocalSecrets *LocalSecretsConfig `json:"localSecretsConfig,omitempty"`
}

// BootstrapKubeConfigsType is where bootstrap kubeconfigs come from.
//
// +kubebuilder:validation:Enum=None;LocalSecrets
type BootstrapKubeConfigsType string

const (
	// BootstrapKubeConfigsNone uses the one Secret that every agent has.
	BootstrapKubeConfigsNone BootstrapKubeConfigsType = "None"
	// BootstrapKubeConfigsLocalSecrets uses several Secrets.
	BootstrapKubeConfigsLocalSecrets BootstrapKubeConfigsType = "LocalSecrets"
)

// LocalSecretsConfig are Secrets with bootstrap kubeconfigs.
type LocalSecretsConfig struct {
	// kubeConfigSecrets are two Secrets or more in the namespace of the agent, the most preferred hub first.
	// +required
	KubeConfigSecrets []KubeConfigSecret `json:"kubeConfigSecrets"`

	// hubConnectionTimeoutSeconds is how long, in seconds, the agent tries to reach its hub before it turns to
	// another one.
	// +optional
	// +kubebuilder:default=600
	// +kubebuilder:validation:Minimum=180
	HubConnectionTimeoutSeconds int32 `json:"hubConnectionTimeoutSeconds,omitempty"`
}

// KubeConfigSecret names a Secret with a bootstrap kubeconfig.
type KubeConfigSecret struct {
	// name of the Secret.
	// +required
	Name string `json:"name"`
}

// WorkAgentConfiguration tunes the work agent.
type WorkAgentConfiguration struct {
	// featureGates of the work agent.
	// +optional
	FeatureGates []FeatureGate `json:"featureGates,omitempty"`

	// kubeAPIQPS is how many requests a second the agent sends to the API server of the cluster.
	// +optional
	// +kubebuilder:default=50
	KubeAPIQPS int32 `json:"kubeAPIQPS,omitempty"`

	// kubeAPIBurst is how many requests it may send at once.
	// +optional
	// +kubebuilder:default=100
	KubeAPIBurst int32 `json:"kubeAPIBurst,omitempty"`

	// hubKubeAPIQPS is how many requests a second the agent sends to the hub.
	// +optional
	// +kubebuilder:default=50
	HubKubeAPIQPS int32 `json:"hubKubeAPIQPS,omitempty"`

	// hubKubeAPIBurst is how many requests it may send to the hub at once.
	// +optional
	// +kubebuilder:default=100
	HubKubeAPIBurst int32 `json:"hubKubeAPIBurst,omitempty"`

	// appliedManifestWorkEvictionGracePeriod is how long the objects of a ManifestWork stay on the cluster after it
	// is gone from the hub, such as 30m or 24h. Empty means 60m; 100 years or more, 876000h, means forever.
	// +optional
	// +kubebuilder:validation:Pattern=`^([0-9]+(s|m|h))+$`
	AppliedManifestWorkEvictionGracePeriod string `json:"appliedManifestWorkEvictionGracePeriod,omitempty"`

	// statusSyncInterval is how often the agents of Open Cluster Management look at applied objects to report on
	// them, 5s to 1h. Capstan's agent watches them.
	// +optional
	// +kubebuilder:validation:Pattern=`^([0-9]+(s|m|h))+$`
	StatusSyncInterval string `json:"statusSyncInterval,omitempty"`
}

// KlusterletStatus tells how an agent is doing.
type KlusterletStatus struct {
	// observedGeneration is the generation of the Klusterlet that the operator last looked at.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// conditions: Applied is True when everything is installed, Available when the agent has running pods,
	// HubConnectionDegraded when it cannot reach the hub or lacks rights there, RegistrationDesiredDegraded and
	// WorkDesiredDegraded when pods are missing, ValidFeatureGates when all feature gates exist.
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

// KlusterletList is a list of Klusterlets.
//
// +kubebuilder:object:root=true
type KlusterletList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []Klusterlet `json:"items"`
}
