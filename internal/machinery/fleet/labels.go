package fleet

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"
)

// Domain ends the prefixes of all labels and annotations of Open Cluster Management.
const Domain = "open-cluster-management.io"

// Labels of clusters and of what belongs to them.
const (
	// LabelClusterSet on a ManagedCluster is the one exclusive ManagedClusterSet it is a member of.
	LabelClusterSet = "cluster.open-cluster-management.io/clusterset"
	// LabelCutOff, when LabelTrue, on a ManagedCluster that is not accepted cuts it off: its agent and its add-ons have no right at all, not
	// even to clean up. It means nothing on one that is accepted. It is an extension, and a label so that the hub can watch for it.
	LabelCutOff = "capstan.io/cut-off"
	// LabelTunnelServer, when LabelTrue, on a Lease says that its holder is the address of a process of the hub with tunnels of agents. It is
	// an extension.
	LabelTunnelServer = "capstan.io/tunnel-server"
	// LabelClusterName is the name of the cluster that a CSR, a namespace, a lease or RBAC on the hub is for.
	LabelClusterName = "open-cluster-management.io/cluster-name"
	// LabelRequestedBy on a ManagedCluster that was created with a bootstrap credential is its requester, as RequesterLabel writes it, until
	// the cluster is accepted. It is an extension.
	LabelRequestedBy = AnnotationRequestedBy
	// LabelRequestedWith is set together with LabelRequestedBy where credentials have an ID, as tokens of service accounts do. It is that
	// ID, as RequesterLabel writes it: of all that one account requests, what came with the same token.
	LabelRequestedWith = "capstan.io/requested-with"
	// LabelAddOnFeaturePrefix and the name of an add-on make the label of a ManagedCluster that says how the
	// add-on is doing there; see AddOnFeatureLabel.
	LabelAddOnFeaturePrefix = "feature.open-cluster-management.io/addon-"
	// LabelManagedNamespacePrefix and a hub make the label of a namespace on a managed cluster that reports whether
	// a ManagedClusterSet of that hub wants it, "true" or "false"; see ManagedNamespaceLabel.
	LabelManagedNamespacePrefix = "clusterset.open-cluster-management.io/"
	// LabelSelfManagement on a ManagedCluster says that a standalone hub manages the cluster itself, without an agent beside it.
	LabelSelfManagement = "multicluster-controlplane.open-cluster-management.io/selfmanagement"
	// LabelSpokeOnly on a ClusterClaim or ClusterProperty keeps it off the hub.
	LabelSpokeOnly = "open-cluster-management.io/spoke-only"
)

// Values of the label AddOnFeatureLabel.
const (
	// AddOnFeatureAvailable says that the add-on is available.
	AddOnFeatureAvailable = "available"
	// AddOnFeatureUnhealthy says that the add-on is not available.
	AddOnFeatureUnhealthy = "unhealthy"
	// AddOnFeatureUnreachable says that it is unknown whether the add-on is available.
	AddOnFeatureUnreachable = "unreachable"
)

// Labels of placements and works.
const (
	// LabelPlacement on a PlacementDecision is the Placement it belongs to.
	LabelPlacement = "cluster.open-cluster-management.io/placement"
	// LabelDecisionGroupIndex on a PlacementDecision is the index of its decision group, from 0.
	LabelDecisionGroupIndex = "cluster.open-cluster-management.io/decision-group-index"
	// LabelDecisionGroupName on a PlacementDecision is the name of its decision group.
	LabelDecisionGroupName = "cluster.open-cluster-management.io/decision-group-name"
	// LabelManifestWorkReplicaSet on a ManifestWork is the replica set that made it; see
	// ManifestWorkReplicaSetKey.
	LabelManifestWorkReplicaSet = "work.open-cluster-management.io/manifestworkreplicaset"
	// LabelPlacementName on a ManifestWork is the Placement for which its replica set made it.
	LabelPlacementName = "work.open-cluster-management.io/placementname"
)

// LabelWorkPlacement on a ManifestWork is the Placement for which "capstan create work" made it, as LabelValue writes
// namespace.name. It is an extension.
const LabelWorkPlacement = "capstan.io/placement"

// IsReservedLabel reports whether the key of a label is in a domain of this API, so that it may mean something to the hub, an agent or the
// manager of an add-on: who labels one object must not give such a label to another one.
func IsReservedLabel(key string) bool {
	domain, _, prefixed := strings.Cut(key, "/")
	if !prefixed {
		return false
	}
	for _, ours := range []string{Domain, "capstan.io"} {
		if domain == ours || strings.HasSuffix(domain, "."+ours) {
			return true
		}
	}
	return false
}

// Labels of add-ons.
const (
	// LabelAddOnName is the add-on that a CSR, a ManifestWork or a RoleBinding is for.
	LabelAddOnName = "open-cluster-management.io/addon-name"
	// LabelAddOnNamespace on a ManifestWork for a hosting cluster is the namespace of the add-on, that is the
	// name of the managed cluster.
	LabelAddOnNamespace = "open-cluster-management.io/addon-namespace"
	// LabelAddOnManager on RBAC objects of an add-on on the hub is the manager that applied them, and will delete them. It
	// is an extension.
	LabelAddOnManager = "capstan.io/addon-manager"
	// LabelAddOnAgentNamespace marks namespaces of a managed cluster that get the pull secret and the TLS profile.
	LabelAddOnAgentNamespace = "addon.open-cluster-management.io/namespace"
	// LabelTokenInfrastructure marks the service account, role and binding behind the token of an add-on.
	LabelTokenInfrastructure = "addon.open-cluster-management.io/token-infrastructure"
	// LabelTokenAddOnName is the add-on that objects with LabelTokenInfrastructure are for.
	LabelTokenAddOnName = "addon.open-cluster-management.io/name"
	// LabelAddOnCredential marks the Secrets with which add-ons reach the hub. Its value says for whom an agent keeps them:
	// AddOnCredentialManaged or AddOnCredentialHosted. It is an extension.
	LabelAddOnCredential = "capstan.io/addon-credential"
	// LabelManagedServiceAccount marks the service account, on a managed cluster, and the Secret, on the hub, of a ManagedServiceAccount.
	LabelManagedServiceAccount = "authentication.open-cluster-management.io/is-managed-serviceaccount"
	// LabelServiceAccountsPrefix is the prefix of the labels of a namespace on a managed cluster by which an agent finds the service accounts
	// of ManagedServiceAccounts that are left there; see ServiceAccountsLabels. It is an extension.
	LabelServiceAccountsPrefix = "service-accounts.capstan.io/"
	// LabelSyncToClusterProfile on a ManagedServiceAccount has its token copied to the namespaces of the ClusterProfiles of its cluster.
	LabelSyncToClusterProfile = "authentication.open-cluster-management.io/sync-to-clusterprofile"
	// LabelSyncedFrom on such a copy is <namespace>-<name> of the ManagedServiceAccount.
	LabelSyncedFrom = "authentication.open-cluster-management.io/synced-from"
	// LabelHostedManifestLocation is the deprecated form of AnnotationHostedManifestLocation.
	LabelHostedManifestLocation = AnnotationHostedManifestLocation
	// LabelAddOnPreDelete is the deprecated form of AnnotationAddOnPreDelete.
	LabelAddOnPreDelete = "open-cluster-management.io/addon-pre-delete"
)

// Values of LabelAddOnCredential.
const (
	// AddOnCredentialManaged is of add-ons that run on the managed cluster.
	AddOnCredentialManaged = "managed"
	// AddOnCredentialHosted is of add-ons that run on the hosting cluster.
	AddOnCredentialHosted = "hosted"
)

// Labels of what the operators install.
const (
	// LabelKlusterlet on a namespace is the Klusterlet it was made for.
	LabelKlusterlet = "operator.open-cluster-management.io/klusterlet"
	// LabelCreatedByClusterManager is the ClusterManager that made an object.
	LabelCreatedByClusterManager = "open-cluster-management.io/created-by-clustermanager"
	// LabelCreatedByKlusterlet is the Klusterlet that made an object.
	LabelCreatedByKlusterlet = "open-cluster-management.io/created-by-klusterlet"
	// LabelAggregateToWork on a ClusterRole of a managed cluster grants its rules to the work agent.
	LabelAggregateToWork = "open-cluster-management.io/aggregate-to-work"
	// LabelApp and its value AppClusterManager mark the bootstrap tokens of a hub.
	LabelApp = "app"
	// AppClusterManager is the value of LabelApp on bootstrap tokens.
	AppClusterManager = "cluster-manager"
)

// LabelTrue is the value that switches labels and annotations on.
const LabelTrue = "true"

// AddOnFeatureLabel is the label of a ManagedCluster that says how an add-on is doing there.
func AddOnFeatureLabel(addOn string) string {
	return LabelAddOnFeaturePrefix + addOn
}

// ManagedNamespaceLabel is the label of namespaces that the sets of a hub want on a managed cluster.
// The argument is what HubHash returns; a label name holds its first 63 characters.
func ManagedNamespaceLabel(hubHash string) string {
	return LabelManagedNamespacePrefix + labelName(hubHash)
}

// ManagedNamespaceAnnotation is the annotation of namespaces that says for which ManagedCluster of a hub they have the label
// ManagedNamespaceLabel, whose argument it takes.
func ManagedNamespaceAnnotation(hubHash string) string {
	return AnnotationManagedNamespacePrefix + labelName(hubHash)
}

// ServiceAccountsLabels are the labels, whose value is LabelTrue, of a namespace on a managed cluster in which the agent of a cluster keeps
// service accounts of ManagedServiceAccounts. One of them is that of each agent of the cluster for the hub with the hash, the other that of
// the agent with the ID, whatever its hub: accounts are left to either.
func ServiceAccountsLabels(cluster, hubHash, agent string) []string {
	return []string{
		LabelServiceAccountsPrefix + "hub-" + digest(cluster+"/"+hubHash), LabelServiceAccountsPrefix + "agent-" + digest(cluster+"/"+agent),
	}
}

// labelName is as much of a hash as the name of a label or an annotation holds.
func labelName(hash string) string {
	const longest = 63
	return hash[:min(len(hash), longest)]
}

// ManifestWorkReplicaSetKey is the value of LabelManifestWorkReplicaSet: namespace and name with a dot between, and what
// LabelValue makes of that if it is too long. No two sets have the same, since a namespace has no dot.
func ManifestWorkReplicaSetKey(namespace, name string) string {
	return LabelValue(namespace + "." + name)
}

// RequesterLabel is a user name as the value of LabelRequestedBy, or the ID of a credential as that of LabelRequestedWith: with dots for
// colons, or a hash of it where that is no label yet.
func RequesterLabel(requester string) string {
	value := LabelValue(strings.ReplaceAll(requester, ":", "."))
	if len(validation.IsValidLabelValue(value)) == 0 {
		return value
	}
	return digest(requester)
}

// digest is the first half of the SHA-256 of a text, in hexadecimal.
func digest(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:16])
}

// LabelValue returns a name as the value of a label. For a name that is too long, it is the beginning of the name, a dash and a hash of
// the whole name. Lookups by the label use this function, too.
func LabelValue(name string) string {
	const longest = 63
	if len(name) <= longest {
		return name
	}
	return name[:longest-hashSuffix] + suffixOf(name)
}
