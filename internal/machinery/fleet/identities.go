package fleet

import (
	"fmt"
	"slices"
	"strings"
)

// Groups that identities on the hub belong to.
const (
	// GroupManagedClusters is the group of the agents of all clusters.
	GroupManagedClusters = identityPrefix + "managed-clusters"
	// GroupClusterProxyAgents is the group of the agents of OCM's add-on cluster-proxy on all clusters. It has the form of AWSClusterGroup.
	GroupClusterProxyAgents = awsGroupPrefix + AddOnClusterProxy
	// GroupBootstrap is the group of bootstrap tokens, which may request a certificate and no more.
	GroupBootstrap = "system:bootstrappers:managedcluster"
	// GroupAuthenticated is the group of everybody the API server knows.
	GroupAuthenticated = "system:authenticated"
)

// Signers of the certificates of agents and add-ons.
const (
	// SignerKubeAPIServerClient signs client certificates for the API server of the hub.
	SignerKubeAPIServerClient = "kubernetes.io/kube-apiserver-client"
	// SignerGRPC signs client certificates for the gRPC server of the hub.
	SignerGRPC = "open-cluster-management.io/grpc"
)

// IsReservedSigner reports whether Kubernetes or the hub trusts the certificates of a signer, so that add-ons may not have them signed.
func IsReservedSigner(signer string) bool {
	domain, _, _ := strings.Cut(signer, "/")
	return signer == SignerGRPC || domain == "kubernetes.io" || strings.HasSuffix(domain, ".kubernetes.io") ||
		strings.HasSuffix(domain, ".k8s.io")
}

// AgentUserAgent is as what an agent of ours sends its requests, and so the field manager of what it writes on the hub: those of
// other implementations do not know our extensions.
const AgentUserAgent = "capstan-agent"

// KlusterletOperatorUserAgent is as what the operator of agents sends its requests, and so the field manager of what it applies.
const KlusterletOperatorUserAgent = "capstan-klusterlet-operator"

// CSRApprovalReason is the reason on certificate requests that the hub approves by itself.
const CSRApprovalReason = "AutoApprovedByHubCSRApprovingController"

const (
	identityPrefix     = "system:open-cluster-management:"
	awsGroupPrefix     = "open-cluster-management:"
	addOnDNSSuffix     = ".addon.open-cluster-management.io"
	serviceAccountUser = "system:serviceaccount:"
)

// ClusterUser is the user as whom an agent of a cluster acts on the hub, the common name of its certificate.
func ClusterUser(cluster, agent string) string {
	return identityPrefix + cluster + ":" + agent
}

// ParseClusterUser takes a user apart that ClusterUser made. The error says what is wrong with any other user.
func ParseClusterUser(user string) (cluster, agent string, err error) {
	rest, ok := strings.CutPrefix(user, identityPrefix)
	if !ok {
		return "", "", notAClusterUser(user)
	}
	cluster, agent, _ = strings.Cut(rest, ":")
	if cluster == "" || agent == "" || strings.Contains(agent, ":") {
		return "", "", notAClusterUser(user)
	}
	return cluster, agent, nil
}

func notAClusterUser(user string) error {
	return fmt.Errorf("user %q is not the agent of a cluster, which would be %q", user, ClusterUser("CLUSTER", "AGENT"))
}

// ClusterGroup is the group of all agents of a cluster.
func ClusterGroup(cluster string) string {
	return identityPrefix + cluster
}

// IsAgentIdentity reports whether a user or a group is one of those that a hub gives to agents of clusters and of add-ons. No part of
// Kubernetes has such a name.
func IsAgentIdentity(userOrGroup string) bool {
	return strings.HasPrefix(userOrGroup, identityPrefix)
}

// ReservedClusterName reports whether no cluster can have a name, because what is made of it would be something else: the
// group of the agents of all clusters, or of those of an add-on of OCM, a role that all of them share, or a namespace that the hub has
// for itself.
func ReservedClusterName(cluster string) bool {
	switch cluster {
	case "default", "kube-system", "kube-public", "kube-node-lease", NamespaceOperators, NamespaceHub, NamespaceAddOn, NamespaceCredentials:
		return true
	}
	return ClusterGroup(cluster) == GroupManagedClusters || AWSClusterGroup(cluster) == GroupClusterProxyAgents ||
		ManagedClusterClusterRole(cluster) == ClusterRoleRegistration ||
		ManagedClusterClusterRole(cluster) == ClusterRoleWork
}

// ClusterGroups are the groups of an agent of a cluster, the organisations of its certificate.
func ClusterGroups(cluster string) []string {
	return []string{ClusterGroup(cluster), GroupManagedClusters}
}

// AWSClusterGroup is the group of the agents of a cluster that joins through AWS IAM. Whatever ClusterGroup is granted,
// it is granted as well.
func AWSClusterGroup(cluster string) string {
	return awsGroupPrefix + cluster
}

// AWSClusterUser is the user as whom the agents of such a cluster act on the hub. A bare name may be that of a person, to whom roles are
// bound.
func AWSClusterUser(cluster string) string {
	return awsGroupPrefix + cluster
}

// AgentClusters returns the clusters as whose agent a user in these groups acts on the hub: one for an agent, none for other users.
func AgentClusters(groups []string) []string {
	var clusters []string
	for _, group := range groups {
		cluster, ok := strings.CutPrefix(group, identityPrefix)
		if !ok {
			cluster, ok = strings.CutPrefix(group, awsGroupPrefix)
		}
		// The groups of add-ons go on after the name of the cluster.
		if ok && cluster != "" && !strings.Contains(cluster, ":") && group != GroupManagedClusters && !slices.Contains(clusters, cluster) {
			clusters = append(clusters, cluster)
		}
	}
	return clusters
}

// ClustersBehind returns the clusters that a user acts for: as the agent of one, as an add-on on it, or as a service account in its
// namespace, as add-ons with tokens do. Most service accounts of the hub are in other namespaces; those in one whose name is reserved act
// for no cluster.
func ClustersBehind(user string, groups []string) []string {
	clusters := AgentClusters(groups)
	add := func(cluster string) {
		if cluster != "" && !slices.Contains(clusters, cluster) {
			clusters = append(clusters, cluster)
		}
	}
	for _, name := range append([]string{user}, groups...) {
		if rest, ok := strings.CutPrefix(name, identityPrefix+"cluster:"); ok {
			cluster, _, _ := strings.Cut(rest, ":")
			add(cluster)
		}
	}
	if cluster, _, err := ParseClusterUser(user); err == nil && !strings.HasPrefix(user, identityPrefix+"cluster:") {
		add(cluster)
	}
	if rest, ok := strings.CutPrefix(user, serviceAccountUser); ok {
		if namespace, _, _ := strings.Cut(rest, ":"); !ReservedClusterName(namespace) {
			add(namespace)
		}
	}
	return clusters
}

// IsAgentOn reports whether a user counts as an agent in the namespace of a cluster: the agent of any cluster, an add-on on any, or a
// service account in this namespace, as add-ons with tokens use. Service accounts in other namespaces count as managers on the hub.
func IsAgentOn(cluster, user string, groups []string) bool {
	return IsAgentIdentity(user) || slices.ContainsFunc(groups, IsAgentIdentity) || len(AgentClusters(groups)) > 0 ||
		strings.HasPrefix(user, ServiceAccountUser(cluster, ""))
}

// IsJoining reports whether a user has a bootstrap credential, with which agents join: a bootstrap token, or a token of
// ServiceAccountBootstrap or of the account that was used before it. Charts make ServiceAccountBootstrap in the namespace of their release,
// so it counts in each. Whoever it is has fewer rights for it, and none more.
func IsJoining(user string, groups []string) bool {
	return slices.Contains(groups, GroupBootstrap) ||
		strings.HasPrefix(user, serviceAccountUser) && strings.HasSuffix(user, ":"+ServiceAccountBootstrap) ||
		user == ServiceAccountUser(NamespaceOperators, ServiceAccountLegacyBootstrap)
}

// GRPCServerUser is the user as whom the gRPC server of a hub in this namespace writes for agents and for those who join.
func GRPCServerUser(hubNamespace string) string {
	return ServiceAccountUser(hubNamespace, ServiceAccountGRPCServer)
}

// ClusterCSRGenerateName is the prefix of the names of the certificate requests of a cluster.
func ClusterCSRGenerateName(cluster string) string {
	return cluster + "-"
}

// AddOnUser is the user as whom an agent of an add-on acts on the hub.
func AddOnUser(cluster, addOn, agent string) string {
	return AddOnGroup(cluster, addOn) + ":agent:" + agent
}

// TemplateAgent returns the name of the agent of an AddOnTemplate in its user name, which charts rely on. A registration of a
// ManagedClusterAddOn without a subject has the name of the add-on itself.
func TemplateAgent(addOn string) string {
	return addOn + "-agent"
}

// AddOnGroup is the group of the agents of an add-on on one cluster.
func AddOnGroup(cluster, addOn string) string {
	return identityPrefix + "cluster:" + cluster + ":addon:" + addOn
}

// AddOnGroups are the groups of an agent of an add-on: on its cluster, and on all of them.
func AddOnGroups(cluster, addOn string) []string {
	return []string{AddOnGroup(cluster, addOn), identityPrefix + "addon:" + addOn}
}

// AddOnDNSName is the DNS name in the certificate requests of an add-on.
func AddOnDNSName(addOn string) string {
	return addOn + addOnDNSSuffix
}

// AddOnCSRGenerateName is the prefix of the names of the certificate requests of an add-on.
func AddOnCSRGenerateName(cluster, addOn string) string {
	return "addon-" + cluster + "-" + addOn + "-"
}

// AddOnServiceAccount is the service account, in the namespace of the cluster, of an add-on that registers with
// tokens.
func AddOnServiceAccount(addOn string) string {
	return addOn + "-agent"
}

// AddOnTokenUser is the user as whom such an add-on acts on the hub.
func AddOnTokenUser(cluster, addOn string) string {
	return ServiceAccountUser(cluster, AddOnServiceAccount(addOn))
}

// NoExecutor is the name to execute a ManifestWork as that names no executor: that of the agent itself.
const NoExecutor = "system:serviceaccount::klusterlet-work-sa"

// ServiceAccountUser is the user that a service account acts as. It is also the name to execute a ManifestWork as.
func ServiceAccountUser(namespace, name string) string {
	return serviceAccountUser + namespace + ":" + name
}

// ServiceAccountGroups are the groups that Kubernetes puts every service account of a namespace into.
func ServiceAccountGroups(namespace string) []string {
	return []string{"system:serviceaccounts", GroupAuthenticated, "system:serviceaccounts:" + namespace}
}
