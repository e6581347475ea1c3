package fleet

// Conditions of both ClusterManager and Klusterlet, besides ConditionApplied.
const (
	// ConditionValidFeatureGates reports whether all feature gates in the spec exist.
	ConditionValidFeatureGates        = "ValidFeatureGates"
	ReasonFeatureGatesAllValid        = "FeatureGatesAllValid"        // True
	ReasonInvalidFeatureGatesExisting = "InvalidFeatureGatesExisting" // False

	// ReasonCRDApplyFailed of ConditionApplied: a CRD could not be applied.
	ReasonCRDApplyFailed = "CRDApplyFailed" // False
)

// Conditions of a ClusterManager.
const (
	// Reasons of ConditionApplied.
	ReasonClusterManagerApplied      = "ClusterManagerApplied"      // True
	ReasonHubResourceApplyFailed     = "HubResourceApplyFailed"     // False
	ReasonServiceAccountSyncFailed   = "ServiceAccountSyncFailed"   // False
	ReasonRuntimeResourceApplyFailed = "RuntimeResourceApplyFailed" // False
	ReasonWebhookApplyFailed         = "WebhookApplyFailed"         // False

	// Reasons of ConditionProgressing.
	ReasonClusterManagerDeploymentRolling = "ClusterManagerDeploymentRolling" // True
	ReasonClusterManagerUpToDate          = "ClusterManagerUpToDate"          // False

	// ConditionHubRegistrationDegraded reports whether the registration controllers are not working.
	ConditionHubRegistrationDegraded      = "HubRegistrationDegraded"
	ReasonRegistrationFunctional          = "RegistrationFunctional"          // False
	ReasonGetRegistrationDeploymentFailed = "GetRegistrationDeploymentFailed" // True
	ReasonUnavailableRegistrationPod      = "UnavailableRegistrationPod"      // True

	// ConditionHubPlacementDegraded reports whether the placement controllers are not working.
	ConditionHubPlacementDegraded      = "HubPlacementDegraded"
	ReasonPlacementFunctional          = "PlacementFunctional"          // False
	ReasonGetPlacementDeploymentFailed = "GetPlacementDeploymentFailed" // True
	ReasonUnavailablePlacementPod      = "UnavailablePlacementPod"      // True

	// ConditionMigrationSucceeded reports whether stored objects have their current storage version.
	ConditionMigrationSucceeded = "MigrationSucceeded"
)

// Conditions of a Klusterlet, besides ConditionAvailable.
const (
	// Reasons of ConditionApplied.
	ReasonKlusterletApplied                    = "KlusterletApplied"                    // True
	ReasonKlusterletApplyFailed                = "KlusterletApplyFailed"                // False
	ReasonManagedClusterResourceApplyFailed    = "ManagedClusterResourceApplyFailed"    // False
	ReasonManagementClusterResourceApplyFailed = "ManagementClusterResourceApplyFailed" // False

	// Reasons of ConditionAvailable.
	ReasonKlusterletAvailable = "KlusterletAvailable" // True
	ReasonGetDeploymentFailed = "GetDeploymentFailed" // False; True of the Degraded conditions
	ReasonNoAvailablePods     = "NoAvailablePods"     // False

	// ConditionReadyToApply reports whether a hosted Klusterlet has what it needs to be applied.
	ConditionReadyToApply         = "ReadyToApply"
	ReasonKlusterletPrepared      = "KlusterletPrepared"      // True
	ReasonKlusterletPrepareFailed = "KlusterletPrepareFailed" // False

	// ConditionRegistrationDesiredDegraded reports whether the registration agent lacks pods.
	ConditionRegistrationDesiredDegraded = "RegistrationDesiredDegraded"
	// ConditionWorkDesiredDegraded reports whether the work agent lacks pods.
	ConditionWorkDesiredDegraded = "WorkDesiredDegraded"
	ReasonDeploymentsFunctional  = "DeploymentsFunctional" // False
	ReasonUnavailablePods        = "UnavailablePods"       // True

	// ConditionHubConnectionDegraded reports whether the agent cannot reach the hub or lacks rights there. When
	// True, its reason is one about the bootstrap kubeconfig and one about the hub kubeconfig, with a comma.
	ConditionHubConnectionDegraded    = "HubConnectionDegraded"
	ReasonHubConnectionFunctional     = "HubConnectionFunctional" // False
	ReasonBootstrapSecretFunctional   = "BootstrapSecretFunctional"
	ReasonBootstrapSecretMissing      = "BootstrapSecretMissing"
	ReasonBootstrapSecretError        = "BootstrapSecretError"
	ReasonBootstrapSecretUnauthorized = "BootstrapSecretUnauthorized"
	ReasonHubKubeConfigSecretMissing  = "HubKubeConfigSecretMissing"
	ReasonHubKubeConfigMissing        = "HubKubeConfigMissing"
	ReasonHubKubeConfigError          = "HubKubeConfigError"
	ReasonClusterNameMissing          = "ClusterNameMissing"
	ReasonHubKubeConfigUnauthorized   = "HubKubeConfigUnauthorized"
	// ReasonHubUnreachableFromAgent is, alone, that of an agent that does not reach the hub, while its operator does. It is an extension.
	ReasonHubUnreachableFromAgent = "HubUnreachableFromAgent"
)
