// Package managedcluster says what a ManagedCluster is to the hub: what the hub has decided about it (nothing yet, that it is accepted, or
// that it is denied), and which ManagedClusterSets it is a member of.
package managedcluster

import (
	"slices"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	clusterv1 "github.com/capstan-io/capstan/api/cluster/v1"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
)

// Accepted reports whether a cluster is accepted and has its namespace and the rights of its agent. A later failure of the hub to update
// these changes nothing.
func Accepted(cluster *clusterv1.ManagedCluster) bool {
	if !cluster.Spec.HubAcceptsClient || fleet.ReservedClusterName(cluster.Name) {
		return false
	}
	condition := meta.FindStatusCondition(cluster.Status.Conditions, fleet.ConditionHubAccepted)
	return condition != nil && (condition.Status == metav1.ConditionTrue || condition.Reason == fleet.ReasonHubClusterAdminAcceptFail)
}

// BeingAccepted reports whether a cluster is accepted, and the hub has not given it what it needs yet. That takes a moment, also after a
// restore of clusters without their status, and is no reason to take away from a cluster what it has.
func BeingAccepted(cluster *clusterv1.ManagedCluster) bool {
	return cluster.Spec.HubAcceptsClient && !fleet.ReservedClusterName(cluster.Name) && !Accepted(cluster)
}

// Denied reports whether a cluster is not accepted because of a decision. The hub sets its finalizer on a cluster before it gives its
// agent any right, and the condition after that, so at least one of them exists, whatever happens in between.
func Denied(cluster *clusterv1.ManagedCluster) bool {
	decided := meta.FindStatusCondition(cluster.Status.Conditions, fleet.ConditionHubAccepted) != nil ||
		slices.Contains(cluster.Finalizers, fleet.FinalizerManagedCluster)
	return decided && !cluster.Spec.HubAcceptsClient
}

// CutOff reports whether a cluster is denied with no rights left to its agent and its add-ons. A cluster that is accepted again is not
// cut off, even while it has the label.
func CutOff(cluster *clusterv1.ManagedCluster) bool {
	return cluster.Labels[fleet.LabelCutOff] == fleet.LabelTrue && !cluster.Spec.HubAcceptsClient
}

// ActedOn reports whether the hub creates anything new for a cluster by itself: it is accepted and not being deleted.
func ActedOn(cluster *clusterv1.ManagedCluster) bool {
	return Accepted(cluster) && cluster.DeletionTimestamp.IsZero()
}
