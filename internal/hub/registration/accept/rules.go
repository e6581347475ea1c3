package accept

import (
	rbacv1 "k8s.io/api/rbac/v1"

	clusterv1 "github.com/capstan-io/capstan/api/cluster/v1"
	workv1 "github.com/capstan-io/capstan/api/work/v1"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
)

// addOnGroup is the API group of add-ons. The constant keeps this package free of the types of that API.
const addOnGroup = "addon.open-cluster-management.io"

// acceptedRules are the rights of the agent of an accepted cluster outside of its namespace.
func acceptedRules(cluster string) []rbacv1.PolicyRule {
	return []rbacv1.PolicyRule{
		{APIGroups: []string{"certificates.k8s.io"}, Resources: []string{"certificatesigningrequests"},
			Verbs: []string{"create", "get", "list", "watch"}},
		{APIGroups: []string{fleet.GroupRegister}, Resources: []string{fleet.ResourceManagedClusters + "/" + fleet.SubresourceClientCertificates},
			Verbs: []string{fleet.VerbRenew}},
		{APIGroups: []string{clusterv1.GroupVersion.Group}, Resources: []string{"managedclusters"}, ResourceNames: []string{cluster},
			Verbs: []string{"get", "list", "update", "watch"}},
		{APIGroups: []string{clusterv1.GroupVersion.Group}, Resources: []string{"managedclusters/status"}, ResourceNames: []string{cluster},
			Verbs: []string{"patch", "update"}},
	}
}

// deniedRules let the agent of a denied cluster read that it was denied.
func deniedRules(cluster string) []rbacv1.PolicyRule {
	return []rbacv1.PolicyRule{
		{APIGroups: []string{clusterv1.GroupVersion.Group}, Resources: []string{"managedclusters"}, ResourceNames: []string{cluster},
			Verbs: []string{"get", "list", "watch"}},
	}
}

// remainingWorksRules let the agent of a denied cluster finalize works by name.
func remainingWorksRules(works []string) []rbacv1.PolicyRule {
	return []rbacv1.PolicyRule{
		{APIGroups: []string{workv1.GroupVersion.Group}, Resources: []string{"manifestworks"}, ResourceNames: works,
			Verbs: []string{"get", "update", "patch"}},
		{APIGroups: []string{workv1.GroupVersion.Group}, Resources: []string{"manifestworks/status"}, ResourceNames: works,
			Verbs: []string{"patch", "update"}},
	}
}

// commonRules are the rights of the agent of every accepted cluster in the cluster's own namespace.
var commonRules = map[string][]rbacv1.PolicyRule{
	fleet.ClusterRoleRegistration: {
		{APIGroups: []string{"coordination.k8s.io"}, Resources: []string{"leases"}, Verbs: []string{"get", "list", "watch", "update"}},
		{APIGroups: []string{addOnGroup}, Resources: []string{"managedclusteraddons"}, Verbs: []string{"get", "list", "watch"}},
		{APIGroups: []string{addOnGroup}, Resources: []string{"managedclusteraddons/status"}, Verbs: []string{"patch", "update"}},
		{APIGroups: []string{"events.k8s.io"}, Resources: []string{"events"}, Verbs: []string{"create"}},
	},
	fleet.ClusterRoleWork: {
		{APIGroups: []string{"", "events.k8s.io"}, Resources: []string{"events"}, Verbs: []string{"create", "patch", "update"}},
		{APIGroups: []string{workv1.GroupVersion.Group}, Resources: []string{"manifestworks"},
			Verbs: []string{"get", "list", "watch", "update", "patch"}},
		{APIGroups: []string{workv1.GroupVersion.Group}, Resources: []string{"manifestworks/status"}, Verbs: []string{"patch", "update"}},
	},
}
