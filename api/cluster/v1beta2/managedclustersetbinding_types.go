package v1beta2

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// ManagedClusterSetBinding lets the placements of its namespace select clusters of a set. Creating it needs the
// permission to create managedclustersets/bind for that set.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Namespaced,shortName={mclsetbinding,mclsetbindings}
// +kubebuilder:printcolumn:name="Bound",type=string,JSONPath=`.status.conditions[?(@.type=="Bound")].status`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type ManagedClusterSetBinding struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec names the set.
	// +optional
	Spec ManagedClusterSetBindingSpec `json:"spec,omitempty"`

	// status tells whether the set exists.
	// +optional
	Status ManagedClusterSetBindingStatus `json:"status,omitempty,omitzero"`
}

// ManagedClusterSetBindingSpec names a set.
type ManagedClusterSetBindingSpec struct {
	// clusterSet is the ManagedClusterSet to bind. The binding must have the same name.
	// +optional
	// +kubebuilder:validation:MinLength=1
	ClusterSet string `json:"clusterSet,omitempty"`
}

// ManagedClusterSetBindingStatus tells whether the set exists.
type ManagedClusterSetBindingStatus struct {
	// conditions: Bound is True while the set exists.
	// +optional
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// ManagedClusterSetBindingList is a list of bindings.
//
// +kubebuilder:object:root=true
type ManagedClusterSetBindingList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []ManagedClusterSetBinding `json:"items"`
}
