// Package rightstest has rules to test operators with. They are fewer than those of our charts, and no more than the charts of Open Cluster
// Management are known to give: some Secrets by name, and nothing of network policies, PodDisruptionBudgets and
// ValidatingAdmissionPolicies.
package rightstest

import (
	"context"
	"slices"

	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	authorizationv1client "k8s.io/client-go/kubernetes/typed/authorization/v1"
)

var (
	read  = []string{"get", "list", "watch"}
	write = []string{"create", "get", "list", "update", "watch", "patch", "delete"}
)

func rule(verbs []string, group string, resources ...string) rbacv1.PolicyRule {
	return rbacv1.PolicyRule{APIGroups: []string{group}, Resources: resources, Verbs: verbs}
}

func named(r rbacv1.PolicyRule, names ...string) rbacv1.PolicyRule {
	r.ResourceNames = names
	return r
}

// common are the rules of both operators.
func common() []rbacv1.PolicyRule {
	return []rbacv1.PolicyRule{
		rule([]string{"create"}, "authorization.k8s.io", "subjectaccessreviews"),
		rule(read, "", "nodes"),
		rule(write, "", "configmaps", "namespaces", "serviceaccounts"),
		rule([]string{"create", "patch", "update"}, "", "events"),
		rule([]string{"create", "patch", "update"}, "events.k8s.io", "events"),
		rule(write, "coordination.k8s.io", "leases"),
		rule(write, "apps", "deployments"),
		rule([]string{"get"}, "apps", "replicasets"),
		rule([]string{"get"}, "", "pods"),
		rule(write, rbacv1.GroupName, "clusterrolebindings", "rolebindings"),
		rule(append([]string{"escalate", "bind"}, write...), rbacv1.GroupName, "clusterroles", "roles"),
		rule(write, "apiextensions.k8s.io", "customresourcedefinitions"),
		rule([]string{"update", "patch"}, "apiextensions.k8s.io", "customresourcedefinitions/status"),
	}
}

// ClusterManager are the rules of the operator of hubs.
func ClusterManager() []rbacv1.PolicyRule {
	return append(common(),
		rule(write, "", "services", "endpoints"),
		rule([]string{"create"}, "", "serviceaccounts/token"),
		rule([]string{"create"}, "", "secrets"),
		named(rule([]string{"get", "list", "watch", "update", "delete"}, "", "secrets"), "signer-secret",
			"registration-webhook-serving-cert", "work-webhook-serving-cert", "addon-webhook-serving-cert", "grpc-server-serving-cert",
			"external-hub-kubeconfig", "open-cluster-management-image-pull-credentials"),
		rule(write, "admissionregistration.k8s.io", "mutatingwebhookconfigurations", "validatingwebhookconfigurations"),
		rule([]string{"get", "list", "watch", "update", "patch", "delete"}, "operator.open-cluster-management.io", "clustermanagers"),
		rule([]string{"update", "patch"}, "operator.open-cluster-management.io", "clustermanagers/status"),
		rule([]string{"update"}, "operator.open-cluster-management.io", "clustermanagers/finalizers"),
		rule([]string{"get", "list", "watch", "update", "patch"}, "work.open-cluster-management.io", "manifestworks"),
		rule(append([]string{"delete"}, read...), "cluster.open-cluster-management.io", "managedclusters"),
		rule(append([]string{"delete"}, read...), "addon.open-cluster-management.io", "managedclusteraddons"),
	)
}

// Klusterlet are the rules of the operator of agents.
func Klusterlet() []rbacv1.PolicyRule {
	return append(common(),
		rule([]string{"create"}, "", "secrets"),
		named(rule([]string{"get", "list", "watch", "update", "delete"}, "", "secrets"), "hub-kubeconfig-secret", "bootstrap-hub-kubeconfig",
			"external-managed-kubeconfig"),
		rule([]string{"create"}, "", "serviceaccounts/token"),
		rule([]string{"get", "list", "watch", "update", "patch", "delete"}, "operator.open-cluster-management.io", "klusterlets"),
		rule([]string{"update", "patch"}, "operator.open-cluster-management.io", "klusterlets/status"),
		rule([]string{"update"}, "operator.open-cluster-management.io", "klusterlets/finalizers"),
		rule([]string{"list", "update", "patch"}, "work.open-cluster-management.io", "appliedmanifestworks"),
	)
}

// Reviewer answers by rules, which hold in all namespaces.
type Reviewer struct {
	authorizationv1client.SelfSubjectAccessReviewInterface
	Rules []rbacv1.PolicyRule
}

// Create implements authorizationv1client.SelfSubjectAccessReviewInterface.
func (r Reviewer) Create(_ context.Context, review *authorizationv1.SelfSubjectAccessReview, _ metav1.CreateOptions) (
	*authorizationv1.SelfSubjectAccessReview, error,
) {
	answer, attributes := review.DeepCopy(), review.Spec.ResourceAttributes
	answer.Status.Allowed = slices.ContainsFunc(r.Rules, func(rule rbacv1.PolicyRule) bool {
		return slices.Contains(rule.Verbs, attributes.Verb) && slices.Contains(rule.APIGroups, attributes.Group) &&
			slices.Contains(rule.Resources, attributes.Resource) &&
			(len(rule.ResourceNames) == 0 || slices.Contains(rule.ResourceNames, attributes.Name))
	})
	return answer, nil
}
