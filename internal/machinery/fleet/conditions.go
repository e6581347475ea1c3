package fleet

// Conditions of a ManagedCluster.
const (
	// ConditionHubAccepted reports whether the hub lets the cluster in.
	ConditionHubAccepted            = "HubAcceptedManagedCluster"
	ReasonHubClusterAdminAccepted   = "HubClusterAdminAccepted" // True
	ReasonHubClusterAdminDenied     = "HubClusterAdminDenied"   // False
	ReasonHubClusterAdminAcceptFail = "Error"                   // False: the access of the agent could not be set up

	// ConditionHubDenied is reserved.
	ConditionHubDenied = "HubDeniedManagedCluster"

	// ConditionJoined says that the agent has its own access to the hub. It is never reset.
	ConditionJoined            = "ManagedClusterJoined"
	ReasonManagedClusterJoined = "ManagedClusterJoined" // True

	// ConditionClusterAvailable reports whether the API server of the cluster answers.
	ConditionClusterAvailable                    = "ManagedClusterConditionAvailable"
	ReasonManagedClusterAvailable                = "ManagedClusterAvailable"                // True
	ReasonManagedClusterKubeAPIServerUnavailable = "ManagedClusterKubeAPIServerUnavailable" // False
	ReasonManagedClusterLeaseUpdateStopped       = "ManagedClusterLeaseUpdateStopped"       // Unknown; also of add-ons

	// ConditionClockSynced reports whether the clocks of cluster and hub agree.
	ConditionClockSynced               = "ManagedClusterConditionClockSynced"
	ReasonManagedClusterClockSynced    = "ManagedClusterClockSynced"    // True
	ReasonManagedClusterClockOutOfSync = "ManagedClusterClockOutOfSync" // False

	// ConditionClaimsReported is our own: whether all of a cluster's claims are in its status.
	ConditionClaimsReported = "capstan.io/ClusterClaimsReported"
	ReasonAllClaimsReported = "AllClusterClaimsReported"     // True
	ReasonClaimsTruncated   = "CustomClusterClaimsTruncated" // False
	ReasonClaimsInvalid     = "ClusterClaimsInvalid"         // False

	// ConditionCertificateRotated reports whether the agent, or an add-on, could renew its client certificate.
	ConditionCertificateRotated         = "ClusterCertificateRotated"
	ReasonClientCertificateUpdated      = "ClientCertificateUpdated"      // True
	ReasonClientCertificateUpdateFailed = "ClientCertificateUpdateFailed" // False

	// ConditionAWSAccess is our own: whether a cluster that registers by AWS IAM has its role and its access entry.
	ConditionAWSAccess        = "capstan.io/AWSAccess"
	ReasonAWSAccessGranted    = "AccessGranted"   // True
	ReasonAWSIdentityRefused  = "IdentityRefused" // False: its annotations are not those of a cluster that may have access
	ReasonAWSRequestFailed    = "RequestFailed"   // False: AWS refused something
	ReasonAWSDriverNotEnabled = "DriverNotEnabled"

	// ConditionDeleting says how far the deletion of a cluster, or of a ManifestWork, has come.
	ConditionDeleting       = "Deleting"
	ReasonNoResource        = "NoResource"        // True, of a cluster: nothing is left in its namespace
	ReasonResourceRemaining = "ResourceRemaining" // False, of a cluster
	ReasonDeletingError     = "DeletingError"     // False, of a cluster
	ReasonWorkDeleting      = "WorkDeleting"      // True, of a ManifestWork

	// ConditionImportSucceeded reports whether a Cluster API cluster was imported.
	ConditionImportSucceeded   = "ManagedClusterImportSucceeded"
	ReasonImportSucceed        = "ImportSucceed"        // True
	ReasonKubeConfigGetFailed  = "KubeConfigGetFailed"  // False
	ReasonKubeConfigNotFound   = "KubeConfigNotFound"   // False
	ReasonConfigRendererFailed = "ConfigRendererFailed" // False
	ReasonImportFailed         = "ImportFailed"         // False

	// ConditionNamespaceAvailable, in status.managedNamespaces, reports whether a namespace is on the cluster.
	ConditionNamespaceAvailable = "NamespaceAvailable"
	ReasonNamespaceApplied      = "NamespaceApplied"     // True
	ReasonNamespaceApplyFailed  = "NamespaceApplyFailed" // False
)

// Conditions of sets, bindings and placements.
const (
	// ConditionClusterSetEmpty of a ManagedClusterSet reports whether it has no member.
	ConditionClusterSetEmpty = "ClusterSetEmpty"
	ReasonNoClusterMatched   = "NoClusterMatched" // True
	ReasonClustersSelected   = "ClustersSelected" // False

	// ConditionBound of a ManagedClusterSetBinding reports whether its set exists.
	ConditionBound           = "Bound"
	ReasonClusterSetBound    = "ClusterSetBound"    // True
	ReasonClusterSetNotFound = "ClusterSetNotFound" // False

	// ConditionPlacementSatisfied of a Placement reports whether it found all the clusters it requests.
	ConditionPlacementSatisfied       = "PlacementSatisfied"
	ReasonAllDecisionsScheduled       = "AllDecisionsScheduled"       // True
	ReasonNoManagedClusterSetBindings = "NoManagedClusterSetBindings" // False
	ReasonNoIntersection              = "NoIntersection"              // False
	ReasonAllManagedClusterSetsEmpty  = "AllManagedClusterSetsEmpty"  // False
	ReasonNoManagedClusterMatched     = "NoManagedClusterMatched"     // False
	ReasonNotAllDecisionsScheduled    = "NotAllDecisionsScheduled"    // False

	// ConditionPlacementMisconfigured of a Placement reports whether its spec makes no sense.
	ConditionPlacementMisconfigured = "PlacementMisconfigured"
	ReasonMisconfigured             = "Misconfigured"     // True
	ReasonSucceedConfigured         = "Succeedconfigured" // False
)

// Conditions of a ManifestWork, and of each manifest in its status.
const (
	// ConditionApplied reports whether everything is on the cluster as written. Operator resources have it too.
	ConditionApplied                         = "Applied"
	ReasonAppliedManifestWorkComplete        = "AppliedManifestWorkComplete"        // True, of a work
	ReasonAppliedManifestWorkFailed          = "AppliedManifestWorkFailed"          // False, of a work
	ReasonAppliedManifestComplete            = "AppliedManifestComplete"            // True, of a manifest
	ReasonAppliedManifestFailed              = "AppliedManifestFailed"              // False, of a manifest
	ReasonAppliedManifestSSAIgnoreFieldError = "AppliedManifestSSAIgnoreFieldError" // False, of a manifest

	// ConditionAvailable reports whether everything exists on the cluster. Add-ons and Klusterlets have it too.
	ConditionAvailable           = "Available"
	ReasonResourcesAvailable     = "ResourcesAvailable"     // True, of a work
	ReasonResourcesNotAvailable  = "ResourcesNotAvailable"  // False, of a work
	ReasonResourcesStatusUnknown = "ResourcesStatusUnknown" // Unknown, of a work
	ReasonResourceAvailable      = "ResourceAvailable"      // True, of a manifest
	ReasonResourceNotAvailable   = "ResourceNotAvailable"   // False, of a manifest
	ReasonFetchingResourceFailed = "FetchingResourceFailed" // Unknown, of a manifest
	ReasonIncompleteResourceMeta = "IncompleteResourceMeta" // Unknown, of a manifest

	// ConditionDisputed, while others keep changing or deleting an object so that the agent repairs it with delays, says who that is and
	// what can be done. It is an extension.
	ConditionDisputed             = "Disputed"
	ReasonManifestsDisputed       = "ManifestsDisputed"       // True, of a work
	ReasonFieldsChangedRepeatedly = "FieldsChangedRepeatedly" // True, of a manifest
	ReasonObjectDeletedRepeatedly = "ObjectDeletedRepeatedly" // True, of a manifest

	// ConditionStatusTruncated of a ManifestWork, while its status would be larger than the hub stores, says what is left out. It is an
	// extension.
	ConditionStatusTruncated = "StatusTruncated"
	ReasonStatusTooLarge     = "StatusTooLarge" // True

	// ConditionRulesUnmatched of a ManifestWork, while manifestConfigs or orphaning rules are about none of its manifests, names them. It is
	// an extension.
	ConditionRulesUnmatched = "RulesUnmatched"
	ReasonNoSuchManifest    = "NoSuchManifest" // True

	// ConditionDryRun, while AnnotationDryRun is set, reports whether the cluster would take the work, or the manifest, and its
	// message what that would change. It is an extension.
	ConditionDryRun      = "DryRun"
	ReasonDryRunComplete = "DryRunComplete" // True, of a work
	ReasonDryRunFailed   = "DryRunFailed"   // False, of a work
	ReasonDryRunUnknown  = "UnknownDryRun"  // Unknown, of a work: the annotation has another value
	ReasonWouldCreate    = "WouldCreate"    // True, of a manifest
	ReasonWouldChange    = "WouldChange"    // True, of a manifest
	ReasonWouldNotChange = "WouldNotChange" // True, of a manifest
	ReasonWouldFail      = "WouldFail"      // False, of a manifest
	ReasonCannotBeTried  = "CannotBeTried"  // Unknown, of a manifest: it needs another one of the work first

	// ConditionStatusFeedbackSynced of a manifest reports whether the fields its feedback rules request could be read.
	ConditionStatusFeedbackSynced  = "StatusFeedbackSynced"
	ReasonStatusFeedbackSynced     = "StatusFeedbackSynced"     // True
	ReasonNoStatusFeedbackSynced   = "NoStatusFeedbackSynced"   // True: there are no rules
	ReasonStatusFeedbackSyncFailed = "StatusFeedbackSyncFailed" // False

	// ConditionComplete, ConditionProgressing and ConditionDegraded are what condition rules usually set.
	ConditionComplete              = "Complete"
	ConditionProgressing           = "Progressing"
	ConditionDegraded              = "Degraded"
	ReasonConditionRulesAggregated = "ConditionRulesAggregated" // of a work

	// ReasonConditionRulePrefix is the prefix of the reasons of all conditions that a rule set on a manifest.
	ReasonConditionRulePrefix          = "ConditionRule"
	ReasonConditionRuleEvaluated       = "ConditionRuleEvaluated"       // True or False
	ReasonConditionRuleInvalid         = "ConditionRuleInvalid"         // False
	ReasonConditionRuleExpressionError = "ConditionRuleExpressionError" // False
	ReasonConditionRuleInternalError   = "ConditionRuleInternalError"   // Unknown

	// ReasonHealthPrefix is the prefix of the reasons of ConditionProgressing and ConditionDegraded where they come from the health
	// of an object and not from a rule. They are our own.
	ReasonHealthPrefix     = "Health"
	ReasonHealthCurrent    = "HealthCurrent"    // neither is True
	ReasonHealthInProgress = "HealthInProgress" // Progressing is True
	ReasonHealthFailed     = "HealthFailed"     // both are True
)

// Conditions of a ManifestWorkReplicaSet.
const (
	// ConditionPlacementVerified reports whether the placements it refers to have decisions.
	ConditionPlacementVerified      = "PlacementVerified"
	ReasonAsExpected                = "AsExpected"                // True
	ReasonNotAsExpected             = "NotAsExpected"             // False
	ReasonPlacementDecisionNotFound = "PlacementDecisionNotFound" // False
	ReasonPlacementDecisionEmpty    = "PlacementDecisionEmpty"    // False

	// ConditionMovesHeld reports whether works do not move because too many clusters are lost at once. It is an extension, for sets with
	// AnnotationMaxLost.
	ConditionMovesHeld        = "MovesHeld"
	ReasonTooManyClustersLost = "TooManyClustersLost" // True

	// ConditionPlacementRolledOut reports whether all clusters have the current template; its reasons are
	// ReasonComplete and ReasonProgressing.
	ConditionPlacementRolledOut = "PlacementRolledOut"
	ReasonComplete              = "Complete"    // True
	ReasonProgressing           = "Progressing" // False; of an add-on True

	// ConditionManifestworkApplied reports whether all its works are applied.
	ConditionManifestworkApplied = "ManifestworkApplied"
	ReasonProcessing             = "Processing" // False
)
