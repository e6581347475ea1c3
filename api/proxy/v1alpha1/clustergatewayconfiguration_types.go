package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// ClusterGatewayConfiguration says how the hub reaches clusters with the add-on cluster-gateway, and as whom. There is at most one, named
// cluster-gateway.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:path=clustergatewayconfigurations,scope=Cluster
// +kubebuilder:subresource:status
type ClusterGatewayConfiguration struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec says how clusters are reached, and as whom.
	// +required
	Spec ClusterGatewayConfigurationSpec `json:"spec"`

	// status is empty.
	// +optional
	Status ClusterGatewayConfigurationStatus `json:"status,omitempty,omitzero"`
}

// ClusterGatewayConfigurationSpec says how clusters are reached, and as whom.
type ClusterGatewayConfigurationSpec struct {
	// image of the gateway, where that is a Deployment of its own. A standalone hub is the gateway itself, and ignores it.
	// +optional
	Image string `json:"image,omitempty"`

	// secretNamespace holds the Secrets that ClusterGateways are made of. It has to be the namespace that the gateway reads.
	// +optional
	SecretNamespace string `json:"secretNamespace,omitempty"`

	// installNamespace is where the gateway is installed, where that is a Deployment of its own. A standalone hub ignores it.
	// +optional
	InstallNamespace string `json:"installNamespace,omitempty"`

	// secretManagement says where the credentials come from.
	// +optional
	SecretManagement ClusterGatewaySecretManagement `json:"secretManagement,omitempty,omitzero"`

	// egress says which way requests take. Without it, they go through the tunnels of the add-on cluster-proxy to clusters that have this
	// add-on, and directly to others.
	// +optional
	Egress *ClusterGatewayTrafficEgress `json:"egress,omitempty"`
}

// SecretManagementType says where credentials come from.
//
// +kubebuilder:validation:Enum=Manual;ManagedServiceAccount
type SecretManagementType string

// Where credentials come from.
const (
	// SecretManagementManual leaves the Secrets to users.
	SecretManagementManual SecretManagementType = "Manual"
	// SecretManagementManagedServiceAccount copies the tokens of ManagedServiceAccounts.
	SecretManagementManagedServiceAccount SecretManagementType = "ManagedServiceAccount"
)

// ClusterGatewaySecretManagement says where credentials come from.
type ClusterGatewaySecretManagement struct {
	// type is Manual, which leaves the Secrets to users, or ManagedServiceAccount, which copies the tokens of ManagedServiceAccounts.
	// +optional
	// +kubebuilder:default=ManagedServiceAccount
	Type SecretManagementType `json:"type,omitempty"`

	// managedServiceAccount says which ones.
	// +optional
	ManagedServiceAccount *SecretManagementManagedServiceAccountSpec `json:"managedServiceAccount,omitempty"`
}

// SecretManagementManagedServiceAccountSpec says which ManagedServiceAccounts.
type SecretManagementManagedServiceAccountSpec struct {
	// name of the ManagedServiceAccount in the namespace of each cluster.
	// +optional
	// +kubebuilder:default=cluster-gateway
	Name string `json:"name,omitempty"`
}

// EgressType says which way requests take.
//
// +kubebuilder:validation:Enum=Direct;ClusterProxy
type EgressType string

// Which way requests take.
const (
	// EgressDirect dials the first of the client configurations of the ManagedCluster.
	EgressDirect EgressType = "Direct"
	// EgressClusterProxy goes through the tunnel that the agent of the cluster keeps open.
	EgressClusterProxy EgressType = "ClusterProxy"
)

// ClusterGatewayTrafficEgress says which way requests take.
type ClusterGatewayTrafficEgress struct {
	// type is Direct, to the first of the client configurations of the ManagedCluster, or ClusterProxy, through the tunnel that the agent of
	// the cluster keeps open.
	// +required
	Type EgressType `json:"type"`

	// clusterProxy is where the proxy server is, where that is a Deployment of its own. A standalone hub is the server itself, and ignores it.
	// +optional
	ClusterProxy *ClusterGatewayTrafficEgressClusterProxy `json:"clusterProxy,omitempty"`
}

// ClusterGatewayTrafficEgressClusterProxy is where a proxy server is.
type ClusterGatewayTrafficEgressClusterProxy struct {
	// proxyServerHost is its host.
	// +optional
	ProxyServerHost string `json:"proxyServerHost,omitempty"`

	// proxyServerPort is its port.
	// +optional
	ProxyServerPort int32 `json:"proxyServerPort,omitempty"`

	// credentials say with which certificates it is reached.
	// +optional
	Credentials *ClusterGatewayTrafficEgressClusterProxyCredential `json:"credentials,omitempty"`
}

// ClusterGatewayTrafficEgressClusterProxyCredential says with which certificates a proxy server is reached.
type ClusterGatewayTrafficEgressClusterProxyCredential struct {
	// namespace of the Secrets.
	// +optional
	Namespace string `json:"namespace,omitempty"`

	// proxyClientSecretName is the Secret with the certificate of clients.
	// +optional
	ProxyClientSecretName string `json:"proxyClientSecretName,omitempty"`

	// proxyClientCASecretName is the Secret with the CA of the server.
	// +optional
	ProxyClientCASecretName string `json:"proxyClientCASecretName,omitempty"`
}

// ClusterGatewayConfigurationStatus is empty.
type ClusterGatewayConfigurationStatus struct {
	// conditions are set by nobody.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// ClusterGatewayConfigurationList is a list of ClusterGatewayConfigurations.
//
// +kubebuilder:object:root=true
type ClusterGatewayConfigurationList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []ClusterGatewayConfiguration `json:"items"`
}
