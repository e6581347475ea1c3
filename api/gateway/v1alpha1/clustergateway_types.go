package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// Labels and annotations of the Secrets that ClusterGateways are made of.
const (
	// LabelCredentialType makes a Secret a ClusterGateway. Its value is a CredentialType.
	LabelCredentialType = "cluster.core.oam.dev/cluster-credential-type"
	// LabelEndpointType has a ClusterEndpointType. Without it, the type is Const.
	LabelEndpointType = "cluster.core.oam.dev/cluster-endpoint-type"
	// AnnotationProxyConfiguration has a ClusterGatewayProxyConfiguration in YAML or JSON that holds for this cluster.
	AnnotationProxyConfiguration = "cluster.core.oam.dev/cluster-gateway-proxy-configuration"
	// AnnotationHealthy is "true" or "false": the status of the ClusterGateway.
	AnnotationHealthy = "status.cluster.core.oam.dev/healthy"
	// AnnotationHealthyReason says why.
	AnnotationHealthyReason = "status.cluster.core.oam.dev/healthy-reason"
)

// Keys of these Secrets.
const (
	// KeyEndpoint is the URL of the API server, which is dialled directly.
	KeyEndpoint = "endpoint"
	// KeyProxyURL is that of the forward proxy before it.
	KeyProxyURL = "proxy-url"
	// KeyCA has the certificates that sign that of the API server, in PEM.
	KeyCA = "ca.crt"
	// KeyCAShort is another name for KeyCA.
	KeyCAShort = "ca"
	// KeyToken has the bearer token of a service account.
	KeyToken = "token"
	// KeyCertificate and KeyPrivateKey have a client certificate.
	KeyCertificate = "tls.crt"
	KeyPrivateKey  = "tls.key"
	// KeyExec says, as kubeconfigs do, which command tells a credential.
	KeyExec = "exec"
)

// CredentialType is how the hub shows who it is.
type CredentialType string

// The credential types.
const (
	CredentialServiceAccountToken CredentialType = "ServiceAccountToken"
	CredentialX509Certificate     CredentialType = "X509Certificate"
	CredentialDynamic             CredentialType = "Dynamic"
)

// ClusterEndpointType is how the hub reaches a cluster.
type ClusterEndpointType string

// The endpoint types.
const (
	// EndpointConst is an address that the hub dials.
	EndpointConst ClusterEndpointType = "Const"
	// EndpointClusterProxy is the tunnel that the agent of the cluster keeps open.
	EndpointClusterProxy ClusterEndpointType = "ClusterProxy"
)

// ClusterGateway is the way from the hub to the API server of a cluster. Its subresource proxy hands requests on, health tells how it is.
// It shows neither tokens nor keys.
//
// +kubebuilder:object:root=true
type ClusterGateway struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec is what the Secret of the same name says.
	Spec ClusterGatewaySpec `json:"spec,omitempty"`

	// status is how the cluster is doing.
	// +optional
	Status ClusterGatewayStatus `json:"status,omitempty"`
}

// ClusterGatewaySpec is what the Secret of the same name says.
type ClusterGatewaySpec struct {
	// provider of the cluster, which nothing sets.
	// +optional
	Provider string `json:"provider,omitempty"`

	// access to the cluster.
	Access ClusterAccess `json:"access"`
}

// ClusterAccess is how a cluster is reached, and as whom.
type ClusterAccess struct {
	// endpoint is where the API server is.
	// +optional
	Endpoint *ClusterEndpoint `json:"endpoint,omitempty"`

	// credential is who the hub is there.
	// +optional
	Credential *ClusterAccessCredential `json:"credential,omitempty"`
}

// ClusterEndpoint is where an API server is.
type ClusterEndpoint struct {
	// type is Const or ClusterProxy.
	Type ClusterEndpointType `json:"type"`

	// const is the address, for endpoints of type Const.
	// +optional
	Const *ClusterEndpointConst `json:"const,omitempty"`
}

// ClusterEndpointConst is an address that the hub dials.
type ClusterEndpointConst struct {
	// address is the URL of the API server.
	// +optional
	Address string `json:"address,omitempty"`

	// caBundle has the certificates that sign that of the API server, in PEM.
	// +optional
	CABundle []byte `json:"caBundle,omitempty"`

	// insecure says that the certificate of the API server is not verified.
	// +optional
	Insecure *bool `json:"insecure,omitempty"`

	// proxy-url is the forward proxy before the API server, without its password.
	// +optional
	ProxyURL *string `json:"proxy-url,omitempty"`
}

// ClusterAccessCredential is of which kind the credential is. The credential itself is in the Secret.
type ClusterAccessCredential struct {
	// type is ServiceAccountToken, X509Certificate or Dynamic.
	Type CredentialType `json:"type"`
}

// ClusterGatewayStatus is how the cluster is doing.
type ClusterGatewayStatus struct {
	// healthy says that the API server answers.
	// +optional
	Healthy bool `json:"healthy,omitempty"`

	// healthyReason says what else there is to know, such as why it does not.
	// +optional
	HealthyReason string `json:"healthyReason,omitempty"`
}

// ClusterGatewayList is a list of ClusterGateways.
//
// +kubebuilder:object:root=true
type ClusterGatewayList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []ClusterGateway `json:"items"`
}
