package v1beta2

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// ManagedClusterSet is a set of clusters that belong together, because one team owns them or because they trust each
// other. Namespaces place on its clusters through a ManagedClusterSetBinding.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Cluster,shortName={mclset,mclsets}
// +kubebuilder:printcolumn:name="Empty",type=string,JSONPath=`.status.conditions[?(@.type=="ClusterSetEmpty")].status`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type ManagedClusterSet struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec says which clusters are members, and which namespaces they should have.
	// +optional
	// +kubebuilder:default={clusterSelector:{selectorType:ExclusiveClusterSetLabel}}
	Spec ManagedClusterSetSpec `json:"spec,omitempty,omitzero"`

	// status tells whether there are members.
	// +optional
	Status ManagedClusterSetStatus `json:"status,omitempty,omitzero"`
}

// ManagedClusterSetSpec says which clusters are members.
type ManagedClusterSetSpec struct {
	// clusterSelector selects the members. Without it they are those with the label
	// cluster.open-cluster-management.io/clusterset and the name of this set.
	// +optional
	// +kubebuilder:default={selectorType:ExclusiveClusterSetLabel}
	ClusterSelector ManagedClusterSelector `json:"clusterSelector,omitempty,omitzero"`

	// managedNamespaces are namespaces that the agents of all members create on their clusters. A namespace that
	// is removed from this list stays on the clusters.
	// +optional
	// +listType=map
	// +listMapKey=name
	ManagedNamespaces []ManagedNamespaceConfig `json:"managedNamespaces,omitempty"`
}

// ManagedClusterSelector selects the members of a set.
type ManagedClusterSelector struct {
	// selectorType: ExclusiveClusterSetLabel takes the clusters with the label
	// cluster.open-cluster-management.io/clusterset and the name of this set, so that each is in one such set
	// only; LabelSelector takes those that labelSelector matches, whatever other sets they are in.
	// +optional
	// +kubebuilder:default=ExclusiveClusterSetLabel
	SelectorType SelectorType `json:"selectorType,omitempty"`

	// labelSelector matches the labels of clusters, for the type LabelSelector. An empty one matches all clusters.
	// +optional
	LabelSelector *metav1.LabelSelector `json:"labelSelector,omitempty"`
}

// SelectorType is a way to select members.
//
// +kubebuilder:validation:Enum=ExclusiveClusterSetLabel;LabelSelector
type SelectorType string

const (
	// ExclusiveClusterSetLabel selects clusters by the label that names their one exclusive set.
	ExclusiveClusterSetLabel SelectorType = "ExclusiveClusterSetLabel"
	// LabelSelector selects clusters by any labels.
	LabelSelector SelectorType = "LabelSelector"
)

// ManagedNamespaceConfig is a namespace that members should have.
type ManagedNamespaceConfig struct {
	// name of the namespace on the clusters.
	// +required
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`
	Name string `json:"name"`
}

// ManagedClusterSetStatus tells whether a set has members.
type ManagedClusterSetStatus struct {
	// conditions: ClusterSetEmpty is True when no cluster is a member.
	// +optional
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// ManagedClusterSetList is a list of sets.
//
// +kubebuilder:object:root=true
type ManagedClusterSetList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []ManagedClusterSet `json:"items"`
}
