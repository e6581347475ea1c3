package framework

import (
	"context"
	"fmt"
	"strings"
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capstan-io/capstan/internal/machinery/fleet"
	"github.com/capstan-io/capstan/test/env"
)

// awaitGranted waits until the authorizer of the API server knows of a new binding, and of its role. It learns of both from watches, after
// the request that makes them has been answered.
func awaitGranted(t *testing.T, c client.Client, object client.Object) {
	t.Helper()
	var subjects []rbacv1.Subject
	var role client.Object
	switch binding := object.(type) {
	case *rbacv1.RoleBinding:
		subjects, role = binding.Subjects, roleOf(binding.Namespace, binding.RoleRef)
	case *rbacv1.ClusterRoleBinding:
		subjects, role = binding.Subjects, roleOf("", binding.RoleRef)
	}
	if len(subjects) == 0 || c.Get(t.Context(), client.ObjectKeyFromObject(role), role) != nil {
		return
	}
	rules := rulesOf(role)
	if len(rules) == 0 {
		return
	}
	review := authorizationv1.SubjectAccessReview{Spec: accessBy(object.GetNamespace(), rules[0])}
	identify(&review.Spec, subjects[0])
	env.Eventually(t, func(ctx context.Context) error {
		asked := review.DeepCopy()
		if err := c.Create(ctx, asked); err != nil || asked.Status.Allowed {
			return ignoreForbidden(err)
		}
		return fmt.Errorf("%T %s grants nothing yet: %+v", object, client.ObjectKeyFromObject(object), asked)
	})
}

// ignoreForbidden drops the error of clients that may not ask who has which rights.
func ignoreForbidden(err error) error {
	if apierrors.IsForbidden(err) {
		return nil
	}
	return err
}

func roleOf(namespace string, ref rbacv1.RoleRef) client.Object {
	if ref.Kind == "Role" {
		role := &rbacv1.Role{}
		role.Namespace, role.Name = namespace, ref.Name
		return role
	}
	role := &rbacv1.ClusterRole{}
	role.Name = ref.Name
	return role
}

func rulesOf(role client.Object) []rbacv1.PolicyRule {
	switch role := role.(type) {
	case *rbacv1.Role:
		return role.Rules
	case *rbacv1.ClusterRole:
		return role.Rules
	}
	return nil
}

// accessBy is an access that a rule allows in a namespace.
func accessBy(namespace string, rule rbacv1.PolicyRule) authorizationv1.SubjectAccessReviewSpec {
	if len(rule.Resources) == 0 {
		return authorizationv1.SubjectAccessReviewSpec{NonResourceAttributes: &authorizationv1.NonResourceAttributes{
			Path: strings.TrimSuffix(rule.NonResourceURLs[0], "*"), Verb: rule.Verbs[0]}}
	}
	resource, subresource, _ := strings.Cut(rule.Resources[0], "/")
	attributes := &authorizationv1.ResourceAttributes{Namespace: namespace, Verb: rule.Verbs[0], Group: rule.APIGroups[0], Resource: resource,
		Subresource: subresource}
	if len(rule.ResourceNames) > 0 {
		attributes.Name = rule.ResourceNames[0]
	}
	return authorizationv1.SubjectAccessReviewSpec{ResourceAttributes: attributes}
}

func identify(spec *authorizationv1.SubjectAccessReviewSpec, subject rbacv1.Subject) {
	switch subject.Kind {
	case rbacv1.ServiceAccountKind:
		spec.User = fleet.ServiceAccountUser(subject.Namespace, subject.Name)
	case rbacv1.GroupKind:
		spec.User, spec.Groups = "anyone", []string{subject.Name}
	default:
		spec.User = subject.Name
	}
}
