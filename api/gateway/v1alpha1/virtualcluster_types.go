package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// Names and labels of VirtualClusters.
const (
	// ControlPlaneName is the VirtualCluster of the hub itself.
	ControlPlaneName = "local"
	// LabelControlPlane marks that one.
	LabelControlPlane = "cluster.core.oam.dev/control-plane"
	// AnnotationAlias on a Secret or a ManagedCluster is the name of the cluster for people.
	AnnotationAlias = "cluster.core.oam.dev/cluster-alias"
)

// Credential types of clusters that are not made of Secrets.
const (
	// CredentialInternal is of the hub itself.
	CredentialInternal CredentialType = "Internal"
	// CredentialManagedCluster is of a ManagedCluster without a ClusterGateway.
	CredentialManagedCluster CredentialType = "ManagedCluster"
)

// VirtualCluster is a cluster that the hub knows: by a ClusterGateway, as a ManagedCluster, or both. It can be read only, and shows no
// credentials.
//
// +kubebuilder:object:root=true
type VirtualCluster struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec is what the hub knows.
	Spec VirtualClusterSpec `json:"spec,omitempty"`
}

// VirtualClusterSpec is what the hub knows of a cluster.
type VirtualClusterSpec struct {
	// alias is the name of the cluster for people.
	// +optional
	Alias string `json:"alias,omitempty"`

	// accepted says that the hub deals with the cluster: there is a ClusterGateway, or the ManagedCluster is accepted.
	// +optional
	Accepted bool `json:"accepted,omitempty"`

	// endpoint is the URL of the API server, where that is known.
	// +optional
	Endpoint string `json:"endpoint,omitempty"`

	// credential-type is that of the ClusterGateway, ManagedCluster without one, or Internal for the hub itself.
	// +optional
	CredentialType CredentialType `json:"credential-type,omitempty"`
}

// VirtualClusterList is a list of VirtualClusters.
//
// +kubebuilder:object:root=true
type VirtualClusterList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []VirtualCluster `json:"items"`
}
