// Package admission holds the admission rules of the hub as plain functions: objects in, an
// error out. They know neither how a request arrives nor how a permission is checked, so that the API server of
// `capstan-hub server` can call them in its own process (package inprocess) and a webhook server can call the same
// code for a hub inside an existing Kubernetes.
//
//	MutateManagedCluster                         what a new cluster starts with, taint times, default set label
//	ValidateManagedCluster                       name, addresses, acceptance, set membership
//	ManagedClusterSetWarnings                    selectors that select nothing; nothing is refused
//	ManagedClusterSetDeletionWarnings            bindings and members of a set that is deleted; nothing is refused
//	ValidateManagedClusterSetBinding             name, permission to bind
//	ValidateManifestWork                         manifests, executor
//	ValidateManifestWorkSpec                     no change by the agent of the cluster
//	ValidateManifestWorkReplicaSet               manifests of the template, rollout strategies
//	ValidateClusterManagementAddOn               rollout strategies, configurations, dependencies
//	ValidateManagedClusterAddOn                  time limit of the removal, hosting cluster
//	ValidateManagedClusterAddOnStatus            what agents report of add-ons, configurations before the agent
//	ValidateAddOnTemplate                        manifests, executor, registrations and what they give to agents
//	ValidateCertificateSigningRequest            label and name of the requests of agents, their size, and that they expire
//	ValidateSecret                               which Secrets agents write
//	ValidateRequestCount, ValidateClusterCount   how many undecided requests and clusters a sender may have
//	ValidateManagedClusterStatus, ValidateEvent  how much agents may write
//
// Every function takes the object as it is to be stored and the object it replaces, nil when it is created. An error
// is always an *apierrors.StatusError: 400 BadRequest for content, 403 Forbidden for a missing permission,
// and 409 Conflict for what comes too early. Its message names the field, the value and what would be right; for a permission, what to
// grant.
//
// An update is not checked for content that it does not change. So an object that was stored under older rules, or under a larger
// limit, can still be labelled, accepted, and above all lose its finalizers.
package admission
