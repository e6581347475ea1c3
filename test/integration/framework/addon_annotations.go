package framework

// PreDelete is the annotation of hooks that run before the rest is deleted.
const (
	PreDelete       = "addon.open-cluster-management.io/addon-pre-delete"
	HostedLocation  = "addon.open-cluster-management.io/hosted-manifest-location"
	HostingCluster  = "addon.open-cluster-management.io/hosting-cluster-name"
	DeletionOrphan  = "addon.open-cluster-management.io/deletion-orphan"
	PreDeleteHooks  = "HookManifestCompleted"
	HookTimeout     = "capstan.io/pre-delete-timeout"
	HooksUnfinished = "HookManifestIsNotCompleted"
)
