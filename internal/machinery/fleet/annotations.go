package fleet

import (
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Annotations of clusters.
const (
	// AnnotationAutomaticallyAcceptedOn on a ManagedCluster is when the hub accepted it by itself, in RFC 3339.
	AnnotationAutomaticallyAcceptedOn = "open-cluster-management.io/automatically-accepted-on"
	// AnnotationAgentPrefix is the prefix of the annotations that an agent may set on the ManagedCluster it creates.
	AnnotationAgentPrefix = "agent.open-cluster-management.io/"
	// AnnotationRequestedBy on a ManagedCluster is the user with a bootstrap credential who created it. The hub writes it. It is an
	// extension.
	AnnotationRequestedBy = "capstan.io/requested-by"
	// AnnotationCredentialsNotBefore on a ManagedCluster is from when on the certificates of its agents and add-ons are accepted, in RFC 3339:
	// a standalone hub refuses those whose validity starts earlier. The hub writes it when the cluster is created and when it is cut off; one
	// that an administrator gives stays. It is an extension.
	AnnotationCredentialsNotBefore = "capstan.io/credentials-not-before"
	// AnnotationManagedClusterARN is the ARN of an EKS cluster that joins through AWS IAM.
	AnnotationManagedClusterARN = AnnotationAgentPrefix + "managed-cluster-arn"
	// AnnotationManagedClusterIAMRoleSuffix is the suffix of the IAM role of such a cluster.
	AnnotationManagedClusterIAMRoleSuffix = AnnotationAgentPrefix + "managed-cluster-iam-role-suffix"
	// AnnotationAWSRole on a ManagedCluster is the name of the IAM role that the hub has made for it. The hub writes it before it makes the
	// role, so that it can take it away whatever becomes of the other annotations. It is an extension.
	AnnotationAWSRole = "capstan.io/aws-role"
	// AnnotationEKSRole on a service account is the IAM role that its pods have on EKS.
	AnnotationEKSRole = "eks.amazonaws.com/role-arn"
	// AnnotationSkipClockSyncCheck, when "true", lets a cluster whose clock is off count as in sync.
	AnnotationSkipClockSyncCheck = "registration.open-cluster-management.io/skip-clock-sync-check"
	// AnnotationImageRegistries on a ManagedCluster says as JSON where its add-ons pull images from.
	AnnotationImageRegistries = "open-cluster-management.io/image-registries"
	// AnnotationCleanupPriority orders the deletion of objects in the namespace of a deleted cluster: 0 to 100,
	// lower first. Missing or invalid counts as 0.
	AnnotationCleanupPriority = "open-cluster-management.io/cleanup-priority"
	// AnnotationDeletionTimeout on a ManagedCluster is how long its deletion waits for an agent without heartbeats, such as 10m, before
	// it continues without the agent. It is an extension; without it, the hub uses its own timeout.
	AnnotationDeletionTimeout = "capstan.io/deletion-timeout"
	// AnnotationCAPICluster on a ManagedCluster is the Cluster API cluster it stands for, as namespace/name.
	AnnotationCAPICluster = "cluster.x-k8s.io/cluster"
	// AnnotationImportSecret on a ManagedCluster is the name of a Secret in the namespace of the cluster on the hub, with a kubeconfig by
	// which the hub installs the agent there. It is an extension.
	AnnotationImportSecret = "capstan.io/import-kubeconfig-secret"
	// AnnotationAutoUpdate, when "false" on the set default or global, lets its selector be changed.
	AnnotationAutoUpdate = "cluster.open-cluster-management.io/autoupdate"
	// AnnotationCSRUser on a CSR that the gRPC server forwards is the user who requested it.
	AnnotationCSRUser = "open-cluster-management.io/csr-user"
)

// AgentChangesAnnotation reports whether an agent may change an annotation of its ManagedCluster. Those that say which cluster of AWS it
// is, it only sets when it creates the ManagedCluster: an administrator has accepted that cluster, and the hub gives access to it.
func AgentChangesAnnotation(key string) bool {
	return strings.HasPrefix(key, AnnotationAgentPrefix) && key != AnnotationManagedClusterARN &&
		key != AnnotationManagedClusterIAMRoleSuffix
}

// AnnotationExtensionPrefix is the prefix of annotations that are extensions; some others have a domain of their own before it.
const AnnotationExtensionPrefix = "capstan.io/"

// Annotations of placements and works.
const (
	// AnnotationSchedulingDisable, when "true" on a Placement, keeps its decisions as they are.
	AnnotationSchedulingDisable = "cluster.open-cluster-management.io/experimental-scheduling-disable"
	// AnnotationTemplateWrittenAt on a ManifestWork of a ManifestWorkReplicaSet is when the hub wrote its present spec, in
	// RFC 3339: from then on the cluster counts in the rollout. It is an extension.
	AnnotationTemplateWrittenAt = "capstan.io/template-written-at"
	// AnnotationCompleteSeen on a ManifestWork with a TTL is when its condition Complete became True and when the hub saw that, by the clocks
	// of the cluster and of the hub, in RFC 3339 with a slash between. The hub writes it, and counts the TTL from the latter. It is an
	// extension.
	AnnotationCompleteSeen = "capstan.io/complete-seen"
	// AnnotationLabelsOfSet on a ManifestWork of a ManifestWorkReplicaSet is the keys of the labels that it has from the set,
	// with commas between them: when the set loses one, the work does. It is an extension.
	AnnotationLabelsOfSet = "capstan.io/labels-of-set"
	// AnnotationRollback, when "true" on a ManifestWorkReplicaSet, restores the last good template on all clusters when a
	// rollout stops because of failures. It is an extension.
	AnnotationRollback = "capstan.io/rollback"
	// AnnotationRevisions on such a ManifestWorkReplicaSet lists the templates it has had and how they turned out, as
	// JSON. The hub writes it.
	AnnotationRevisions = "capstan.io/revisions"
	// AnnotationOverrides on a ManifestWorkReplicaSet says, as YAML, how its manifests differ from cluster to cluster. It
	// is an extension.
	AnnotationOverrides = "capstan.io/overrides"
	// AnnotationGracefulMove, when "true" on a ManifestWorkReplicaSet, keeps the work of a cluster that is no longer selected until the
	// one that takes its place is available. It is an extension.
	AnnotationGracefulMove = "capstan.io/graceful-move"
	// AnnotationMaxLost on a ManifestWorkReplicaSet is how many of its clusters, as a number or a percentage, may be lost at once for
	// works to move to others. It is an extension.
	AnnotationMaxLost = "capstan.io/max-lost-clusters"
	// AnnotationConfigSpecHash is a hash of what was applied with ignored fields, and on the ManifestWorks of
	// add-ons a JSON map from the name of each configuration to the hash of its spec.
	AnnotationConfigSpecHash = "open-cluster-management.io/config-spec-hash"
	// AnnotationDryRun, when "server" on a ManifestWork, has the agent report what it would change instead of changing it. It
	// is an extension.
	AnnotationDryRun = "capstan.io/dry-run"
	// DryRunServer is the value of AnnotationDryRun that has the API server of the cluster try the work.
	DryRunServer = "server"
	// DryRunNone is the value of AnnotationDryRun that says the same as its absence.
	DryRunNone = "none"
	// AnnotationDryRunOf on a ManifestWork with AnnotationDryRun is the name of the work of the same cluster that it is tried in
	// the place of: what that one has applied counts as its own. It is an extension.
	AnnotationDryRunOf = "capstan.io/dry-run-of"
	// AnnotationEndedJobs on an AppliedManifestWork is which Jobs of the work have ended, in JSON: hashes of their specs by namespace and
	// name. It is an extension.
	AnnotationEndedJobs = "capstan.io/ended-jobs"
	// AnnotationWorkSource on an AppliedManifestWork is who sent its work, where an agent gets works from several sources. On a ManifestWork,
	// it is so to the agent alone. It is an extension.
	AnnotationWorkSource = "capstan.io/work-source"
	// AnnotationCompletion on an AppliedManifestWork is the status of what is complete of its work, packed. It is an extension.
	AnnotationCompletion = "capstan.io/completion"
	// AnnotationManifests on an AppliedManifestWork is which objects its work names, written before they are applied. It is
	// an extension.
	AnnotationManifests = "capstan.io/manifests"
	// AnnotationPropagationPolicy on an AppliedManifestWork, when "Foreground", has its objects go after their dependents; when
	// "Background", they were to and do not any more. It is an extension.
	AnnotationPropagationPolicy = "capstan.io/propagation-policy"
	// AnnotationClusterName on an AppliedManifestWork is the cluster that its work is of. On an object that the command line shows, it is the
	// cluster that it was read from. It is an extension.
	AnnotationClusterName = "capstan.io/cluster-name"
	// AnnotationManagedNamespacePrefix and a hub make the annotation of a namespace on a managed cluster that names the
	// ManagedCluster whose agent set the label of that hub there; see ManagedNamespaceAnnotation. It is an extension.
	AnnotationManagedNamespacePrefix = "managed-namespace.capstan.io/"
	// AnnotationAppliedFieldsPrefix is the prefix of the annotations of applied objects that say which fields a work names; a hash of
	// the AppliedManifestWork follows. It is an extension.
	AnnotationAppliedFieldsPrefix = "applied-fields.capstan.io/"
	// AnnotationLoggingPrefix is the prefix of the annotations that are copied into the log lines about an object.
	AnnotationLoggingPrefix = "logging.open-cluster-management.io/"
)

// Annotations of add-ons.
const (
	// AnnotationAddOnPrefix is the prefix of the annotations that are copied from a ManagedCluster to its add-ons.
	AnnotationAddOnPrefix = "addon.open-cluster-management.io/"
	// AnnotationDisableAutomaticInstallation, when "true", keeps add-ons from being installed by themselves.
	AnnotationDisableAutomaticInstallation = AnnotationAddOnPrefix + "disable-automatic-installation"
	// AnnotationHostingClusterName on a ManagedClusterAddOn is the cluster on which its agent runs instead.
	AnnotationHostingClusterName = AnnotationAddOnPrefix + "hosting-cluster-name"
	// AnnotationHostedManifestLocation says where a manifest of a hosted add-on goes: one of the
	// HostedManifestLocation constants.
	AnnotationHostedManifestLocation = AnnotationAddOnPrefix + "hosted-manifest-location"
	// AnnotationAddOnPreDelete marks the Job or Pod that runs before an add-on is deleted.
	AnnotationAddOnPreDelete = AnnotationAddOnPrefix + "addon-pre-delete"
	// AnnotationDeletionOrphan marks manifests that stay when their add-on is deleted.
	AnnotationDeletionOrphan = AnnotationAddOnPrefix + "deletion-orphan"
	// AnnotationLifecycle on a ClusterManagementAddOn says who manages its life: LifecycleAddOnManager, which is
	// also what its absence means, or LifecycleSelf.
	AnnotationLifecycle = AnnotationAddOnPrefix + "lifecycle"
	// AnnotationInstallNamespace on a ManagedClusterAddOn of version v1beta1 holds what is spec.installNamespace in
	// version v1alpha1.
	AnnotationInstallNamespace = AnnotationAddOnPrefix + "v1alpha1-install-namespace"
	// AnnotationDependsOn on a ClusterManagementAddOn names the add-ons that it needs, with commas between: it is deployed on a
	// cluster when they are available there, and they stay until it is gone. The hub copies it to the ManagedClusterAddOns.
	// It is an extension.
	AnnotationDependsOn = "capstan.io/depends-on"
	// AnnotationInstalledBy on a ManagedClusterAddOn, with the value InstalledByStrategy, says that the hub has installed it
	// because of an install strategy, and will remove it for the same reason. It is an extension.
	AnnotationInstalledBy = "capstan.io/installed-by"
	// AnnotationRolledOut on a ManagedClusterAddOn is its UID, a slash, and a hash of the configurations with which a rollout last succeeded
	// on the cluster: when the add-on falls ill later, with the same ones, it is no failure of the rollout. The hub writes it. It is an
	// extension.
	AnnotationRolledOut = "capstan.io/rolled-out"
	// InstalledByStrategy is the value of AnnotationInstalledBy.
	InstalledByStrategy = "install-strategy"
	// AnnotationBuiltIn, when "true" on a ClusterManagementAddOn, says that the hub and the agents of clusters have the code of the add-on
	// themselves. The hub sets it on the ManagedClusterAddOns once the agent has its rights: the agent acts on these alone, and leaves an
	// add-on of the same name with an agent of its own to that. It is an extension.
	AnnotationBuiltIn = "capstan.io/built-in"
	// AnnotationClusterProxyConfig on the ManagedClusterAddOn AddOnClusterProxy is what its AddOnDeploymentConfigs say about the agent of the
	// cluster. The hub sets it. It is an extension.
	AnnotationClusterProxyConfig = "capstan.io/cluster-proxy-config"
	// AnnotationOwnerUID on a service account of a managed cluster is the UID of the ManagedServiceAccount that it was made for. It is an
	// extension.
	AnnotationOwnerUID = "capstan.io/owner-uid"
	// AnnotationRequestedValidity on the Secret of a ManagedServiceAccount is the lifetime that its token was requested with. It is an
	// extension.
	AnnotationRequestedValidity = "capstan.io/requested-validity"
	// AnnotationFromCluster on a ManagedClusterAddOn lists the annotations that the hub has copied from its
	// ManagedCluster, with commas between. It is an extension.
	AnnotationFromCluster = "capstan.io/annotations-from-cluster"
	// AnnotationPreDeleteTimeout on a ManagedClusterAddOn, or on its ClusterManagementAddOn for all clusters, is how long the
	// removal waits for its pre-delete hooks, such as 30m; then it goes on without them. It is an extension; without it, hooks
	// are waited for as long as their cluster is available, and 10 minutes when it is not.
	AnnotationPreDeleteTimeout = "capstan.io/pre-delete-timeout"
	// AnnotationDefaultPreDeleteTimeout on a ManagedClusterAddOn is AnnotationPreDeleteTimeout of its ClusterManagementAddOn, for when that
	// is deleted first. The hub sets it. It is an extension.
	AnnotationDefaultPreDeleteTimeout = "capstan.io/default-pre-delete-timeout"
	// AnnotationHubHash on the Secret of an add-on, or on the service account of a ManagedServiceAccount, is HubHash of the hub that it is
	// for. It is an extension.
	AnnotationHubHash = "capstan.io/hub-hash"
	// AnnotationAgentID on the service account of a ManagedServiceAccount is the ID of the agent that has made it, or has taken it over. It is
	// an extension.
	AnnotationAgentID = "capstan.io/agent-id"
	// AnnotationHubID on the Secret of an add-on distinguishes the hub that its credential is of from others that had, or have, the same
	// address. It is an extension.
	AnnotationHubID = "capstan.io/hub-id"
	// AnnotationRequestedSubject on the Secret of an add-on is the subject that its certificate was requested with: of what it says itself,
	// the signer decides. It is an extension.
	AnnotationRequestedSubject = "capstan.io/requested-subject"
	// AnnotationAccountNamespace on the ManifestWork of a ClusterPermission is the namespace that the service accounts of
	// ManagedServiceAccounts had on the cluster when it was last known. It is an extension.
	AnnotationAccountNamespace = "capstan.io/account-namespace"
)

// IsBuiltIn reports whether a ClusterManagementAddOn or a ManagedClusterAddOn has AnnotationBuiltIn.
func IsBuiltIn(o metav1.Object) bool { return o.GetAnnotations()[AnnotationBuiltIn] == LabelTrue }

// Values of AnnotationHostedManifestLocation.
const (
	// HostedManifestLocationManaged puts a manifest on the managed cluster. It is the default.
	HostedManifestLocationManaged = "managed"
	// HostedManifestLocationHosting puts a manifest on the hosting cluster.
	HostedManifestLocationHosting = "hosting"
	// HostedManifestLocationNone puts a manifest nowhere.
	HostedManifestLocationNone = "none"
)

// Values of AnnotationLifecycle.
const (
	// LifecycleAddOnManager lets the add-on manager of the hub install and upgrade the add-on.
	LifecycleAddOnManager = "addon-manager"
	// LifecycleSelf leaves that to the add-on itself.
	LifecycleSelf = "self"
)

// Annotations of what the operators install.
const (
	// AnnotationOperatorVersion on a CRD is the version of whoever applied it last, mostly an operator; an older one leaves the CRD
	// alone.
	AnnotationOperatorVersion = "operator.open-cluster-management.io/version"
	// AnnotationInstalledMode on a ClusterManager is the mode in which its hub is installed, Default or Hosted, whatever its spec says now.
	AnnotationInstalledMode = "capstan.io/installed-mode"
	// AnnotationEvictionTimestamp on a Klusterlet is when the eviction of what it manages started, in RFC 3339.
	AnnotationEvictionTimestamp = "operator.open-cluster-management.io/managed-resources-eviction-timestamp"
	// AnnotationOpenShiftWorkload and its value OpenShiftWorkloadManagement mark namespaces of the operators as
	// management workload for OpenShift.
	AnnotationOpenShiftWorkload = "workload.openshift.io/allowed"
	// OpenShiftWorkloadManagement is the value of AnnotationOpenShiftWorkload.
	OpenShiftWorkloadManagement = "management"
)
