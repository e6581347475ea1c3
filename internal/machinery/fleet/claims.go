package fleet

// Claims with a meaning of their own. They are always exposed on the hub, ahead of all others.
const (
	// ClaimID is the identity of the cluster, unique for all time.
	ClaimID = "id.k8s.io"
	// ClaimKubeVersion is the version of Kubernetes.
	ClaimKubeVersion = "kubeversion.open-cluster-management.io"
	// ClaimPlatform is where the cluster runs, such as AWS.
	ClaimPlatform = "platform.open-cluster-management.io"
	// ClaimProduct is what the cluster is, such as EKS.
	ClaimProduct = "product.open-cluster-management.io"
)

// ReservedClaims are the claims that are always exposed on the hub.
func ReservedClaims() []string {
	return []string{ClaimID, ClaimKubeVersion, ClaimPlatform, ClaimProduct}
}
