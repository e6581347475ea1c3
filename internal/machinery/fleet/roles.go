package fleet

import rbacv1 "k8s.io/api/rbac/v1"

// Roles on the hub, and their bindings where those have a name of their own.
const (
	// ClusterRoleBootstrap lets an agent join.
	ClusterRoleBootstrap = "open-cluster-management:bootstrap"
	// ClusterRoleBindingBootstrapTokens binds it to GroupBootstrap.
	ClusterRoleBindingBootstrapTokens = "open-cluster-management:bootstrap:managedcluster"
	// ClusterRoleBindingBootstrapServiceAccount binds it to ServiceAccountBootstrap.
	ClusterRoleBindingBootstrapServiceAccount = "open-cluster-management:bootstrap:agent-registration"
	// ClusterRoleRegistration lets an agent keep its lease and report on its add-ons.
	ClusterRoleRegistration = "open-cluster-management:managedcluster:registration"
	// ClusterRoleWork lets an agent read and report on its ManifestWorks.
	ClusterRoleWork = "open-cluster-management:managedcluster:work"
)

// Groups, resources and verbs that exist only to be authorised.
const (
	// GroupRegister is the API group of ResourceManagedClusters with the subresources accept and clientcertificates.
	GroupRegister = "register.open-cluster-management.io"
	// ResourceManagedClusters, with SubresourceAccept or SubresourceClientCertificates.
	ResourceManagedClusters = "managedclusters"
	// SubresourceAccept needs the verb update to set spec.hubAcceptsClient of a ManagedCluster to true.
	SubresourceAccept = "accept"
	// SubresourceClientCertificates is renewed, by VerbRenew, by agents with a certificate.
	SubresourceClientCertificates = "clientcertificates"
	// VerbRenew is to renew a client certificate.
	VerbRenew = "renew"
	// SubresourceProxy of a ManagedCluster is the API of the cluster. Who has a verb on it may send requests that have the verb.
	SubresourceProxy = "proxy"
	// SubresourceTunnel is created by the agent of a cluster for the requests that come through SubresourceProxy.
	SubresourceTunnel = "tunnel"
	// SubresourceAttach is SubresourceTunnel of a hub in an existing cluster.
	SubresourceAttach = "attach"
	// SubresourcePortForward is created by other processes of the hub, to connect to addresses as the agent of the cluster reaches them.
	SubresourcePortForward = "portforward"
	// SubresourceStream is created by other processes of the hub that have its API, to open a stream in the tunnel of the cluster.
	SubresourceStream = "stream"
	// SubresourceJoin of managedclustersets needs the verb create to move a cluster into or out of a set.
	SubresourceJoin = "join"
	// SubresourceBind of managedclustersets needs the verb create to bind a set to a namespace.
	SubresourceBind = "bind"
	// VerbExecuteAs on manifestworks is to set the executor of a ManifestWork.
	VerbExecuteAs = "execute-as"
	// VerbSubscribe on serviceaccounts/token is to receive tokens through the gRPC server.
	VerbSubscribe = "subscribe"
)

// ManagedClusterClusterRole is the ClusterRole, and its binding, by which the agents of a cluster use the hub.
func ManagedClusterClusterRole(cluster string) string {
	return "open-cluster-management:managedcluster:" + cluster
}

// GRPCServerClusterRole is the ClusterRole, and its binding, of the gRPC server of the hub of a ClusterManager.
func GRPCServerClusterRole(clusterManager string) string {
	return "open-cluster-management:" + clusterManager + "-grpc-server"
}

// RegistrationRoleBinding binds ClusterRoleRegistration to the agents of a cluster in its namespace.
func RegistrationRoleBinding(cluster string) string {
	return ManagedClusterClusterRole(cluster) + ":registration"
}

// WorkRoleBinding binds ClusterRoleWork to the agents of a cluster in its namespace. It carries
// FinalizerManifestWorkCleanup.
func WorkRoleBinding(cluster string) string {
	return ManagedClusterClusterRole(cluster) + ":work"
}

// RemainingWorksRole is the role, and its binding, in the namespace of a denied cluster by which its agents may finalize the works that
// were there when it was denied. It is an extension. It carries FinalizerManifestWorkCleanup.
func RemainingWorksRole(cluster string) string {
	return ManagedClusterClusterRole(cluster) + ":remaining-works"
}

// AddOnTokenRole is the role, and its binding, in the namespace of a cluster by which its agent may create tokens for
// an add-on.
func AddOnTokenRole(addOn string) string {
	return addOn + "-token-role"
}

// BootstrapRules let an agent request a certificate and create its ManagedCluster, in a set if it may. Those of
// ClusterRoleBootstrap have the verbs get, create, list and watch on ManagedClusters. They are narrower than those of the
// original in what no agent uses to join: of the ConfigMaps only those that say where the hub
// is and whom to trust can be read, not all of them; and no ManagedCluster can be updated, which would let joining agents
// change the labels and addresses of every other cluster.
func BootstrapRules(clusterVerbs ...string) []rbacv1.PolicyRule {
	const clusterGroup = "cluster.open-cluster-management.io"
	return []rbacv1.PolicyRule{
		{APIGroups: []string{""}, Resources: []string{"configmaps"}, Verbs: []string{"get"},
			ResourceNames: []string{"cluster-info", "kube-root-ca.crt", ConfigMapCABundle}},
		{APIGroups: []string{"certificates.k8s.io"}, Resources: []string{"certificatesigningrequests"},
			Verbs: []string{"create", "get", "list", "watch"}},
		{APIGroups: []string{clusterGroup}, Resources: []string{ResourceManagedClusters}, Verbs: clusterVerbs},
		{APIGroups: []string{clusterGroup}, Resources: []string{"managedclustersets/" + SubresourceJoin}, Verbs: []string{"create"}},
	}
}
