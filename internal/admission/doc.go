// Package admission holds the admission rules of the hub (rows WH-01 to WH-12, gap R10) as plain functions: objects in, an
// error out. They know neither how a request arrives nor how a permission is looked up, so that the API server of
// `capstan-hub server` can call them in its own process (package inprocess) and a webhook server can call the same
// code for a hub inside an existing Kubernetes.
//
//	MutateManagedCluster            WH-01 to WH-03  taint times, default set label
//	ValidateManagedCluster          WH-04 to WH-07  name, addresses, acceptance, set membership
//	ValidateManagedClusterSetBinding  WH-08, WH-09  name, permission to bind
//	ValidateManifestWork            WH-10, WH-11    manifests, executor
//	ValidateManifestWorkReplicaSet  WH-12           manifests of the template, rollout strategies
//	ValidateClusterManagementAddOn  AM-20, A4, A6   rollout strategies, configurations, dependencies
//	ValidateManagedClusterAddOn     A6, AF-16       how long it may take to go, hosting cluster
//	ValidateManagedClusterAddOnStatus  R10, AM-07   what agents tell of add-ons, configurations before the agent
//	ValidateAddOnTemplate           WH-11, AM-30, A2  manifests, executor, registrations and what they give to agents
//	ValidateCertificateSigningRequest  label of the requests of agents, and their size
//	ValidateRequestCount, ValidateClusterCount  how much who joins may ask for until somebody decides
//	ValidateManagedClusterStatus, ValidateEvent  how much agents may say
//
// Every function takes the object as it is to be stored and the object it replaces, nil when it is created. An error
// is always an *apierrors.StatusError: 400 BadRequest for content, 403 Forbidden for a missing permission, as the rows
// say, and 409 Conflict for what comes too early. Its message names the field, the value and what would be right; for a permission, what to grant.
//
// Rules that could only be broken by content an update does not touch are not asked again on that update. So an
// object stored under older rules, or under a larger limit, can still be labelled, accepted, and above all lose its
// finalizers.
package admission
