package fleet

// Reasons of ConditionAvailable on a ManagedClusterAddOn.
const (
	ReasonBuiltInRunning          = "BuiltInRunning"                        // True; of add-ons that are built in, an extension
	ReasonBuiltInFailed           = "BuiltInFailed"                         // False; the same
	ReasonBuiltInNeedsAPI         = "BuiltInNeedsAPI"                       // False; the same, where the agent reaches the hub by gRPC
	ReasonBuiltInSwitchedOff      = "BuiltInSwitchedOff"                    // False; the same, without its feature gate of the agent
	ReasonBuiltInStarting         = "BuiltInStarting"                       // Unknown; the same
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

	// Those of the built-in add-on AddOnClusterProxy are an extension.
	ReasonTunnelConnected       = "TunnelConnected"       // True
	ReasonTunnelNotConnected    = "TunnelNotConnected"    // False
	ReasonHubAccessRulesInvalid = "HubAccessRulesInvalid" // False
)

// Conditions of a ManagedClusterAddOn.
const (
	// ConditionManifestApplied reports whether the manifests of the add-on are on the managed cluster.
	ConditionManifestApplied = "ManifestApplied"
	// ConditionHostingManifestApplied says the same of the hosting cluster.
	ConditionHostingManifestApplied  = "HostingManifestApplied"
	ReasonAddOnManifestApplied       = "AddonManifestApplied"       // True
	ReasonManifestWorkApplyFailed    = "ManifestWorkApplyFailed"    // False
	ReasonAddOnManifestAppliedFailed = "AddonManifestAppliedFailed" // False

	// ReasonAddOnNothingToApply of both: the cluster is to have nothing of the add-on. It is an extension.
	ReasonAddOnNothingToApply = "AddonNothingToApply" // True

	// ReasonWaitingForDependencies of ConditionManifestApplied: add-ons that it needs are not available. It is an extension.
	ReasonWaitingForDependencies = "WaitingForDependencies" // False

	// ConditionHookManifestCompleted reports whether the pre-delete hooks are done.
	ConditionHookManifestCompleted   = "HookManifestCompleted"
	ReasonHookManifestIsCompleted    = "HookManifestIsCompleted"    // True
	ReasonHookManifestIsNotCompleted = "HookManifestIsNotCompleted" // False

	// ConditionHostingClusterValidity reports whether the hosting cluster is one of this hub.
	ConditionHostingClusterValidity = "HostingClusterValidity"
	ReasonHostingClusterValid       = "HostingClusterValid"   // True
	ReasonHostingClusterInvalid     = "HostingClusterInvalid" // False

	// ConditionRegistrationApplied reports whether the agent of the add-on may register with the hub.
	ConditionRegistrationApplied  = "RegistrationApplied"
	ReasonSetPermissionApplied    = "SetPermissionApplied"    // True
	ReasonNilRegistration         = "NilRegistration"         // True: the add-on does not register
	ReasonSetPermissionFailed     = "SetPermissionFailed"     // False
	ReasonPermissionConfigPending = "PermissionConfigPending" // False

	// ConditionConfigured reports whether the configurations of the add-on are known.
	ConditionConfigured               = "Configured"
	ReasonConfigurationsConfigured    = "ConfigurationsConfigured"    // True
	ReasonConfigurationsNotConfigured = "ConfigurationsNotConfigured" // False

	// ConditionTokenRefreshed reports whether the add-on could renew its token.
	ConditionTokenRefreshed   = "TokenRefreshed"
	ReasonAddOnTokenRefreshed = "AddonTokenRefreshed" // True
	ReasonTokenCreationFailed = "TokenCreationFailed" // False

	// ConditionTokenInfrastructureReady reports whether the service account behind the token exists.
	ConditionTokenInfrastructureReady    = "TokenInfrastructureReady"
	ReasonTokenInfrastructureApplyFailed = "TokenInfrastructureApplyFailed" // False
)

// Reasons of ConditionProgressing on add-ons, besides ReasonProgressing.
const (
	ReasonCompleted                        = "Completed"                        // False
	ReasonFailed                           = "Failed"                           // False
	ReasonConfigurationUnsupported         = "ConfigurationUnsupported"         // False
	ReasonWaitingForManifestApplied        = "WaitingForManifestApplied"        // False
	ReasonWaitingForHostingManifestApplied = "WaitingForHostingManifestApplied" // False
)

// Conditions of a ManagedServiceAccount.
const (
	// ConditionSecretCreated reports whether there is a Secret with a token.
	ConditionSecretCreated = "SecretCreated"
	ReasonSecretCreated    = "SecretCreated" // True

	// ConditionTokenReported reports whether the token in the Secret is as it should be.
	ConditionTokenReported  = "TokenReported"
	ReasonTokenReported     = "TokenReported"     // True
	ReasonTokenReportFailed = "TokenReportFailed" // False
)

// Conditions of a ClusterPermission.
const (
	// ConditionAppliedRBACManifestWork reports whether its roles and bindings are on the cluster.
	ConditionAppliedRBACManifestWork = "AppliedRBACManifestWork"
	ReasonAppliedRBACManifestWork    = "AppliedRBACManifestWork" // True
	ReasonFailedRBACManifestWork     = "FailedRBACManifestWork"  // False
)
