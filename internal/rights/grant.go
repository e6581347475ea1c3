package rights

import (
	"cmp"
	"context"
	"fmt"

	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	authorizationv1client "k8s.io/client-go/kubernetes/typed/authorization/v1"
	"k8s.io/component-helpers/auth/rbac/validation"
)

// RulesReviewer returns the rules of the requester.
type RulesReviewer = authorizationv1client.SelfSubjectRulesReviewInterface

// allNamespaces stands for all namespaces in a review, which has to be about one. No namespace has this name, so what is held there is what
// is held in all of them.
const allNamespaces = "-"

// Held are the rules that the requester has in a namespace, or in all of them if it is empty.
func Held(ctx context.Context, reviewer RulesReviewer, namespace string) (held []rbacv1.PolicyRule, err error) {
	review := &authorizationv1.SelfSubjectRulesReview{
		Spec: authorizationv1.SelfSubjectRulesReviewSpec{Namespace: cmp.Or(namespace, allNamespaces)}}
	answer, err := reviewer.Create(ctx, review, metav1.CreateOptions{})
	if err != nil {
		return nil, fmt.Errorf("find out which rules the operator has: %w", err)
	}
	for _, rule := range answer.Status.ResourceRules {
		held = append(held, rbacv1.PolicyRule{APIGroups: rule.APIGroups, Resources: rule.Resources, ResourceNames: rule.ResourceNames,
			Verbs: rule.Verbs})
	}
	return held, nil
}

// Grantable splits the rules of a role, which are about resources, by what RBAC lets the one who holds other rules grant. A rule that may
// be granted in part is split by group and resource.
func Grantable(held, rules []rbacv1.PolicyRule) (granted, missing []rbacv1.PolicyRule) {
	for _, rule := range rules {
		if covers(held, rule) {
			granted = append(granted, rule)
			continue
		}
		var parts, others []rbacv1.PolicyRule
		for _, part := range validation.BreakdownRule(rule) {
			if covers(held, part) {
				parts = addVerb(parts, part)
			} else {
				others = addVerb(others, part)
			}
		}
		granted, missing = append(granted, parts...), append(missing, others...)
	}
	return granted, missing
}

func covers(held []rbacv1.PolicyRule, rule rbacv1.PolicyRule) bool {
	covered, _ := validation.Covers(held, []rbacv1.PolicyRule{rule})
	return covered
}

// addVerb adds a rule with one verb: to the last rule, if that is about the same.
func addVerb(rules []rbacv1.PolicyRule, rule rbacv1.PolicyRule) []rbacv1.PolicyRule {
	if len(rules) == 0 {
		return []rbacv1.PolicyRule{rule}
	}
	last := &rules[len(rules)-1]
	about := *last
	about.Verbs = rule.Verbs
	if !equality.Semantic.DeepEqual(about, rule) {
		return append(rules, rule)
	}
	last.Verbs = append(last.Verbs, rule.Verbs...)
	return rules
}
