package v1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// ManagedCluster is one cluster of the fleet, as the hub sees it. The agent of the cluster creates it when it
// first contacts the hub; an administrator accepts it by setting spec.hubAcceptsClient. Its name is the name of
// the cluster and of the namespace on the hub that holds everything meant for this cluster.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Cluster,shortName={mcl,mcls}
// +kubebuilder:printcolumn:name="Hub Accepted",type=boolean,JSONPath=`.spec.hubAcceptsClient`
// +kubebuilder:printcolumn:name="Managed Cluster URLs",type=string,JSONPath=`.spec.managedClusterClientConfigs[*].url`
// +kubebuilder:printcolumn:name="Joined",type=string,JSONPath=`.status.conditions[?(@.type=="ManagedClusterJoined")].status`
// +kubebuilder:printcolumn:name="Available",type=string,JSONPath=`.status.conditions[?(@.type=="ManagedClusterConditionAvailable")].status`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type ManagedCluster struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec says whether the hub lets this cluster in, how to reach it, and what keeps placements away from it.
	// +optional
	Spec ManagedClusterSpec `json:"spec,omitempty"`

	// status is what the agent of the cluster and the hub last observed.
	// +optional
	Status ManagedClusterStatus `json:"status,omitempty,omitzero"`
}

// ManagedClusterSpec is what the hub wants of a cluster.
type ManagedClusterSpec struct {
	// managedClusterClientConfigs lists the addresses of the API server of the cluster. The agent fills it in;
	// add-ons and people use it to reach the cluster where the network allows that. The hub itself never does.
	// +optional
	ManagedClusterClientConfigs []ClientConfig `json:"managedClusterClientConfigs,omitempty"`

	// hubAcceptsClient lets the agent of the cluster work with the hub. Setting it to true needs the permission
	// to update managedclusters/accept of the group register.open-cluster-management.io. Setting it back to false
	// takes all rights but reading its own ManagedCluster from the agent; what it has applied stays on the cluster.
	// +optional
	HubAcceptsClient bool `json:"hubAcceptsClient"`

	// leaseDurationSeconds is how often, in seconds, the agent renews the lease managed-cluster-lease in the
	// namespace of the cluster. When it has not done so for five times as long, the cluster counts as unreachable.
	// +optional
	// +kubebuilder:default=60
	LeaseDurationSeconds int32 `json:"leaseDurationSeconds,omitempty"`

	// taints keep placements that do not tolerate them away from this cluster. The hub adds and removes the
	// taints cluster.open-cluster-management.io/unreachable and cluster.open-cluster-management.io/unavailable
	// as the condition ManagedClusterConditionAvailable changes.
	// +optional
	Taints []Taint `json:"taints,omitempty"`
}

// ClientConfig is one way to reach the API server of a cluster.
type ClientConfig struct {
	// url is the address of the API server, such as https://cluster1.example.com:6443.
	// +required
	URL string `json:"url"`

	// caBundle is the PEM-encoded certificates to verify the server with. Empty means the system's own.
	// +optional
	CABundle []byte `json:"caBundle,omitempty"`
}

// Taint keeps placements away from a cluster unless they tolerate it.
type Taint struct {
	// key names the taint: an optional DNS prefix and a slash, then a name, such as example.com/maintenance.
	// +required
	// +kubebuilder:validation:Pattern=`^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])$`
	// +kubebuilder:validation:MaxLength=316
	Key string `json:"key"`

	// value tells taints of the same key apart. It may be empty.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	Value string `json:"value,omitempty"`

	// effect is what happens to placements that do not tolerate the taint: NoSelect removes the cluster from
	// their decisions, PreferNoSelect takes it only when nothing else is left, NoSelectIfNew keeps it where it
	// is already selected.
	// +required
	Effect TaintEffect `json:"effect"`

	// timeAdded is when the taint was added or its value last changed; tolerationSeconds count from here.
	// The hub sets it when it is empty.
	// +optional
	// +nullable
	TimeAdded metav1.Time `json:"timeAdded,omitempty,omitzero"`
}

// TaintEffect is what a taint does to placements that do not tolerate it.
//
// +kubebuilder:validation:Enum=NoSelect;PreferNoSelect;NoSelectIfNew
type TaintEffect string

const (
	// TaintEffectNoSelect removes the cluster from the decisions of placements.
	TaintEffectNoSelect TaintEffect = "NoSelect"
	// TaintEffectPreferNoSelect selects the cluster only when there are not enough others.
	TaintEffectPreferNoSelect TaintEffect = "PreferNoSelect"
	// TaintEffectNoSelectIfNew keeps the cluster where it is selected and selects it nowhere else.
	TaintEffectNoSelectIfNew TaintEffect = "NoSelectIfNew"
)

// ManagedClusterStatus is what is known of a cluster.
type ManagedClusterStatus struct {
	// conditions: HubAcceptedManagedCluster, ManagedClusterJoined, ManagedClusterConditionAvailable,
	// ManagedClusterConditionClockSynced, ClusterCertificateRotated, and Deleting while the cluster is removed.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// capacity is the sum of the capacity of all nodes of the cluster, by resource name.
	// +optional
	Capacity corev1.ResourceList `json:"capacity,omitempty"`

	// allocatable is the sum of what pods can use on all schedulable nodes of the cluster, by resource name.
	// +optional
	Allocatable corev1.ResourceList `json:"allocatable,omitempty"`

	// version is the version of the cluster.
	// +optional
	Version ManagedClusterVersion `json:"version,omitempty,omitzero"`

	// clusterClaims are what the cluster claims about itself, copied from its ClusterClaim objects: reserved
	// names first, then the others by name, up to the limit of the agent (20 unless set otherwise).
	// +optional
	ClusterClaims []ManagedClusterClaim `json:"clusterClaims,omitempty"`

	// managedNamespaces are the namespaces that the sets of this cluster want on it, and whether they are there.
	// +optional
	// +listType=map
	// +listMapKey=clusterSet
	// +listMapKey=name
	ManagedNamespaces []ClusterSetManagedNamespaceStatus `json:"managedNamespaces,omitempty"`
}

// ManagedClusterVersion is the version of a cluster.
type ManagedClusterVersion struct {
	// kubernetes is the version of its API server, such as v1.37.1.
	// +optional
	Kubernetes string `json:"kubernetes,omitempty"`
}

// ManagedClusterClaim is a name and a value that a cluster claims about itself.
type ManagedClusterClaim struct {
	// name of the claim, such as region.example.com.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name,omitempty"`

	// value of the claim.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=1024
	Value string `json:"value,omitempty"`
}

// ClusterSetManagedNamespaceStatus is a namespace that a ManagedClusterSet wants on this cluster.
type ClusterSetManagedNamespaceStatus struct {
	// name of the namespace on the cluster.
	// +required
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`
	Name string `json:"name"`

	// clusterSet is the ManagedClusterSet that wants it.
	// +required
	ClusterSet string `json:"clusterSet"`

	// conditions: NamespaceAvailable is True once the namespace is on the cluster.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// ManagedClusterList is a list of clusters.
//
// +kubebuilder:object:root=true
type ManagedClusterList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []ManagedCluster `json:"items"`
}
