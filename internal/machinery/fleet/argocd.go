package fleet

// Labels of the Secrets by which an Argo CD knows clusters.
const (
	// LabelArgoSecretType, when ArgoSecretTypeCluster, marks such a Secret for Argo CD.
	LabelArgoSecretType = "argocd.argoproj.io/secret-type"
	// ArgoSecretTypeCluster is the value of LabelArgoSecretType on the Secrets of clusters.
	ArgoSecretTypeCluster = "cluster"
	// LabelArgoImported, when LabelTrue, says that the hub made the Secret.
	LabelArgoImported = "apps.open-cluster-management.io/acm-cluster"
	// LabelArgoClusterName is the name of the ManagedCluster.
	LabelArgoClusterName = "apps.open-cluster-management.io/cluster-name"
	// LabelArgoClusterServer is the host at which Argo CD reaches the cluster, or the beginning of a long one.
	LabelArgoClusterServer = "apps.open-cluster-management.io/cluster-server"
	// LabelBackup marks what a backup of a hub has.
	LabelBackup = "cluster.open-cluster-management.io/backup"
)

// AnnotationGitOpsCluster on such a Secret is the GitOpsCluster that it was made for, as namespace/name. It is an extension.
const AnnotationGitOpsCluster = "capstan.io/gitopscluster"

// AnnotationSkipArgoVerify has the hub not look, when it is "true" on a GitOpsCluster, for an Argo CD in the namespace.
const AnnotationSkipArgoVerify = "skipArgoNamespaceVerify"

// ManagedServiceAccountArgo is the name of the ManagedServiceAccounts as which Argo CD deploys, unless the GitOpsCluster has another.
const ManagedServiceAccountArgo = "application-manager"
