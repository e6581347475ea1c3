package v1alpha2

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/capstan-io/capstan/api/multicluster/v1alpha1"
)

// ClusterProfile is one cluster of an inventory, as its cluster manager presents it to the users of a namespace.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:path=clusterprofiles,scope=Namespaced
// +kubebuilder:subresource:status
type ClusterProfile struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec says which cluster it is, and who manages it.
	// +required
	Spec v1alpha1.ClusterProfileSpec `json:"spec"`

	// status is what the cluster manager knows of the cluster.
	// +optional
	Status v1alpha1.ClusterProfileStatus `json:"status,omitempty,omitzero"`
}

// ClusterProfileList is a list of ClusterProfiles.
//
// +kubebuilder:object:root=true
type ClusterProfileList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []ClusterProfile `json:"items"`
}
