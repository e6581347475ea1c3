package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// ClusterProfile is one cluster of an inventory, as its cluster manager presents it to the users of a namespace.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:path=clusterprofiles,scope=Namespaced
// +kubebuilder:storageversion
// +kubebuilder:subresource:status
type ClusterProfile struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec says which cluster it is, and who manages it.
	// +required
	Spec ClusterProfileSpec `json:"spec"`

	// status is what the cluster manager knows of the cluster.
	// +optional
	Status ClusterProfileStatus `json:"status,omitempty,omitzero"`
}

// ClusterProfileSpec says which cluster it is, and who manages it.
type ClusterProfileSpec struct {
	// displayName is the name of the cluster for people.
	// +optional
	DisplayName string `json:"displayName,omitempty"`

	// clusterManager writes this object.
	// +required
	// +kubebuilder:validation:XValidation:message="clusterManager is immutable",rule="self == oldSelf"
	ClusterManager ClusterManager `json:"clusterManager"`
}

// ClusterManager is who manages a cluster.
type ClusterManager struct {
	// name of the cluster manager. It is also the value of the label x-k8s.io/cluster-manager.
	// +required
	Name string `json:"name"`
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
	Version ClusterVersion `json:"version,omitempty,omitzero"`

	// properties of the cluster, such as its region.
	// +optional
	// +listType=map
	// +listMapKey=name
	Properties []Property `json:"properties,omitempty"`

	// accessProviders are ways to reach the cluster's API server.
	// +optional
	// +listType=map
	// +listMapKey=name
	AccessProviders []AccessProvider `json:"accessProviders,omitempty"`

	// credentialProviders is the former name of accessProviders.
	// +optional
	// +listType=map
	// +listMapKey=name
	CredentialProviders []AccessProvider `json:"credentialProviders,omitempty"`
}

// ClusterVersion is the version of a cluster.
type ClusterVersion struct {
	// kubernetes is the version of its API server, such as v1.37.1.
	// +optional
	Kubernetes string `json:"kubernetes,omitempty"`
}

// Property is a name and a value that say something about a cluster.
type Property struct {
	// name of the property, such as region.example.com.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`

	// value of the property.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=1024
	Value string `json:"value"`

	// lastObservedTime is when the cluster had this value, as far as is known.
	// +optional
	LastObservedTime *metav1.Time `json:"lastObservedTime,omitempty"`
}

// AccessProvider is a way to reach a cluster's API server.
type AccessProvider struct {
	// name of the provider.
	// +required
	Name string `json:"name"`

	// cluster is an entry for the clusters of a kubeconfig.
	// +optional
	// +kubebuilder:pruning:PreserveUnknownFields
	Cluster runtime.RawExtension `json:"cluster,omitempty"`
}

// ClusterProfileList is a list of ClusterProfiles.
//
// +kubebuilder:object:root=true
type ClusterProfileList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []ClusterProfile `json:"items"`
}
