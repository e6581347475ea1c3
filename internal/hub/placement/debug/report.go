package debug

import (
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	clusterv1beta1 "github.com/capstan-io/capstan/api/cluster/v1beta1"
	scheduler "github.com/capstan-io/capstan/internal/placement"
	"github.com/capstan-io/capstan/internal/placement/report"
)

// reportOf makes the report of an explanation. Unless the caller may list all clusters, it leaves out the number of clusters and those
// outside of the cluster sets of the placement.
func reportOf(placement *clusterv1beta1.Placement, e *scheduler.Explanation, listsClusters bool) *report.Report {
	placement.SetGroupVersionKind(clusterv1beta1.GroupVersion.WithKind("Placement"))
	placement.ManagedFields = nil
	funnel := e.Result.Funnel
	funnel.Selected = e.Result.Selected // a misconfigured placement keeps its clusters, although its Funnel has none
	r := &report.Report{
		Placement:         placement,
		PrioritizeResults: e.Prioritizers,
		AggregatedScores:  e.Scores,
		Funnel:            &funnel,
		Disabled:          e.Result.Disabled,
		Conditions:        []metav1.Condition{e.Result.Satisfied, e.Result.ConditionMisconfigured()},
		Clusters:          e.Clusters,
	}
	if e.Result.Misconfigured != nil {
		r.Error = e.Result.Misconfigured.Error()
	}
	var inSets, pipeline []string
	for _, filter := range e.Filters {
		if filter.Name == scheduler.FilterClusterSets {
			inSets = filter.Clusters
			continue
		}
		pipeline = append(pipeline, filter.Name)
		r.FilteredPipelineResults = append(r.FilteredPipelineResults, report.FilterResult{
			Name: strings.Join(pipeline, ","), FilteredClusters: filter.Clusters,
		})
	}
	if !listsClusters {
		funnel.Fleet = 0
		r.Clusters = slices.DeleteFunc(r.Clusters, func(c report.ClusterReason) bool {
			_, inside := slices.BinarySearch(inSets, c.ClusterName)
			return !inside
		})
	}
	return r
}
