// Package rbac makes roles and bindings exist, those of every Kubernetes among them, for the API servers of this
// repository. The stock code to do so starts with an idle second and then works one by one.
package rbac

import (
	"context"
	"fmt"

	"golang.org/x/sync/errgroup"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/util/retry"
	"k8s.io/component-helpers/auth/rbac/reconciliation"
	"k8s.io/kubernetes/plugin/pkg/auth/authorizer/rbac/bootstrappolicy"
)

// atOnce is how many requests are in flight together. The API server, on the same processors, does the work of them;
// more only wait for each other.
const atOnce = 8

// Policy is a set of roles and bindings; those of namespaces by namespace.
type Policy struct {
	ClusterRoles        []rbacv1.ClusterRole
	ClusterRoleBindings []rbacv1.ClusterRoleBinding
	Roles               map[string][]rbacv1.Role
	RoleBindings        map[string][]rbacv1.RoleBinding
}

// Kubernetes is what every Kubernetes API server has: admin, edit, view, system:discovery and so on.
func Kubernetes() Policy {
	return Policy{
		ClusterRoles:        append(bootstrappolicy.ClusterRoles(), bootstrappolicy.ControllerRoles()...),
		ClusterRoleBindings: append(bootstrappolicy.ClusterRoleBindings(), bootstrappolicy.ControllerRoleBindings()...),
		Roles:               bootstrappolicy.NamespaceRoles(),
		RoleBindings:        bootstrappolicy.NamespaceRoleBindings(),
	}
}

// Ensure adds what a policy has and the API server has not, and creates namespaces of its roles that are missing. It takes away no rule and
// no subject, and leaves objects with the annotation rbac.authorization.kubernetes.io/autoupdate=false alone. At a restart, when all is
// there, it only reads.
func Ensure(ctx context.Context, client kubernetes.Interface, p Policy) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(atOnce)
	ensure := func(kind, name string, reconcile func() error) {
		group.Go(func() error {
			if ctx.Err() != nil {
				return ctx.Err()
			}
			if err := retry.RetryOnConflict(retry.DefaultBackoff, reconcile); err != nil {
				return fmt.Errorf("ensure %s %s: %w", kind, name, err)
			}
			return nil
		})
	}
	role := func(owner reconciliation.RuleOwner, modifier reconciliation.RuleOwnerModifier) {
		options := reconciliation.ReconcileRoleOptions{Role: owner, Client: modifier, Confirm: true}
		ensure("role", owner.GetName(), func() error { _, err := options.Run(); return err })
	}
	binding := func(b reconciliation.RoleBinding, modifier reconciliation.RoleBindingModifier) {
		options := reconciliation.ReconcileRoleBindingOptions{RoleBinding: b, Client: modifier, Confirm: true}
		ensure("role binding", b.GetName(), func() error { _, err := options.Run(); return err })
	}
	rbac, namespaces := client.RbacV1(), client.CoreV1().Namespaces()
	for i := range p.ClusterRoles {
		role(reconciliation.ClusterRoleRuleOwner{ClusterRole: &p.ClusterRoles[i]},
			reconciliation.ClusterRoleModifier{Client: rbac.ClusterRoles()})
	}
	for _, roles := range p.Roles {
		for i := range roles {
			role(reconciliation.RoleRuleOwner{Role: &roles[i]}, reconciliation.RoleModifier{Client: rbac, NamespaceClient: namespaces})
		}
	}
	for i := range p.ClusterRoleBindings {
		binding(reconciliation.ClusterRoleBindingAdapter{ClusterRoleBinding: &p.ClusterRoleBindings[i]},
			reconciliation.ClusterRoleBindingClientAdapter{Client: rbac.ClusterRoleBindings()})
	}
	for _, bindings := range p.RoleBindings {
		for i := range bindings {
			binding(reconciliation.RoleBindingAdapter{RoleBinding: &bindings[i]},
				reconciliation.RoleBindingClientAdapter{Client: rbac, NamespaceClient: namespaces})
		}
	}
	return group.Wait()
}
