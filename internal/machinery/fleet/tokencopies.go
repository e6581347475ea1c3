package fleet

import (
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// KindClusterProfile is the kind of ClusterProfiles, in the group of the Kubernetes SIG Multicluster.
const (
	KindClusterProfile  = "ClusterProfile"
	groupClusterProfile = "multicluster.x-k8s.io"
)

// TokenCopyName is the name of the copies of the token of a ManagedServiceAccount next to the ClusterProfiles of its cluster. Accounts of
// two clusters may have the same, such as b-c of cluster a, and c of cluster a-b: TokenCopyCluster tells them apart.
func TokenCopyName(cluster, account string) string { return cluster + "-" + account }

// TokenCopyCluster is the cluster of such a copy: the name of the ClusterProfile that owns it. It is empty for what is no copy.
func TokenCopyCluster(secret metav1.Object) string {
	if secret.GetLabels()[LabelSyncedFrom] != secret.GetName() {
		return ""
	}
	for _, owner := range secret.GetOwnerReferences() {
		version, err := schema.ParseGroupVersion(owner.APIVersion)
		if err == nil && version.Group == groupClusterProfile && owner.Kind == KindClusterProfile &&
			strings.HasPrefix(secret.GetName(), TokenCopyName(owner.Name, "")) {
			return owner.Name
		}
	}
	return ""
}
