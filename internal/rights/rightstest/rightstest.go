// Package rightstest has the rules that the charts of Open Cluster Management give their operators, to test ours with them: they are fewer
// than those of our charts.
package rightstest

import (
	"context"
	_ "embed"
	"fmt"
	"slices"

	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	authorizationv1client "k8s.io/client-go/kubernetes/typed/authorization/v1"
	"sigs.k8s.io/yaml"
)

//go:embed cluster-manager.yaml
var clusterManager []byte

//go:embed klusterlet.yaml
var klusterlet []byte

// ClusterManager are the rules of the operator of hubs.
func ClusterManager() []rbacv1.PolicyRule { return decode(clusterManager) }

// Klusterlet are the rules of the operator of agents.
func Klusterlet() []rbacv1.PolicyRule { return decode(klusterlet) }

// decode panics on a file that is broken, because that is an error of the build.
func decode(file []byte) (rules []rbacv1.PolicyRule) {
	if err := yaml.UnmarshalStrict(file, &rules); err != nil {
		panic(fmt.Sprintf("decode embedded rules: %v", err))
	}
	return rules
}

// Reviewer answers by rules, which apply in all namespaces.
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

// RulesReviewer answers with rules, which apply in all namespaces.
type RulesReviewer struct {
	authorizationv1client.SelfSubjectRulesReviewInterface
	Rules []rbacv1.PolicyRule
}

// Create implements authorizationv1client.SelfSubjectRulesReviewInterface.
func (r RulesReviewer) Create(_ context.Context, review *authorizationv1.SelfSubjectRulesReview, _ metav1.CreateOptions) (
	*authorizationv1.SelfSubjectRulesReview, error,
) {
	answer := review.DeepCopy()
	for _, rule := range r.Rules {
		answer.Status.ResourceRules = append(answer.Status.ResourceRules, authorizationv1.ResourceRule{APIGroups: rule.APIGroups,
			Resources: rule.Resources, ResourceNames: rule.ResourceNames, Verbs: rule.Verbs})
	}
	return answer, nil
}
