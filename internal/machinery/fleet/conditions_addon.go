package fleet

// Reasons of ConditionAvailable on a ManagedClusterAddOn.
const (
	ReasonAddOnLeaseUpdated       = "ManagedClusterAddOnLeaseUpdated"       // True
	ReasonWorkApplied             = "WorkApplied"                           // True
	ReasonProbeAvailable          = "ProbeAvailable"                        // True
	ReasonAddOnLeaseUpdateStopped = "ManagedClusterAddOnLeaseUpdateStopped" // False
	ReasonWorkApplyFailed         = "WorkApplyFailed"                       // False
	ReasonProbeUnavailable        = "ProbeUnavailable"                      // False
	ReasonWorkNotApplied          = "WorkNotApplied"                        // False or Unknown
	ReasonNoProbeResult           = "NoProbeResult"                         // False or Unknown
	ReasonAddOnLeaseNotFound      = "ManagedClusterAddOnLeaseNotFound"      // Unknown
	ReasonWorkNotFound            = "WorkNotFound"                          // Unknown
)

// Conditions of a ManagedClusterAddOn.
const (
	// ConditionManifestApplied tells whether the manifests of the add-on are on the managed cluster.
	ConditionManifestApplied = "ManifestApplied"
	// ConditionHostingManifestApplied tells the same of the hosting cluster.
	ConditionHostingManifestApplied  = "HostingManifestApplied"
	ReasonAddOnManifestApplied       = "AddonManifestApplied"       // True
	ReasonManifestWorkApplyFailed    = "ManifestWorkApplyFailed"    // False
	ReasonAddOnManifestAppliedFailed = "AddonManifestAppliedFailed" // False

	// ReasonWaitingForDependencies of ConditionManifestApplied: add-ons that it needs are not available. It is an extension.
	ReasonWaitingForDependencies = "WaitingForDependencies" // False

	// ConditionHookManifestCompleted tells whether the pre-delete hooks are done.
	ConditionHookManifestCompleted   = "HookManifestCompleted"
	ReasonHookManifestIsCompleted    = "HookManifestIsCompleted"    // True
	ReasonHookManifestIsNotCompleted = "HookManifestIsNotCompleted" // False

	// ConditionHostingClusterValidity tells whether the hosting cluster is one of this hub.
	ConditionHostingClusterValidity = "HostingClusterValidity"
	ReasonHostingClusterValid       = "HostingClusterValid"   // True
	ReasonHostingClusterInvalid     = "HostingClusterInvalid" // False

	// ConditionRegistrationApplied tells whether the agent of the add-on may register with the hub.
	ConditionRegistrationApplied  = "RegistrationApplied"
	ReasonSetPermissionApplied    = "SetPermissionApplied"    // True
	ReasonNilRegistration         = "NilRegistration"         // True: the add-on does not register
	ReasonSetPermissionFailed     = "SetPermissionFailed"     // False
	ReasonPermissionConfigPending = "PermissionConfigPending" // False

	// ConditionConfigured tells whether the configurations of the add-on are known.
	ConditionConfigured               = "Configured"
	ReasonConfigurationsConfigured    = "ConfigurationsConfigured"    // True
	ReasonConfigurationsNotConfigured = "ConfigurationsNotConfigured" // False

	// ConditionTokenRefreshed tells whether the add-on could renew its token.
	ConditionTokenRefreshed   = "TokenRefreshed"
	ReasonAddOnTokenRefreshed = "AddonTokenRefreshed" // True
	ReasonTokenCreationFailed = "TokenCreationFailed" // False

	// ConditionTokenInfrastructureReady tells whether the service account behind the token exists.
	ConditionTokenInfrastructureReady    = "TokenInfrastructureReady"
	ReasonTokenInfrastructureApplyFailed = "TokenInfrastructureApplyFailed" // False
)

// Reasons of ConditionProgressing on add-ons, besides ReasonProgressing.
const (
	ReasonCompleted                        = "Completed"                        // False
	ReasonFailed                           = "Failed"                           // False
	ReasonConfigurationUnsupported         = "ConfigurationUnsupported"         // False
	ReasonWaitingForCanary                 = "WaitingForCanary"                 // False; reserved: ConditionConfigured tells who waits
	ReasonWaitingForManifestApplied        = "WaitingForManifestApplied"        // False
	ReasonWaitingForHostingManifestApplied = "WaitingForHostingManifestApplied" // False
)
