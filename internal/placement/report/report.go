// Package report has the types of the debug endpoint for placements, which says why a placement selects what it selects. The hub writes
// them, and the command line reads them.
package report

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	clusterv1beta1 "github.com/capstan-io/capstan/api/cluster/v1beta1"
)

// Path is the path of the endpoint: GET Path + NAMESPACE/NAME returns the report of an existing Placement, POST to Path with a Placement
// the report of one that does not exist.
const Path = "/debug/placements/"

// Report is why a placement selects what it selects.
type Report struct {
	// Placement is the Placement with all defaults.
	Placement *clusterv1beta1.Placement `json:"placement,omitempty"`
	// FilteredPipelineResults are the clusters that are left after the first filter, after the first two, and so on.
	FilteredPipelineResults []FilterResult `json:"filteredPipelineResults,omitempty"`
	// PrioritizeResults are the scores of the candidates by each prioritizer.
	PrioritizeResults []PrioritizerResult `json:"prioritizeResults,omitempty"`
	// AggregatedScores are the weighted sums of these, the highest first.
	AggregatedScores []ClusterScore `json:"aggregatedScores,omitempty"`
	// Error says what is invalid in the placement; empty when it is valid.
	Error string `json:"error,omitempty"`

	// Funnel counts the clusters that are left after each step of the selection. It is nil in a report of a hub that is not of Capstan, which
	// has none of the fields below either.
	Funnel *Funnel `json:"funnel,omitempty"`
	// Conditions of the Placement, or those that it would have.
	Conditions []metav1.Condition `json:"conditions,omitempty"`
	// Disabled says that an annotation disables the scheduling of the Placement: its decisions stay as they are.
	Disabled bool `json:"disabled,omitempty"`
	// Clusters has the reasons why clusters are selected or not, sorted by name. Clusters outside of the cluster sets are only
	// included for users who may list all clusters.
	Clusters []ClusterReason `json:"clusters,omitempty"`
}

// FilterResult is what filters leave.
type FilterResult struct {
	// Name lists the filters so far, separated by commas.
	Name string `json:"name"`
	// FilteredClusters are the clusters that are left, sorted by name.
	FilteredClusters []string `json:"filteredClusters"`
}

// PrioritizerResult is the scores of the candidates by one prioritizer.
type PrioritizerResult struct {
	Name   string `json:"name"`
	Weight int64  `json:"weight"`
	// Scores by name of the cluster, without the weight.
	Scores map[string]int64 `json:"scores"`
	// Expired are the clusters with the score 0 because the validUntil of an AddOnPlacementScore has passed, sorted by name.
	Expired []string `json:"expired,omitempty"`
}

// ClusterScore is the weighted sum of the scores of a cluster.
type ClusterScore struct {
	ClusterName string `json:"clusterName"`
	Score       int64  `json:"score"`
}

// Funnel counts clusters.
type Funnel struct {
	// Fleet is the number of ManagedClusters; 0 for users who may not list them.
	Fleet int `json:"fleet,omitempty"`
	// InClusterSets is how many are in the cluster sets that the placement selects from.
	InClusterSets int `json:"inClusterSets"`
	// Matched is how many of these match the predicates.
	Matched int `json:"matched"`
	// Tolerated is how many of these have no taint that keeps them out: the candidates.
	Tolerated int `json:"tolerated"`
	// Selected is how many of these are selected.
	Selected int `json:"selected"`
}

// ClusterReason is why a cluster is selected, or the first reason why it is not.
type ClusterReason struct {
	ClusterName string `json:"clusterName"`
	Selected    bool   `json:"selected"`
	Reason      string `json:"reason"`
}
