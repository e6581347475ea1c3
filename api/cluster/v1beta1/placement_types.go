package v1beta1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	clusterv1 "github.com/capstan-io/capstan/api/cluster/v1"
)

// Placement selects clusters, out of the ManagedClusterSets bound to its namespace. The hub keeps the selection up to
// date in PlacementDecisions with the label cluster.open-cluster-management.io/placement.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Namespaced
// +kubebuilder:printcolumn:name="Succeeded",type=string,JSONPath=`.status.conditions[?(@.type=="PlacementSatisfied")].status`
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.conditions[?(@.type=="PlacementSatisfied")].reason`
// +kubebuilder:printcolumn:name="SelectedClusters",type=integer,JSONPath=`.status.numberOfSelectedClusters`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type Placement struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec says which clusters to select.
	// +required
	Spec PlacementSpec `json:"spec"`

	// status sums the selection up.
	// +optional
	Status PlacementStatus `json:"status,omitempty,omitzero"`
}

// PlacementSpec says which clusters to select. An empty one selects all clusters of all bound sets.
type PlacementSpec struct {
	// clusterSets are the ManagedClusterSets to select from. They must be bound to the namespace by a
	// ManagedClusterSetBinding. Empty means all that are bound.
	// +optional
	ClusterSets []string `json:"clusterSets,omitempty"`

	// numberOfClusters is how many clusters to select at most, those with the highest scores. Empty means all
	// that match.
	// +optional
	NumberOfClusters *int32 `json:"numberOfClusters,omitempty"`

	// predicates say which clusters match. A cluster matches when any of them does; without any, all do.
	// +optional
	Predicates []ClusterPredicate `json:"predicates,omitempty"`

	// prioritizerPolicy says which of the matching clusters come first.
	// +optional
	PrioritizerPolicy PrioritizerPolicy `json:"prioritizerPolicy,omitempty,omitzero"`

	// spreadPolicy spreads the selection over regions, zones or the like.
	// +optional
	SpreadPolicy SpreadPolicy `json:"spreadPolicy,omitempty,omitzero"`

	// tolerations are the taints of clusters that do not matter.
	// +optional
	Tolerations []Toleration `json:"tolerations,omitempty"`

	// decisionStrategy divides the selected clusters into groups, for rollouts to proceed by.
	// +optional
	DecisionStrategy DecisionStrategy `json:"decisionStrategy,omitempty,omitzero"`

	// sortBy orders the decisions: ClusterName by the names of the clusters, Score by their scores, highest first.
	// +optional
	// +kubebuilder:default=ClusterName
	SortBy SortBy `json:"sortBy,omitempty"`

	// scoreRateLimit is the least time between two updates of the scores in the decisions, such as 30s, 1m or 1h.
	// +optional
	// +kubebuilder:default="1m"
	// +kubebuilder:validation:Pattern=`^[0-9]+[hms]$`
	ScoreRateLimit string `json:"scoreRateLimit,omitempty"`
}

// SortBy is an order of decisions.
//
// +kubebuilder:validation:Enum=ClusterName;Score
type SortBy string

const (
	// SortByClusterName orders decisions by the names of the clusters.
	SortByClusterName SortBy = "ClusterName"
	// SortByScore orders decisions by the scores of the clusters, highest first.
	SortByScore SortBy = "Score"
)

// ClusterPredicate says which clusters match.
type ClusterPredicate struct {
	// requiredClusterSelector matches clusters. Those that cease to match are deselected.
	// +optional
	RequiredClusterSelector ClusterSelector `json:"requiredClusterSelector,omitempty,omitzero"`
}

// ClusterSelector matches clusters by labels, claims and CEL. All that is set must match; an empty selector matches
// every cluster.
type ClusterSelector struct {
	// labelSelector matches the labels of the ManagedCluster.
	// +optional
	LabelSelector metav1.LabelSelector `json:"labelSelector,omitempty,omitzero"`

	// claimSelector matches status.clusterClaims of the ManagedCluster.
	// +optional
	ClaimSelector ClusterClaimSelector `json:"claimSelector,omitempty,omitzero"`

	// celSelector matches anything of the ManagedCluster.
	// +optional
	CelSelector ClusterCelSelector `json:"celSelector,omitempty,omitzero"`
}

// ClusterClaimSelector matches the claims of a cluster.
type ClusterClaimSelector struct {
	// matchExpressions must all hold: In, NotIn, Exists or DoesNotExist, with the name of the claim as the key.
	// +optional
	MatchExpressions []metav1.LabelSelectorRequirement `json:"matchExpressions,omitempty"`
}

// ClusterCelSelector matches a cluster with CEL.
type ClusterCelSelector struct {
	// celExpressions must all be true. The variable managedCluster is the ManagedCluster;
	// managedCluster.scores("NAME") lists the items of the AddOnPlacementScore NAME of the cluster.
	// +optional
	CelExpressions []string `json:"celExpressions,omitempty"`
}

// PrioritizerPolicy says which clusters come first: each prioritizer scores every cluster, and the scores are summed up
// by weight.
type PrioritizerPolicy struct {
	// mode: Additive adds configurations to the defaults, which are Balance and Steady of weight 1 each; Exact
	// uses configurations alone.
	// +optional
	// +kubebuilder:default=Additive
	Mode PrioritizerPolicyModeType `json:"mode,omitempty"`

	// configurations are the prioritizers and their weights.
	// +optional
	Configurations []PrioritizerConfig `json:"configurations,omitempty"`
}

// PrioritizerPolicyModeType says what happens to the default prioritizers.
type PrioritizerPolicyModeType string

const (
	// PrioritizerPolicyModeAdditive keeps the defaults that are not configured.
	PrioritizerPolicyModeAdditive PrioritizerPolicyModeType = "Additive"
	// PrioritizerPolicyModeExact drops the defaults.
	PrioritizerPolicyModeExact PrioritizerPolicyModeType = "Exact"
)

// PrioritizerConfig is a prioritizer and its weight.
type PrioritizerConfig struct {
	// scoreCoordinate says where the score comes from.
	// +required
	ScoreCoordinate *ScoreCoordinate `json:"scoreCoordinate"`

	// weight of the score, -10 to 10. 0 switches the prioritizer off; a negative weight prefers low scores.
	// +optional
	// +kubebuilder:default=1
	// +kubebuilder:validation:Minimum=-10
	// +kubebuilder:validation:Maximum=10
	Weight int32 `json:"weight"`
}

// ScoreCoordinate says where a score comes from.
type ScoreCoordinate struct {
	// type: BuiltIn is a prioritizer of the hub, AddOn is an AddOnPlacementScore.
	// +optional
	// +kubebuilder:default=BuiltIn
	Type ScoreCoordinateType `json:"type,omitempty"`

	// builtIn is the prioritizer of type BuiltIn: Balance, Steady, ResourceAllocatableCPU or
	// ResourceAllocatableMemory.
	// +optional
	BuiltIn string `json:"builtIn,omitempty"`

	// addOn is the score of type AddOn.
	// +optional
	AddOn *AddOnScore `json:"addOn,omitempty"`
}

// ScoreCoordinateType is where a score comes from.
//
// +kubebuilder:validation:Enum=BuiltIn;AddOn
type ScoreCoordinateType string

const (
	// ScoreCoordinateTypeBuiltIn is a prioritizer of the hub.
	ScoreCoordinateTypeBuiltIn ScoreCoordinateType = "BuiltIn"
	// ScoreCoordinateTypeAddOn is an AddOnPlacementScore.
	ScoreCoordinateTypeAddOn ScoreCoordinateType = "AddOn"
)

// Prioritizers of type BuiltIn. Scores are -100 to 100.
const (
	// PrioritizerBalance prefers clusters that other placements have selected less often.
	PrioritizerBalance = "Balance"
	// PrioritizerSteady prefers clusters that this placement has already selected.
	PrioritizerSteady = "Steady"
	// PrioritizerResourceAllocatableCPU prefers clusters with more allocatable CPU.
	PrioritizerResourceAllocatableCPU = "ResourceAllocatableCPU"
	// PrioritizerResourceAllocatableMemory prefers clusters with more allocatable memory.
	PrioritizerResourceAllocatableMemory = "ResourceAllocatableMemory"
)

// AddOnScore is one item of an AddOnPlacementScore.
type AddOnScore struct {
	// resourceName is the name of the AddOnPlacementScore in the namespace of each cluster.
	// +required
	ResourceName string `json:"resourceName"`

	// scoreName is the name of the item.
	// +required
	ScoreName string `json:"scoreName"`
}

// Toleration is a taint that does not matter. It tolerates the taints that key, operator, value and effect match.
type Toleration struct {
	// key of the taints. Empty means all keys; then operator must be Exists.
	// +optional
	// +kubebuilder:validation:Pattern=`^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])$`
	// +kubebuilder:validation:MaxLength=316
	Key string `json:"key,omitempty"`

	// operator: Equal compares value with that of the taint, Exists matches any value.
	// +optional
	// +kubebuilder:default=Equal
	Operator TolerationOperator `json:"operator,omitempty"`

	// value of the taints, for the operator Equal.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	Value string `json:"value,omitempty"`

	// effect of the taints: NoSelect, PreferNoSelect or NoSelectIfNew. Empty means all effects.
	// +optional
	Effect clusterv1.TaintEffect `json:"effect,omitempty"`

	// tolerationSeconds is how long, in seconds from when the taint was added, it is tolerated. Empty means for
	// ever.
	// +optional
	TolerationSeconds *int64 `json:"tolerationSeconds,omitempty"`
}

// TolerationOperator is how a toleration compares values.
type TolerationOperator string

const (
	// TolerationOpExists matches any value.
	TolerationOpExists TolerationOperator = "Exists"
	// TolerationOpEqual matches one value.
	TolerationOpEqual TolerationOperator = "Equal"
)

// DecisionStrategy divides the selected clusters.
type DecisionStrategy struct {
	// groupStrategy divides the selected clusters into decision groups.
	// +optional
	GroupStrategy GroupStrategy `json:"groupStrategy,omitempty,omitzero"`
}

// GroupStrategy divides the selected clusters into decision groups: first the named ones, then groups of equal size of
// the rest.
type GroupStrategy struct {
	// decisionGroups are the named groups. A cluster goes to the first one that matches it.
	// +optional
	DecisionGroups []DecisionGroup `json:"decisionGroups,omitempty"`

	// clustersPerDecisionGroup is how many clusters a group holds at most: a number, or a percentage of the
	// selected clusters, rounded up. Named groups with more are divided, too.
	// +optional
	// +kubebuilder:default="100%"
	// +kubebuilder:validation:XIntOrString
	// +kubebuilder:validation:Pattern=`^((100|[1-9][0-9]{0,1})%|[1-9][0-9]*)$`
	ClustersPerDecisionGroup intstr.IntOrString `json:"clustersPerDecisionGroup,omitempty,omitzero"`
}

// DecisionGroup is a named group of clusters.
type DecisionGroup struct {
	// groupName names the group, 2 to 63 characters.
	// +required
	// +kubebuilder:validation:Pattern=`^[a-zA-Z0-9][-A-Za-z0-9_.]{0,61}[a-zA-Z0-9]$`
	GroupName string `json:"groupName"`

	// groupClusterSelector matches the clusters of the group.
	// +required
	ClusterSelector GroupClusterSelector `json:"groupClusterSelector"`
}

// GroupClusterSelector matches clusters by labels and claims. All that is set must match.
type GroupClusterSelector struct {
	// labelSelector matches the labels of the ManagedCluster.
	// +optional
	LabelSelector metav1.LabelSelector `json:"labelSelector,omitempty,omitzero"`

	// claimSelector matches status.clusterClaims of the ManagedCluster.
	// +optional
	ClaimSelector ClusterClaimSelector `json:"claimSelector,omitempty,omitzero"`
}

// PlacementStatus sums up a selection.
type PlacementStatus struct {
	// numberOfSelectedClusters is how many clusters are selected.
	// +optional
	NumberOfSelectedClusters int32 `json:"numberOfSelectedClusters"`

	// decisionGroups are the groups of the selected clusters, and the PlacementDecisions that list them.
	// +optional
	DecisionGroups []DecisionGroupStatus `json:"decisionGroups,omitempty"`

	// conditions: PlacementSatisfied is True when all the clusters asked for are selected,
	// PlacementMisconfigured when the spec makes no sense.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// lastScoreUpdateTime is when the scores in the decisions were last updated; the next update comes
	// scoreRateLimit later at the earliest.
	// +optional
	LastScoreUpdateTime *metav1.Time `json:"lastScoreUpdateTime,omitempty"`
}

// DecisionGroupStatus is one group of the selected clusters.
type DecisionGroupStatus struct {
	// decisionGroupIndex is the index of the group, from 0.
	// +optional
	DecisionGroupIndex int32 `json:"decisionGroupIndex"`

	// decisionGroupName is the name of the group; empty when it has none.
	// +optional
	DecisionGroupName string `json:"decisionGroupName"`

	// decisions are the names of the PlacementDecisions of the group.
	// +optional
	Decisions []string `json:"decisions,omitempty"`

	// clusterCount is how many clusters the group has.
	// +optional
	// +kubebuilder:default=0
	ClustersCount int32 `json:"clusterCount"`
}

// PlacementList is a list of placements.
//
// +kubebuilder:object:root=true
type PlacementList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []Placement `json:"items"`
}
