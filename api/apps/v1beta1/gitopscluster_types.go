package v1beta1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// GitOpsCluster makes the clusters that a Placement selects known to an Argo CD: for each, it has a Secret in the namespace of the Argo CD,
// of the kind that Argo CD keeps for the clusters it deploys to.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:path=gitopsclusters,scope=Namespaced
// +kubebuilder:subresource:status
// +kubebuilder:printcolumn:name="Phase",type=string,JSONPath=`.status.phase`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type GitOpsCluster struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec is which clusters which Argo CD is to know.
	// +required
	Spec GitOpsClusterSpec `json:"spec"`

	// status tells whether it knows them.
	// +optional
	Status GitOpsClusterStatus `json:"status,omitempty,omitzero"`
}

// GitOpsClusterSpec is which clusters which Argo CD is to know.
type GitOpsClusterSpec struct {
	// argoServer is the Argo CD.
	// +required
	ArgoServer ArgoServerSpec `json:"argoServer"`

	// placementRef is the Placement that selects the clusters, in the namespace of the GitOpsCluster.
	// +required
	PlacementRef *corev1.ObjectReference `json:"placementRef"`

	// managedServiceAccountRef is the name of the ManagedServiceAccounts, in the namespaces of the clusters, as which Argo CD deploys. By
	// default it is application-manager, and where there is none, the Secret <cluster>-cluster-secret of the cluster is copied.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	ManagedServiceAccountRef string `json:"managedServiceAccountRef,omitempty"`

	// createBlankClusterSecrets makes Secrets without a credential, for clusters that pull what is deployed to them.
	// +optional
	CreateBlankClusterSecrets *bool `json:"createBlankClusterSecrets,omitempty"`

	// createPolicyTemplate is accepted, and changes nothing.
	// +optional
	CreatePolicyTemplate *bool `json:"createPolicyTemplate,omitempty"`
}

// ArgoServerSpec is an Argo CD.
type ArgoServerSpec struct {
	// cluster is reserved: the Argo CD is on the hub.
	// +optional
	Cluster string `json:"cluster,omitempty"`

	// argoNamespace is the namespace of the Argo CD. By default, it is that of the GitOpsCluster.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	ArgoNamespace string `json:"argoNamespace,omitempty"`
}

// Values of GitOpsClusterStatus.Phase.
const (
	// GitOpsClusterSuccessful says that Argo CD knows all clusters that it is to know.
	GitOpsClusterSuccessful = "successful"
	// GitOpsClusterFailed says that it does not, and the message why.
	GitOpsClusterFailed = "failed"
)

// Conditions of a GitOpsCluster.
const (
	// GitOpsClusterReady says that both of the other conditions are True.
	GitOpsClusterReady = "Ready"
	// GitOpsClusterPlacementResolved says that the Placement is there.
	GitOpsClusterPlacementResolved = "PlacementResolved"
	// GitOpsClusterClustersRegistered says that there is a Secret for each cluster that is selected.
	GitOpsClusterClustersRegistered = "ClustersRegistered"
)

// GitOpsClusterStatus tells whether an Argo CD knows the clusters.
type GitOpsClusterStatus struct {
	// lastUpdateTime is when the status changed last.
	// +optional
	LastUpdateTime metav1.Time `json:"lastUpdateTime,omitempty,omitzero"`

	// phase is successful or failed.
	// +optional
	Phase string `json:"phase,omitempty"`

	// message names the clusters, or says what has failed.
	// +optional
	Message string `json:"message,omitempty"`

	// conditions say which step has failed.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// GitOpsClusterList is a list of GitOpsClusters.
//
// +kubebuilder:object:root=true
type GitOpsClusterList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	// items are the GitOpsClusters.
	Items []GitOpsCluster `json:"items"`
}
