package v1alpha1

import "k8s.io/apimachinery/pkg/util/intstr"

// RolloutStrategy is the order and the pace in which a change reaches the clusters of a placement.
type RolloutStrategy struct {
	// type: All changes all clusters at once, Progressive one batch after another, ProgressivePerGroup one
	// decision group of the placement after another.
	// +optional
	// +kubebuilder:default=All
	Type RolloutType `json:"type,omitempty"`

	// all tunes the type All.
	// +optional
	All *RolloutAll `json:"all,omitempty"`

	// progressive tunes the type Progressive.
	// +optional
	Progressive *RolloutProgressive `json:"progressive,omitempty"`

	// progressivePerGroup tunes the type ProgressivePerGroup.
	// +optional
	ProgressivePerGroup *RolloutProgressivePerGroup `json:"progressivePerGroup,omitempty"`
}

// RolloutType is the order in which a change reaches clusters.
//
// +kubebuilder:validation:Enum=All;Progressive;ProgressivePerGroup
type RolloutType string

const (
	// All changes all clusters at once.
	All RolloutType = "All"
	// Progressive changes one batch of clusters after another.
	Progressive RolloutType = "Progressive"
	// ProgressivePerGroup changes one decision group after another.
	ProgressivePerGroup RolloutType = "ProgressivePerGroup"
)

// RolloutAll tunes the type All.
type RolloutAll struct {
	RolloutConfig `json:",inline"`
}

// RolloutProgressive tunes the type Progressive.
type RolloutProgressive struct {
	RolloutConfig           `json:",inline"`
	MandatoryDecisionGroups `json:",inline"`

	// maxConcurrency is how many clusters may be changing at a time: a number, or a percentage of the clusters
	// outside the mandatory groups, rounded up. Without it there is no limit, for add-ons that of
	// clustersPerDecisionGroup of the placement.
	// +optional
	// +kubebuilder:validation:XIntOrString
	// +kubebuilder:validation:Pattern=`^((100|[0-9]{1,2})%|[0-9]+)$`
	MaxConcurrency *intstr.IntOrString `json:"maxConcurrency,omitempty"`
}

// RolloutProgressivePerGroup tunes the type ProgressivePerGroup.
type RolloutProgressivePerGroup struct {
	RolloutConfig           `json:",inline"`
	MandatoryDecisionGroups `json:",inline"`
}

// RolloutConfig says when a cluster counts as done or failed, and how many may fail.
type RolloutConfig struct {
	// minSuccessTime is how long a cluster must have been successful before the next one is begun, such as 5m or
	// 1h30m. 0 goes on at once.
	// +optional
	// +kubebuilder:default="0"
	MinSuccessTime string `json:"minSuccessTime,omitempty"`

	// progressDeadline is how long a cluster may take, such as 10m or 2h; then it counts as timed out, which is a
	// failure, and the next one is begun. None waits forever.
	// +optional
	// +kubebuilder:default=None
	// +kubebuilder:validation:Pattern=`^(([0-9])+[h|m|s])|None$`
	ProgressDeadline string `json:"progressDeadline,omitempty"`

	// maxFailures is how many clusters may fail or time out before the rollout stops: a number, or a percentage of
	// all clusters (of the group, for the type ProgressivePerGroup). Mandatory groups tolerate none.
	// +optional
	// +kubebuilder:default=0
	// +kubebuilder:validation:XIntOrString
	// +kubebuilder:validation:Pattern=`^((100|[0-9]{1,2})%|[0-9]+)$`
	MaxFailures *intstr.IntOrString `json:"maxFailures,omitempty"`
}

// MandatoryDecisionGroups are the decision groups that come first.
type MandatoryDecisionGroups struct {
	// mandatoryDecisionGroups come first, in this order; the rest waits until all their clusters have succeeded.
	// +optional
	MandatoryDecisionGroups []MandatoryDecisionGroup `json:"mandatoryDecisionGroups,omitempty"`
}

// MandatoryDecisionGroup names a decision group, by name or else by index.
type MandatoryDecisionGroup struct {
	// groupName is the name of the group, as in decisionStrategy of the placement.
	// +optional
	GroupName string `json:"groupName,omitempty"`

	// groupIndex is the index of the group, from 0.
	// +optional
	GroupIndex int32 `json:"groupIndex,omitempty"`
}
