// Package report is how a hub says over the wire why a placement selects what it does, for the hub, which writes it,
// and those who read it.
package report

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	clusterv1beta1 "github.com/capstan-io/capstan/api/cluster/v1beta1"
)

// Path is where a standalone hub serves reports: GET below it, with the namespace and the name of a saved Placement, POST
// of an unsaved one to it.
const Path = "/debug/placements/"

// Report is why a placement selects what it does.
type Report struct {
	// Placement as the hub sees it, with all defaults.
	Placement *clusterv1beta1.Placement `json:"placement,omitempty"`
	// FilteredPipelineResults are the clusters left after the first filter, after the first two, and so on.
	FilteredPipelineResults []FilterResult `json:"filteredPipelineResults,omitempty"`
	// PrioritizeResults are the scores of the candidates, by prioritizer.
	PrioritizeResults []PrioritizerResult `json:"prioritizeResults,omitempty"`
	// AggregatedScores sums them up by weight, the best first.
	AggregatedScores []ClusterScore `json:"aggregatedScores,omitempty"`
	// Error says why the placement makes no sense; empty when it does.
	Error string `json:"error,omitempty"`

	// Funnel is how the number of clusters came down to those selected.
	Funnel Funnel `json:"funnel"`
	// Conditions are what the status of the Placement says, or would say.
	Conditions []metav1.Condition `json:"conditions,omitempty"`
	// Disabled says that an annotation of the Placement keeps its decisions as they are, whatever the rest of this says.
	Disabled bool `json:"disabled,omitempty"`
	// Clusters are selected, or not, for a reason; by name. Those outside of the cluster sets are listed to whoever may list
	// all clusters.
	Clusters []ClusterReason `json:"clusters,omitempty"`
}

// FilterResult is what filters leave.
type FilterResult struct {
	// Name lists the filters so far, separated by commas.
	Name string `json:"name"`
	// FilteredClusters are the clusters that are left, by name.
	FilteredClusters []string `json:"filteredClusters"`
}

// PrioritizerResult is what one prioritizer says of the candidates.
type PrioritizerResult struct {
	Name   string `json:"name"`
	Weight int64  `json:"weight"`
	// Scores by cluster, before they are weighted.
	Scores map[string]int64 `json:"scores"`
	// Expired are the clusters that score 0 because the validUntil of an AddOnPlacementScore has passed, by name.
	Expired []string `json:"expired,omitempty"`
}

// ClusterScore is the weighted sum of the scores of a cluster.
type ClusterScore struct {
	ClusterName string `json:"clusterName"`
	Score       int64  `json:"score"`
}

// Funnel counts clusters.
type Funnel struct {
	// Fleet is all ManagedClusters; 0 for those who may not list all of them.
	Fleet int `json:"fleet,omitempty"`
	// InClusterSets of those, are in the cluster sets that are bound and wanted.
	InClusterSets int `json:"inClusterSets"`
	// Matched of those, meet the predicates.
	Matched int `json:"matched"`
	// Tolerated of those, have no taint in the way: the candidates.
	Tolerated int `json:"tolerated"`
	// Selected of those.
	Selected int `json:"selected"`
}

// ClusterReason is why a cluster is selected, or the first reason why not.
type ClusterReason struct {
	ClusterName string `json:"clusterName"`
	Selected    bool   `json:"selected"`
	Reason      string `json:"reason"`
}
