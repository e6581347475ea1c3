// Package decided says what the PlacementDecisions of a Placement tell: whether they are all that it selects, and which of their clusters
// count. The controllers of the hub and the command line, which act on them, have the same rules.
package decided

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/labels"

	clusterv1 "github.com/capstan-io/capstan/api/cluster/v1"
	clusterv1beta1 "github.com/capstan-io/capstan/api/cluster/v1beta1"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
	"github.com/capstan-io/capstan/internal/machinery/managedcluster"
	"github.com/capstan-io/capstan/internal/machinery/text"
)

// All reports whether the decisions of a placement tell all that it selects. A scheduler writes a decision even if it selects nothing,
// and its status after the object: until then the decision tells nothing. As the scheduler of Open Cluster Management leaves out the
// status of a decision without clusters, such a one counts if the others list as many clusters as the placement says that it selects.
func All(placement *clusterv1beta1.Placement, decisions []clusterv1beta1.PlacementDecision) bool {
	listed, complete := 0, len(decisions) > 0
	for i := range decisions {
		listed += len(decisions[i].Status.Decisions)
		complete = complete && decisions[i].Status.Decisions != nil
	}
	return complete || len(decisions) > 0 && Scheduled(placement) && listed >= int(placement.Status.NumberOfSelectedClusters)
}

// Scheduled reports whether the status of a placement was written.
func Scheduled(placement *clusterv1beta1.Placement) bool {
	return meta.FindStatusCondition(placement.Status.Conditions, fleet.ConditionPlacementSatisfied) != nil
}

const (
	// beingAccepted is the reason for a cluster that keeps what it has meanwhile.
	beingAccepted = "it is accepted, and the hub is about to set it up"
	beingDeleted  = "it is being deleted"
	gone          = "there is no such ManagedCluster"
)

// WhyPassedOver returns why a cluster in a decision does not count, empty if it does. sets select the members of the ManagedClusterSets
// with a binding in the namespace of the decision. A nil cluster does not exist.
func WhyPassedOver(cluster *clusterv1.ManagedCluster, namespace string, sets []labels.Selector) string {
	switch {
	case cluster == nil:
		return gone
	case !slices.ContainsFunc(sets, func(set labels.Selector) bool { return set.Matches(labels.Set(cluster.Labels)) }):
		return fmt.Sprintf("it is in no ManagedClusterSet with a ManagedClusterSetBinding in namespace %s", namespace)
	case !cluster.DeletionTimestamp.IsZero():
		return beingDeleted
	case managedcluster.Denied(cluster):
		return "it is denied"
	case managedcluster.BeingAccepted(cluster):
		return beingAccepted
	case !managedcluster.Accepted(cluster):
		return "it is not accepted yet"
	}
	return ""
}

// PassedOver has the clusters of decisions that do not count, with the reasons.
type PassedOver map[string]string

// Keeps reports whether a cluster is passed over for a moment only, so that nothing new comes to it and nothing that it has goes.
func (p PassedOver) Keeps(cluster string) bool { return p[cluster] == beingAccepted }

// Lasting are those that are passed over until somebody changes that: neither those that the hub is about to set up, nor those that are
// gone or going, which decisions name until a scheduler has written them again.
func (p PassedOver) Lasting() PassedOver {
	lasting := maps.Clone(p)
	maps.DeleteFunc(lasting, func(_, reason string) bool {
		return reason == beingAccepted || reason == beingDeleted || reason == gone
	})
	return lasting
}

// String lists the clusters and reasons; it is empty if there are none.
func (p PassedOver) String() string {
	if len(p) == 0 {
		return ""
	}
	by := map[string][]string{}
	for cluster, reason := range p {
		by[reason] = append(by[reason], cluster)
	}
	texts := make([]string, 0, len(by))
	for reason, clusters := range by {
		slices.Sort(clusters)
		texts = append(texts, fmt.Sprintf("%s (%s)", text.FirstFew(clusters), reason))
	}
	slices.Sort(texts)
	return fmt.Sprintf("%s of its decisions passed over: %s", text.Count(len(p), "cluster"), strings.Join(texts, ", "))
}
