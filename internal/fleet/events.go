package fleet

// Reasons of the events that the hub and the agents write (contract section 12).
const (
	EventManagedClusterAccepted                    = "ManagedClusterAccepted"
	EventManagedClusterDenied                      = "ManagedClusterDenied"
	EventManagedClusterAutoApproved                = "ManagedClusterAutoApproved"
	EventManagedClusterAutoApprovalWithheld        = "ManagedClusterAutoApprovalWithheld" // our own
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
	EventClusterClaimsInvalid                      = "ClusterClaimsInvalid" // our own
	EventDecisionCreate                            = "DecisionCreate"
	EventDecisionUpdate                            = "DecisionUpdate"
	EventDecisionDelete                            = "DecisionDelete"
	EventScoreUpdate                               = "ScoreUpdate"
	EventAvailable                                 = "Available"
	EventUnavailable                               = "Unavailable"
	EventManifestApplyFailed                       = "ManifestApplyFailed"    // an extension
	EventManifestApplyRecovered                    = "ManifestApplyRecovered" // an extension
	EventBootstrapSelected                         = "BootstrapSelected"
	EventManagedClusterCreated                     = "ManagedClusterCreated"
	EventCSRCreated                                = "CSRCreated"
	EventNoValidCertificateFound                   = "NoValidCertificateFound"
	EventCertificateValidationFailed               = "CertificateValidationFailed"
	EventAdditionalSecretDataChanged               = "AdditonalSecretDataChanged" // spelt so in the contract
	EventAddOnTokenRefreshed                       = "AddonTokenRefreshed"
	EventSecretSave                                = "SecretSave"
	EventClientCertificateCreated                  = "ClientCertificateCreated"
	EventClientCertificateCreationHalted           = "ClientCertificateCreationHalted"
	EventCertificateRotationStarted                = "CertificateRotationStarted"
	EventHubClientConfigReady                      = "HubClientConfigReady"
	EventManagedClusterLeaseUpdateStarted          = "ManagedClusterLeaseUpdateStarted"
	EventManagedClusterLeaseUpdateStopped          = "ManagedClusterLeaseUpdateStoped"  // spelt so in the contract
	EventAddOnApprovalWithheld                     = "AddOnCertificateApprovalWithheld" // our own
	EventAddOnNotSigned                            = "AddOnCertificateNotSigned"        // our own
	EventAddOnTemplateVariablesUnset               = "AddOnTemplateVariablesUnset"      // our own
	EventAddOnTemplateOfAnother                    = "AddOnTemplateOfAnotherAddOn"      // our own
	EventAddOnNotHosted                            = "AddOnNotHosted"                   // our own
	EventRolledBack                                = "RolledBack"                       // our own
	EventManagedClusterAddOnStatusUpdated          = "ManagedClusterAddOnStatusUpdated"
	EventManagedClusterAddOnInstalled              = "ManagedClusterAddOnInstalled" // our own
	EventManagedClusterAddOnRemoved                = "ManagedClusterAddOnRemoved"   // our own
	EventRolloutCompleted                          = "RolloutCompleted"             // our own
	EventRolloutStopped                            = "RolloutStopped"               // our own
)
