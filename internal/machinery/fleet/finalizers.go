package fleet

// Finalizers. Each is removed by the component that set it, once its purpose is fulfilled.
const (
	// FinalizerManagedCluster on a ManagedCluster keeps it until the access of its agent is removed.
	FinalizerManagedCluster = "cluster.open-cluster-management.io/api-resource-cleanup"
	// FinalizerResourceCleanup on a ManagedCluster keeps it until its add-ons and works are gone.
	FinalizerResourceCleanup = "cluster.open-cluster-management.io/resource-cleanup"
	// FinalizerAWSAccess on a ManagedCluster keeps it until its role and its access entry are gone from AWS. It is an extension.
	FinalizerAWSAccess = "capstan.io/aws-access"
	// FinalizerManifestWorkCleanup on a ManifestWork keeps it until the agent has deleted its objects. On the
	// RoleBinding for the works of a cluster it keeps the agent able to do so.
	FinalizerManifestWorkCleanup = "cluster.open-cluster-management.io/manifest-work-cleanup"
	// FinalizerAppliedManifestWorkCleanup on an AppliedManifestWork keeps it until its objects are gone.
	FinalizerAppliedManifestWorkCleanup = "cluster.open-cluster-management.io/applied-manifest-work-cleanup"
	// FinalizerManifestWorkReplicaSetCleanup on a ManifestWorkReplicaSet keeps it until its works are gone.
	FinalizerManifestWorkReplicaSetCleanup = "work.open-cluster-management.io/manifest-work-cleanup"
	// FinalizerClusterManagerCleanup on a ClusterManager keeps it until the hub is uninstalled.
	FinalizerClusterManagerCleanup = "operator.open-cluster-management.io/cluster-manager-cleanup"
	// FinalizerKlusterletCleanup on a Klusterlet keeps it until the agent is uninstalled.
	FinalizerKlusterletCleanup = "operator.open-cluster-management.io/klusterlet-cleanup"
	// FinalizerKlusterletHostedCleanup does the same for an agent that runs on another cluster.
	FinalizerKlusterletHostedCleanup = "operator.open-cluster-management.io/klusterlet-hosted-cleanup"
	// FinalizerAddOnPreDelete on a ManagedClusterAddOn keeps it until its pre-delete hooks are done.
	FinalizerAddOnPreDelete = "addon.open-cluster-management.io/addon-pre-delete"
	// FinalizerHostingAddOnPreDelete does the same for hooks on the hosting cluster.
	FinalizerHostingAddOnPreDelete = "addon.open-cluster-management.io/hosting-addon-pre-delete"
	// FinalizerHostingManifestsCleanup on a ManagedClusterAddOn keeps it until its manifests are gone from the
	// hosting cluster.
	FinalizerHostingManifestsCleanup = "addon.open-cluster-management.io/hosting-manifests-cleanup"
)

// AgentFinalizers is part of the name of every finalizer that agents, and the controllers that work with them, put on what the hub has for
// a cluster.
const AgentFinalizers = ".open-cluster-management.io/"

// Finalizers that older add-ons set. They are recognised and removed like their successors, never set.
const (
	// DeprecatedFinalizerAddOnPreDelete is the predecessor of FinalizerAddOnPreDelete.
	DeprecatedFinalizerAddOnPreDelete = "cluster.open-cluster-management.io/addon-pre-delete"
	// DeprecatedFinalizerHostingAddOnPreDelete is the predecessor of FinalizerHostingAddOnPreDelete.
	DeprecatedFinalizerHostingAddOnPreDelete = "cluster.open-cluster-management.io/hosting-addon-pre-delete"
	// DeprecatedFinalizerHostingManifestsCleanup is the predecessor of FinalizerHostingManifestsCleanup.
	DeprecatedFinalizerHostingManifestsCleanup = "cluster.open-cluster-management.io/hosting-manifests-cleanup"
)
