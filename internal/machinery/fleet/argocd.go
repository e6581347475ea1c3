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

// AnnotationDepartedAt on such a Secret is when its cluster left the decisions, while Applications keep the Secret. It is an extension.
const AnnotationDepartedAt = "capstan.io/departed-at"

// AnnotationSkipArgoVerify has the hub not check, when it is "true" on a GitOpsCluster, whether there is an Argo CD in the namespace.
const AnnotationSkipArgoVerify = "skipArgoNamespaceVerify"

// ManagedServiceAccountArgo is the name of the ManagedServiceAccounts as which Argo CD deploys, unless the GitOpsCluster has another.
const ManagedServiceAccountArgo = "application-manager"

// Labels and annotations of Applications that clusters pull.
const (
	// LabelArgoPull, when LabelTrue, has the hub bring an Application to the cluster in AnnotationArgoCluster. It is on its work, too.
	LabelArgoPull = "apps.open-cluster-management.io/pull-to-ocm-managed-cluster"
	// AnnotationArgoCluster is the ManagedCluster that an Application is for.
	AnnotationArgoCluster = "apps.open-cluster-management.io/ocm-managed-cluster"
	// AnnotationArgoNamespace is the namespace of an Application on the cluster.
	AnnotationArgoNamespace = "apps.open-cluster-management.io/ocm-managed-cluster-app-namespace"
	// AnnotationArgoHubNamespace on a work is the namespace of its Application on the hub.
	AnnotationArgoHubNamespace = "apps.open-cluster-management.io/hub-application-namespace"
	// AnnotationArgoHubName on a work is the name of its Application on the hub.
	AnnotationArgoHubName = "apps.open-cluster-management.io/hub-application-name"
	// AnnotationArgoSet on a work is the ApplicationSet of its Application, as namespace/name.
	AnnotationArgoSet = "apps.open-cluster-management.io/hosting-applicationset"
	// LabelArgoSet, when LabelTrue, says that a work is of an ApplicationSet, and that the hub made a report.
	LabelArgoSet = "apps.open-cluster-management.io/application-set"
	// LabelArgoSetHash on a work is the SHA-1 of AnnotationArgoSet.
	LabelArgoSetHash = "apps.open-cluster-management.io/application-set-hash"
	// AnnotationArgoSkip, when LabelTrue, has the Argo CD of the hub leave an Application alone.
	AnnotationArgoSkip = "argocd.argoproj.io/skip-reconcile"
)

// LabelLocalCluster says, when it is LabelTrue on a ManagedCluster, that it is the hub itself.
const LabelLocalCluster = "local-cluster"
