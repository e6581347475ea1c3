package clusterprofile

import (
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	clusterv1 "github.com/capstan-io/capstan/api/cluster/v1"
	multiclusterv1alpha1 "github.com/capstan-io/capstan/api/multicluster/v1alpha1"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
	"github.com/capstan-io/capstan/internal/machinery/predicates"
)

// Names in the SIG's API.
const (
	clusterManager               = fleet.ClusterManagerOfProfiles
	labelClusterManager          = "x-k8s.io/cluster-manager"
	labelClusterSet              = "multicluster.x-k8s.io/clusterset"
	labelInventoryMemberID       = "multicluster.x-k8s.io/inventory-member-id"
	conditionControlPlaneHealthy = "ControlPlaneHealthy"
	conditionJoined              = "Joined"
)

// present sets the fields of the profile, except its status, from the cluster.
func present(profile *multiclusterv1alpha1.ClusterProfile, cluster *clusterv1.ManagedCluster) {
	metav1.SetMetaDataLabel(&profile.ObjectMeta, labelClusterManager, clusterManager)
	metav1.SetMetaDataLabel(&profile.ObjectMeta, fleet.LabelClusterName, cluster.Name)
	metav1.SetMetaDataLabel(&profile.ObjectMeta, labelInventoryMemberID, cluster.Name)
	if set := cluster.Labels[fleet.LabelClusterSet]; set != "" {
		metav1.SetMetaDataLabel(&profile.ObjectMeta, labelClusterSet, set)
	} else {
		delete(profile.Labels, labelClusterSet)
	}
	profile.Spec.DisplayName = cluster.Name
	profile.Spec.ClusterManager.Name = clusterManager
}

// presentStatus sets the status of the profile from the cluster. The access providers in it are set by add-ons.
func presentStatus(profile *multiclusterv1alpha1.ClusterProfile, cluster *clusterv1.ManagedCluster) {
	profile.Status.Version.Kubernetes = cluster.Status.Version.Kubernetes
	profile.Status.Properties = properties(cluster.Status.ClusterClaims)
	translate(profile, cluster, fleet.ConditionClusterAvailable, conditionControlPlaneHealthy)
	translate(profile, cluster, fleet.ConditionJoined, conditionJoined)
}

// properties returns the claims that a profile may have: those with a name and a value, the first of each name. A ManagedCluster may have
// others, and a profile with one of these would be refused.
func properties(claims []clusterv1.ManagedClusterClaim) (all []multiclusterv1alpha1.Property) {
	seen := map[string]bool{}
	for _, claim := range claims {
		if claim.Name == "" || claim.Value == "" || seen[claim.Name] {
			continue
		}
		seen[claim.Name] = true
		all = append(all, multiclusterv1alpha1.Property{Name: claim.Name, Value: claim.Value})
	}
	return all
}

// translate copies a condition under another type. A missing condition becomes Unknown.
func translate(profile *multiclusterv1alpha1.ClusterProfile, cluster *clusterv1.ManagedCluster, from, to string) {
	cond := metav1.Condition{Type: to, Status: metav1.ConditionUnknown, Reason: "NotReported", Message: "The cluster has not reported it yet"}
	cond.LastTransitionTime = cluster.CreationTimestamp
	if condition := meta.FindStatusCondition(cluster.Status.Conditions, from); condition != nil {
		cond.Status, cond.Reason, cond.Message = condition.Status, condition.Reason, condition.Message
		cond.LastTransitionTime = condition.LastTransitionTime
	}
	meta.SetStatusCondition(&profile.Status.Conditions, cond)
}

// presentedChanged matches changes of clusters that affect the content or the namespaces of their profiles.
func presentedChanged() predicate.Predicate {
	presented := func(o client.Object) *multiclusterv1alpha1.ClusterProfile {
		profile := &multiclusterv1alpha1.ClusterProfile{}
		if cluster, ok := o.(*clusterv1.ManagedCluster); ok {
			present(profile, cluster)
			presentStatus(profile, cluster)
		}
		return profile
	}
	return predicate.Or(predicates.Recreated(), predicate.Predicate(predicate.LabelChangedPredicate{}), predicate.Funcs{
		UpdateFunc: func(e event.UpdateEvent) bool {
			return e.ObjectOld.GetDeletionTimestamp().IsZero() != e.ObjectNew.GetDeletionTimestamp().IsZero() ||
				!equality.Semantic.DeepEqual(presented(e.ObjectOld), presented(e.ObjectNew))
		},
	})
}
