package klusterlet

import (
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capstan-io/capstan/internal/featuregates"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
)

// Verbs that rules have together.
var (
	read  = []string{"get", "list", "watch"}
	write = []string{"get", "list", "watch", "create", "update", "patch", "delete"}
)

func rule(verbs []string, group string, resources ...string) rbacv1.PolicyRule {
	return rbacv1.PolicyRule{APIGroups: []string{group}, Resources: resources, Verbs: verbs}
}

// managedRights are what the agents may do on the managed cluster.
func (l layout) managedRights() []client.Object {
	registration, work := "open-cluster-management:"+l.klusterlet.Name+"-registration:", "open-cluster-management:"+l.klusterlet.Name+"-work:"
	aggregate := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: aggregateRole(l.klusterlet.Name)},
		AggregationRule: &rbacv1.AggregationRule{ClusterRoleSelectors: []metav1.LabelSelector{
			{MatchLabels: map[string]string{fleet.LabelAggregateToWork: "true"}}}}}
	execution := clusterRole(work+"execution", executionRules()...)
	execution.Labels = map[string]string{fleet.LabelAggregateToWork: "true"}
	rights := []client.Object{
		clusterRole(registration+"agent", registrationRules()...),
		l.bindCluster(registration+"agent", registration+"agent", l.registrationAccount),
		clusterRole(registration+"addon-management", addOnRules()...),
		l.bindCluster(registration+"addon-management", registration+"addon-management", l.registrationAccount),
		clusterRole(registration+"managed-serviceaccount", rule([]string{"create"}, "authentication.k8s.io", "tokenreviews")),
		l.bindCluster(registration+"managed-serviceaccount", registration+"managed-serviceaccount", l.registrationAccount),
		clusterRole(work+"agent", workRules()...),
		l.bindCluster(work+"agent", work+"agent", l.workAccount),
		execution,
		aggregate,
		l.bindCluster(work+"aggregate", work+"aggregate", l.workAccount),
		l.bindCluster(work+"execution-admin", "admin", l.workAccount),
	}
	if l.registrationGates.Enabled(featuregates.ClusterProxy) {
		rights = append(rights, clusterRole(registration+"cluster-proxy", clusterProxyRules()...),
			l.bindCluster(registration+"cluster-proxy", registration+"cluster-proxy", l.registrationAccount))
	}
	return rights
}

// accountRights let the agent keep the service accounts of ManagedServiceAccounts, and get tokens of them. Tokens of any service account of
// the cluster would make it an administrator, so it may do so in one namespace, in which nothing else runs with more rights than the agents
// of add-ons have.
func (l layout) accountRights() []client.Object {
	name := "open-cluster-management:" + l.klusterlet.Name + "-registration:managed-serviceaccount"
	role := &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Namespace: fleet.NamespaceAgentAddOn, Name: name}, Rules: []rbacv1.PolicyRule{
		rule([]string{"get", "list", "watch", "create", "patch", "delete"}, "", "serviceaccounts"),
		rule([]string{"create"}, "", "serviceaccounts/token"),
	}}
	binding := l.bind(fleet.NamespaceAgentAddOn, name)
	binding.Subjects = subjects(l.accounts, []string{l.registrationAccount})
	return []client.Object{role, binding}
}

// aggregateRole is the name of the ClusterRole with the rights of works.
func aggregateRole(klusterlet string) string {
	return "open-cluster-management:" + klusterlet + "-work:aggregate"
}

// registrationRules let the agent report on the cluster, and create the namespaces that its cluster sets want.
func registrationRules() []rbacv1.PolicyRule {
	return []rbacv1.PolicyRule{
		rule(read, "", "nodes"),
		rule([]string{"create", "get", "list", "update", "watch", "patch"}, "", "namespaces"),
		rule(read, "cluster.open-cluster-management.io", "clusterclaims"),
		rule(read, "about.k8s.io", "clusterproperties"),
	}
}

// addOnRules let the agent keep the credentials of add-ons, in the namespaces of their agents, and see whether these are alive.
func addOnRules() []rbacv1.PolicyRule {
	return []rbacv1.PolicyRule{
		rule(write, "", "secrets"),
		rule([]string{"create", "get", "list", "update", "watch", "patch"}, "coordination.k8s.io", "leases"),
	}
}

// clusterProxyRules let the agent hand on requests of users of the hub, under the names that these have on the cluster, and read what the
// cluster lets through.
func clusterProxyRules() []rbacv1.PolicyRule {
	return []rbacv1.PolicyRule{
		rule([]string{"impersonate"}, "", "users", "groups"),
		{APIGroups: []string{""}, Resources: []string{"configmaps"}, Verbs: read, ResourceNames: []string{fleet.ConfigMapHubAccess}},
	}
}

// workRules let the agent record what it has applied, and find out what the executor of a work may do.
func workRules() []rbacv1.PolicyRule {
	const group = "work.open-cluster-management.io"
	return []rbacv1.PolicyRule{
		rule(write, group, "appliedmanifestworks"),
		rule([]string{"patch", "update"}, group, "appliedmanifestworks/status"),
		rule([]string{"update"}, group, "appliedmanifestworks/finalizers"),
		rule([]string{"create"}, "authorization.k8s.io", "subjectaccessreviews"),
		rule([]string{"impersonate"}, "", "serviceaccounts"),
	}
}

// executionRules let works have, in addition to what the built-in role admin grants, what belongs to no namespace. Those of an
// administrator of the cluster extend them by the label of ClusterRoles.
func executionRules() []rbacv1.PolicyRule {
	const admission = "admissionregistration.k8s.io"
	return []rbacv1.PolicyRule{
		rule(write, "apiextensions.k8s.io", "customresourcedefinitions"),
		rule([]string{"create", "update", "patch", "delete"}, "", "namespaces"),
		rule(append([]string{"escalate", "bind"}, write...), rbacv1.GroupName, "clusterroles", "clusterrolebindings", "roles", "rolebindings"),
		rule(write, "monitoring.coreos.com", "servicemonitors"),
		rule(write, "oauth.openshift.io", "oauthclients"),
		rule(write, "scheduling.k8s.io", "priorityclasses"),
		rule(write, admission, "mutatingwebhookconfigurations", "validatingwebhookconfigurations"),
	}
}

// managementRights are what the agents may do on the cluster where they run.
func (l layout) managementRights() []client.Object {
	prefix := "open-cluster-management:management:" + l.klusterlet.Name
	registration, work := prefix+"-registration:", prefix+"-work:"
	const system = "kube-system"
	authentication := &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Namespace: system, Name: prefix + ":extension-apiserver"},
		Rules: []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"configmaps"}, Verbs: read,
			ResourceNames: []string{"extension-apiserver-authentication"}}}}
	return []client.Object{
		l.role(registration+"agent", agentRules(write)...), l.bind(l.agents, registration+"agent", l.registrationAccount),
		l.role(work+"agent", agentRules(read)...), l.bind(l.agents, work+"agent", l.workAccount),
		clusterRole(registration+"addon-management", addOnRules()...),
		l.bindClusterOf(l.agents, registration+"addon-management", registration+"addon-management", l.registrationAccount),
		authentication, l.bind(system, prefix+":extension-apiserver", l.accountNames()...),
		// Who reads metrics of an agent is authenticated and authorized by the API.
		l.bindClusterOf(l.agents, prefix+":metrics", "system:auth-delegator", l.accountNames()...),
	}
}

// agentRules let an agent use its credential for the hub, elect a leader, and record events.
func agentRules(secrets []string) []rbacv1.PolicyRule {
	return []rbacv1.PolicyRule{
		rule(secrets, "", "secrets"),
		rule(write, "", "configmaps"),
		rule([]string{"create", "get", "list", "update", "watch", "patch"}, "coordination.k8s.io", "leases"),
		rule([]string{"create", "patch", "update"}, "", "events"),
		rule([]string{"create", "patch", "update"}, "events.k8s.io", "events"),
		rule([]string{"get"}, "", "pods", "namespaces"),
		rule([]string{"get"}, "apps", "replicasets"),
	}
}

func clusterRole(name string, rules ...rbacv1.PolicyRule) *rbacv1.ClusterRole {
	return &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: name}, Rules: rules}
}

func (l layout) role(name string, rules ...rbacv1.PolicyRule) *rbacv1.Role {
	return &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Namespace: l.agents, Name: name}, Rules: rules}
}

// bindCluster binds a ClusterRole to a service account of the managed cluster.
func (l layout) bindCluster(name, role string, accounts ...string) *rbacv1.ClusterRoleBinding {
	return l.bindClusterOf(l.accounts, name, role, accounts...)
}

func (l layout) bindClusterOf(namespace, name, role string, accounts ...string) *rbacv1.ClusterRoleBinding {
	return &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: name},
		RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role}, Subjects: subjects(namespace, accounts)}
}

// bind binds the Role of that name, in the namespace, to service accounts of agents.
func (l layout) bind(namespace, name string, accounts ...string) *rbacv1.RoleBinding {
	return &rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: name}, Subjects: subjects(l.agents, accounts)}
}

func subjects(namespace string, accounts []string) (subjects []rbacv1.Subject) {
	for _, account := range accounts {
		subjects = append(subjects, rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Namespace: namespace, Name: account})
	}
	return subjects
}
