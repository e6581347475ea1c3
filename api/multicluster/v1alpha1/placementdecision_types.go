package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// PlacementDecision is which clusters a scheduler has chosen, or a part of them, as ClusterProfiles (KEP-5313).
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:path=placementdecisions,scope=Namespaced
type PlacementDecision struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// decisions are the chosen clusters.
	// +required
	// +kubebuilder:validation:MaxItems=100
	Decisions []ClusterDecision `json:"decisions"`

	// schedulerName is who has chosen them.
	// +optional
	SchedulerName string `json:"schedulerName,omitempty"`
}

// ClusterDecision is a chosen cluster.
type ClusterDecision struct {
	// clusterProfileRef is the ClusterProfile of the cluster.
	// +required
	ClusterProfileRef ClusterProfileReference `json:"clusterProfileRef"`

	// reason is why it was chosen.
	// +optional
	Reason string `json:"reason,omitempty"`
}

// ClusterProfileReference names a ClusterProfile.
type ClusterProfileReference struct {
	// namespace of the ClusterProfile; empty means that of the decision.
	// +optional
	Namespace string `json:"namespace,omitempty"`

	// name of the ClusterProfile.
	// +required
	Name string `json:"name"`
}

// PlacementDecisionList is a list of PlacementDecisions.
//
// +kubebuilder:object:root=true
type PlacementDecisionList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []PlacementDecision `json:"items"`
}
