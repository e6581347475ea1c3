package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// AddOnPlacementScore is how an add-on rates one cluster. It lives in the namespace of the cluster on the hub;
// placements read it through prioritizers of type AddOn.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Namespaced
// +kubebuilder:printcolumn:name="Valid Until",type=date,JSONPath=`.status.validUntil`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type AddOnPlacementScore struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// status holds the scores. Add-ons write it; there is no spec.
	// +optional
	Status AddOnPlacementScoreStatus `json:"status,omitempty,omitzero"`
}

// AddOnPlacementScoreStatus is the scores of one cluster.
type AddOnPlacementScoreStatus struct {
	// conditions in which the add-on reports how it is doing with the scores.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// scores of the cluster, one for each name.
	// +optional
	// +listType=map
	// +listMapKey=name
	Scores []AddOnPlacementScoreItem `json:"scores,omitempty"`

	// validUntil is when the scores go stale. Placements count stale scores as 0. Empty means never.
	// +optional
	ValidUntil *metav1.Time `json:"validUntil,omitempty"`
}

// AddOnPlacementScoreItem is one named score.
type AddOnPlacementScoreItem struct {
	// name of the score, as placements refer to it in scoreName.
	// +required
	Name string `json:"name"`

	// value of the score, -100 to 100. Higher is better.
	// +required
	// +kubebuilder:validation:Minimum=-100
	// +kubebuilder:validation:Maximum=100
	Value int32 `json:"value"`
}

// AddOnPlacementScoreList is a list of scores.
//
// +kubebuilder:object:root=true
type AddOnPlacementScoreList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []AddOnPlacementScore `json:"items"`
}
