package fleet

// Reasons of the events that the hub and the agents write (contract section 12).
const (
	EventManagedClusterAccepted                    = "ManagedClusterAccepted"
	EventManagedClusterDenied                      = "ManagedClusterDenied"
	EventManagedClusterAutoApproved                = "ManagedClusterAutoApproved"
	EventManagedClusterCSRAutoApproved             = "ManagedClusterCSRAutoApproved"
	EventAvailableUnknown                          = "AvailableUnknown"
	EventManagedClusterConditionAvailableUpdated   = "ManagedClusterConditionAvailableUpdated"
	EventManagedClusterClockSyncedConditionUpdated = "ManagedClusterClockSyncedConditionUpdated"
	EventDefaultManagedClusterSetCreated           = "DefaultManagedClusterSetCreated"
	EventDefaultManagedClusterSetSpecRollbacked    = "DefaultManagedClusterSetSpecRollbacked"
	EventGlobalManagedClusterSetCreated            = "GlobalManagedClusterSetCreated"
	EventGlobalManagedClusterSetSpecRollbacked     = "GlobalManagedClusterSetSpecRollbacked"
	EventClusterProfileStatusUpdated               = "ClusterProfileStatusUpdated"
	EventManagedNamespacesUpdated                  = "ManagedNamespacesUpdated"
	EventNamespaceApplied                          = "NamespaceApplied"
	EventNamespaceUnmanaged                        = "NamespaceUnmanaged"
	EventResourceCleanupFail                       = "ResourceCleanupFail"
	EventResourceCleanupCompleted                  = "ResourceCleanupCompleted"
	EventCustomClusterClaimsTruncated              = "CustomClusterClaimsTruncated"
)
