package v1

// RegistrationHubConfiguration tunes the registration controllers of a hub.
type RegistrationHubConfiguration struct {
	// autoApproveUsers are the users whose clusters are accepted by themselves, with the feature gate
	// ManagedClusterAutoApproval. Deprecated: use autoApprovedIdentities of registrationDrivers.
	// +optional
	AutoApproveUsers []string `json:"autoApproveUsers,omitempty"`

	// featureGates of the registration controllers.
	// +optional
	FeatureGates []FeatureGate `json:"featureGates,omitempty"`

	// registrationDrivers are the ways in which agents may prove who they are. Without any it is csr.
	// +optional
	// +listType=map
	// +listMapKey=authType
	RegistrationDrivers []RegistrationDriverHub `json:"registrationDrivers,omitempty"`

	// importerConfiguration tunes the import of Cluster API clusters.
	// +optional
	ImporterConfiguration *ImporterConfiguration `json:"importerConfiguration,omitempty"`
}

// RegistrationDriverHub is a way in which agents may prove who they are.
type RegistrationDriverHub struct {
	// authType: csr, awsirsa or grpc.
	// +required
	// +kubebuilder:default=csr
	AuthType RegistrationAuthType `json:"authType"`

	// csr tunes the type csr.
	// +optional
	CSR *CSRConfig `json:"csr,omitempty"`

	// awsirsa tunes the type awsirsa.
	// +optional
	AwsIrsa *AwsIrsaConfig `json:"awsirsa,omitempty"`

	// grpc tunes the type grpc.
	// +optional
	GRPC *GRPCRegistrationConfig `json:"grpc,omitempty"`
}

// CSRConfig tunes registration by certificate signing requests.
type CSRConfig struct {
	// autoApprovedIdentities are the users whose clusters are accepted by themselves, with the feature gate
	// ManagedClusterAutoApproval.
	// +optional
	AutoApprovedIdentities []string `json:"autoApprovedIdentities,omitempty"`
}

// AwsIrsaConfig tunes registration by AWS IAM.
type AwsIrsaConfig struct {
	// hubClusterArn is the ARN of the hub.
	// +optional
	// +kubebuilder:validation:Pattern=`^arn:aws:eks:([a-zA-Z0-9-]+):(\d{12}):cluster/([a-zA-Z0-9-]+)$`
	HubClusterARN string `json:"hubClusterArn,omitempty"`

	// autoApprovedIdentities are regular expressions for the whole ARNs of clusters that are accepted by themselves,
	// with the feature gate ManagedClusterAutoApproval.
	// +optional
	AutoApprovedIdentities []string `json:"autoApprovedIdentities,omitempty"`

	// tags are put on what is created in AWS, each as key:value.
	// +optional
	Tags []string `json:"tags,omitempty"`
}

// GRPCRegistrationConfig tunes registration by the gRPC server.
type GRPCRegistrationConfig struct {
	// autoApprovedIdentities are the users whose clusters are accepted by themselves, with the feature gate
	// ManagedClusterAutoApproval.
	// +optional
	AutoApprovedIdentities []string `json:"autoApprovedIdentities,omitempty"`
}

// ImporterConfiguration tunes the import of Cluster API clusters.
type ImporterConfiguration struct {
	// renderers are applied in this order: render-auto makes the configuration up, render-from-config-secret reads
	// it from the Secret cluster-import-config in the namespace of the cluster.
	// +optional
	Renderers []string `json:"renderers,omitempty"`
}

// WorkConfiguration tunes the work controllers of a hub.
type WorkConfiguration struct {
	// featureGates of the work controllers.
	// +optional
	FeatureGates []FeatureGate `json:"featureGates,omitempty"`

	// workDriver is how works reach the agents: kube through the API server, mqtt or grpc as CloudEvents. Those need
	// the feature gate CloudEventsDrivers and the Secret work-driver-config.
	// +optional
	// +kubebuilder:default=kube
	WorkDriver WorkDriverType `json:"workDriver,omitempty"`
}

// WorkDriverType is how works reach agents.
//
// +kubebuilder:validation:Enum=kube;mqtt;grpc
type WorkDriverType string

const (
	// WorkDriverTypeKube is through the API server.
	WorkDriverTypeKube WorkDriverType = "kube"
	// WorkDriverTypeMQTT is as CloudEvents over MQTT.
	WorkDriverTypeMQTT WorkDriverType = "mqtt"
	// WorkDriverTypeGRPC is as CloudEvents over gRPC.
	WorkDriverTypeGRPC WorkDriverType = "grpc"
)

// PlacementConfiguration tunes the placement controllers of a hub.
type PlacementConfiguration struct {
	// featureGates of the placement controllers.
	// +optional
	FeatureGates []FeatureGate `json:"featureGates,omitempty"`
}

// AddOnManagerConfiguration tunes the add-on controllers of a hub.
type AddOnManagerConfiguration struct {
	// featureGates of the add-on controllers.
	// +optional
	FeatureGates []FeatureGate `json:"featureGates,omitempty"`
}

// ServerConfiguration tunes the gRPC server of a hub.
type ServerConfiguration struct {
	// imagePullSpec is the image of the server. Empty means that of the registration controllers.
	// +optional
	ImagePullSpec string `json:"imagePullSpec,omitempty"`

	// featureGates of the server.
	// +optional
	FeatureGates []FeatureGate `json:"featureGates,omitempty"`

	// endpointsExposure says how the server is reached from outside.
	// +optional
	EndpointsExposure []EndpointExposure `json:"endpointsExposure,omitempty"`
}

// EndpointExposure is one way to reach the server.
type EndpointExposure struct {
	// usage of the endpoint: agentToHub for agents, consumer for everybody else.
	// +optional
	Usage EndpointUsage `json:"usage,omitempty"`

	// protocol: grpc or https.
	// +optional
	// +kubebuilder:default=grpc
	Protocol EndpointProtocol `json:"protocol,omitempty"`

	// grpc is the endpoint of the protocol grpc.
	// +optional
	GRPC *Endpoint `json:"grpc,omitempty"`

	// https is the endpoint of the protocol https.
	// +optional
	HTTPS *Endpoint `json:"https,omitempty"`
}

// EndpointUsage is who uses an endpoint.
type EndpointUsage string

const (
	// EndpointUsageAgentToHub is agents.
	EndpointUsageAgentToHub EndpointUsage = "agentToHub"
	// EndpointUsageConsumer is everybody else.
	EndpointUsageConsumer EndpointUsage = "consumer"
)

// EndpointProtocol is the protocol of an endpoint.
//
// +kubebuilder:validation:Enum=grpc;https
type EndpointProtocol string

const (
	// EndpointProtocolGRPC is gRPC.
	EndpointProtocolGRPC EndpointProtocol = "grpc"
	// EndpointProtocolHTTPS is HTTPS.
	EndpointProtocolHTTPS EndpointProtocol = "https"
)

// Endpoint is an address at which the server is reached. The serving certificate is made for it.
type Endpoint struct {
	// type: hostname is a host name that you point at the server, loadBalancer a Service of that type, route an
	// OpenShift Route.
	// +optional
	// +kubebuilder:default=hostname
	Type EndpointType `json:"type,omitempty"`

	// hostname is the endpoint of the type hostname.
	// +optional
	Hostname *HostnameConfig `json:"hostname,omitempty"`

	// loadBalancer is the endpoint of the type loadBalancer.
	// +optional
	LoadBalancer *OptionalHostConfig `json:"loadBalancer,omitempty"`

	// route is the endpoint of the type route.
	// +optional
	Route *OptionalHostConfig `json:"route,omitempty"`
}

// EndpointType is a kind of endpoint.
//
// +kubebuilder:validation:Enum=hostname;loadBalancer;route
type EndpointType string

const (
	// EndpointTypeHostname is a host name that a user points at the server.
	EndpointTypeHostname EndpointType = "hostname"
	// EndpointTypeLoadBalancer is a Service of type LoadBalancer.
	EndpointTypeLoadBalancer EndpointType = "loadBalancer"
	// EndpointTypeRoute is an OpenShift Route.
	EndpointTypeRoute EndpointType = "route"
)

// HostnameConfig is a host name.
type HostnameConfig struct {
	// host is the host name.
	// +required
	Host string `json:"host"`

	// caBundle is the PEM-encoded certificates to verify the server with. Empty means those of the hub.
	// +optional
	CABundle []byte `json:"caBundle,omitempty"`
}

// OptionalHostConfig is a host name that may be left to the infrastructure.
type OptionalHostConfig struct {
	// host is the host name. Empty means what the infrastructure assigns.
	// +optional
	Host string `json:"host,omitempty"`

	// caBundle is the PEM-encoded certificates to verify the server with. Empty means those of the hub.
	// +optional
	CABundle []byte `json:"caBundle,omitempty"`
}
