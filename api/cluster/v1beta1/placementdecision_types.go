package v1beta1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// PlacementDecision lists clusters that a Placement selects, 100 at most. A Placement has as many of them as it takes,
// each with the labels cluster.open-cluster-management.io/placement and
// cluster.open-cluster-management.io/decision-group-index.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Namespaced
// +kubebuilder:printcolumn:name="Placement",type=string,JSONPath=`.metadata.labels.cluster\.open-cluster-management\.io/placement`
// +kubebuilder:printcolumn:name="Group",type=string,JSONPath=`.metadata.labels.cluster\.open-cluster-management\.io/decision-group-index`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type PlacementDecision struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// status lists the clusters. There is no spec.
	// +optional
	Status PlacementDecisionStatus `json:"status,omitempty,omitzero"`
}

// MaxDecisionsPerObject is how many clusters one PlacementDecision lists at most.
const MaxDecisionsPerObject = 100

// PlacementDecisionStatus lists selected clusters.
type PlacementDecisionStatus struct {
	// decisions are the selected clusters, in the order of sortBy of the Placement.
	// +required
	Decisions []ClusterDecision `json:"decisions"`
}

// ClusterDecision is a selected cluster.
type ClusterDecision struct {
	// clusterName is the name of the ManagedCluster.
	// +required
	ClusterName string `json:"clusterName"`

	// reason why the cluster was selected. It may be empty.
	// +required
	Reason string `json:"reason"`

	// score of the cluster, when sortBy of the Placement is Score. 0 is left out.
	// +optional
	Score int64 `json:"score,omitempty"`
}

// PlacementDecisionList is a list of decisions.
//
// +kubebuilder:object:root=true
type PlacementDecisionList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []PlacementDecision `json:"items"`
}
