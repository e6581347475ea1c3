package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// ClusterProperty is something that a cluster says about itself, such as its identity or the set it is in. It lives on the
// managed cluster; an agent with the feature gate ClusterProperty copies name and value into status.clusterClaims of the
// ManagedCluster on the hub, where it goes before a ClusterClaim of the same name. The label
// open-cluster-management.io/spoke-only keeps a property off the hub.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Cluster,path=clusterproperties
// +kubebuilder:metadata:annotations="api-approved.kubernetes.io=https://github.com/kubernetes/enhancements/pull/2149"
// +kubebuilder:printcolumn:name="value",type=string,JSONPath=`.spec.value`
// +kubebuilder:printcolumn:name="age",type=date,JSONPath=`.metadata.creationTimestamp`
type ClusterProperty struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec holds the value of the property; the name of the object is the name of the property.
	// +optional
	Spec ClusterPropertySpec `json:"spec,omitempty"`
}

// ClusterPropertySpec is the value of a property.
type ClusterPropertySpec struct {
	// value of the property, 1 to 128000 characters. The hub takes no more than 1024 of them; a longer one is not reported.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=128000
	Value string `json:"value"`
}

// ClusterPropertyList is a list of properties.
//
// +kubebuilder:object:root=true
type ClusterPropertyList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []ClusterProperty `json:"items"`
}
