package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	clusterv1alpha1 "github.com/capstan-io/capstan/api/cluster/v1alpha1"
	workv1 "github.com/capstan-io/capstan/api/work/v1"
)

// ManifestWorkReplicaSet makes one ManifestWork of its template for every cluster that its placements select, and
// changes them cluster by cluster as the rollout strategy says.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Namespaced,shortName=mwrs
// +kubebuilder:printcolumn:name="Placement",type=string,JSONPath=`.status.conditions[?(@.type=="PlacementVerified")].reason`
// +kubebuilder:printcolumn:name="Found",type=string,JSONPath=`.status.conditions[?(@.type=="PlacementVerified")].status`
// +kubebuilder:printcolumn:name="ManifestWorks",type=string,JSONPath=`.status.conditions[?(@.type=="ManifestworkApplied")].reason`
// +kubebuilder:printcolumn:name="Applied",type=string,JSONPath=`.status.conditions[?(@.type=="ManifestworkApplied")].status`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type ManifestWorkReplicaSet struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec is the template, where its works go, and how they are changed and deleted.
	// +optional
	Spec ManifestWorkReplicaSetSpec `json:"spec,omitempty"`

	// status counts the works.
	// +optional
	Status ManifestWorkReplicaSetStatus `json:"status,omitempty,omitzero"`
}

// ManifestWorkReplicaSetSpec is the template and where its works go.
type ManifestWorkReplicaSetSpec struct {
	// manifestWorkTemplate is the spec of every ManifestWork.
	// +optional
	ManifestWorkTemplate workv1.ManifestWorkSpec `json:"manifestWorkTemplate,omitempty"`

	// placementRefs are the placements, in the namespace of this object, whose clusters get the works.
	// +required
	// +kubebuilder:validation:MinItems=1
	PlacementRefs []LocalPlacementReference `json:"placementRefs"`

	// cascadeDeletionPolicy is how this object goes when it is deleted: Background at once, Foreground when all
	// its works are gone.
	// +optional
	// +kubebuilder:default=Background
	CascadeDeletionPolicy CascadeDeletionPolicy `json:"cascadeDeletionPolicy,omitempty"`
}

// CascadeDeletionPolicy is how a ManifestWorkReplicaSet goes when it is deleted.
//
// +kubebuilder:validation:Enum=Background;Foreground
type CascadeDeletionPolicy string

const (
	// Background lets the object go once the deletion of its works is under way.
	Background CascadeDeletionPolicy = "Background"
	// Foreground lets the object go once its works are gone.
	Foreground CascadeDeletionPolicy = "Foreground"
)

// LocalPlacementReference is a placement and the pace on its clusters.
type LocalPlacementReference struct {
	// name of the Placement.
	// +required
	// +kubebuilder:validation:MinLength=1
	Name string `json:"name"`

	// rolloutStrategy is the order and the pace in which changes of the template reach the clusters. Without it
	// all change at once.
	// +optional
	// +kubebuilder:default={type:All,all:{progressDeadline:None}}
	RolloutStrategy clusterv1alpha1.RolloutStrategy `json:"rolloutStrategy,omitempty,omitzero"`
}

// ManifestWorkReplicaSetStatus counts the works of a ManifestWorkReplicaSet.
type ManifestWorkReplicaSetStatus struct {
	// conditions: PlacementVerified is True when the placements have decisions, PlacementRolledOut when all
	// clusters have the current template, ManifestworkApplied when all works are applied.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// summary counts the works of all placements.
	// +optional
	Summary ManifestWorkReplicaSetSummary `json:"summary,omitempty,omitzero"`

	// placementSummary counts the works of each placement.
	// +optional
	PlacementsSummary []PlacementSummary `json:"placementSummary,omitempty"`
}

// PlacementSummary counts the works of one placement.
type PlacementSummary struct {
	// name of the placement.
	// +optional
	Name string `json:"name,omitempty"`

	// availableDecisionGroups tells how far the rollout has come, such as "2 (20 / 100 clusters applied)".
	// +optional
	AvailableDecisionGroups string `json:"availableDecisionGroups,omitempty"`

	// summary counts the works of this placement.
	// +optional
	Summary ManifestWorkReplicaSetSummary `json:"summary,omitempty,omitzero"`
}

// ManifestWorkReplicaSetSummary counts works by their conditions.
type ManifestWorkReplicaSetSummary struct {
	// total is how many works exist.
	// +optional
	Total int `json:"total"`

	// desiredTotal is how many works there should be.
	// +optional
	DesiredTotal int `json:"desiredTotal"`

	// applied is how many works are Applied.
	// +optional
	Applied int `json:"applied"`

	// available is how many works are Available.
	// +optional
	Available int `json:"available"`

	// degraded is how many works are Degraded.
	// +optional
	Degraded int `json:"degraded"`

	// progressing is how many works are Progressing.
	// +optional
	Progressing int `json:"progressing"`

	// updated is how many works have the current template.
	// +optional
	Updated int `json:"updated"`
}

// ManifestWorkReplicaSetList is a list of ManifestWorkReplicaSets.
//
// +kubebuilder:object:root=true
type ManifestWorkReplicaSetList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []ManifestWorkReplicaSet `json:"items"`
}
