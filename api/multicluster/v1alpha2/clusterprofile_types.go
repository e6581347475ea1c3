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
	Status ClusterProfileStatus `json:"status,omitempty,omitzero"`
}

// ClusterProfileStatus is what the cluster manager knows of a cluster.
type ClusterProfileStatus struct {
	// conditions: ControlPlaneHealthy tells whether the API server of the cluster answers, Joined whether the cluster is
	// under management.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// version of the cluster.
	// +optional
	Version v1alpha1.ClusterVersion `json:"version,omitempty,omitzero"`

	// properties of the cluster, such as its region.
	// +optional
	// +listType=map
	// +listMapKey=name
	Properties []v1alpha1.Property `json:"properties,omitempty"`

	// accessProviders are ways to reach the cluster's API server.
	// +optional
	// +listType=map
	// +listMapKey=name
	AccessProviders []v1alpha1.AccessProvider `json:"accessProviders,omitempty"`
}

// ClusterProfileList is a list of ClusterProfiles.
//
// +kubebuilder:object:root=true
type ClusterProfileList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []ClusterProfile `json:"items"`
}
