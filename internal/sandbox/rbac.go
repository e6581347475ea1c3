package sandbox

import (
	"context"
	"fmt"

	"golang.org/x/sync/errgroup"
	"k8s.io/client-go/kubernetes"
	"k8s.io/component-helpers/auth/rbac/reconciliation"
	"k8s.io/kubernetes/plugin/pkg/auth/authorizer/rbac/bootstrappolicy"
)

// installRBAC makes the default roles and bindings of Kubernetes exist, and
// restores what is missing of them.
func installRBAC(ctx context.Context, client kubernetes.Interface) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(8)
	install := func(kind, name string, reconcile func() error) {
		group.Go(func() error {
			if ctx.Err() != nil {
				return ctx.Err()
			}
			if err := reconcile(); err != nil {
				return fmt.Errorf("install %s %s: %w", kind, name, err)
			}
			return nil
		})
	}
	installClusterRoles(client, install)
	installNamespaceRoles(client, install)
	return group.Wait()
}

type installFunc func(kind, name string, reconcile func() error)

func installClusterRoles(client kubernetes.Interface, install installFunc) {
	for _, role := range append(bootstrappolicy.ClusterRoles(), bootstrappolicy.ControllerRoles()...) {
		install("ClusterRole", role.Name, reconcileRole(
			reconciliation.ClusterRoleRuleOwner{ClusterRole: &role},
			reconciliation.ClusterRoleModifier{Client: client.RbacV1().ClusterRoles()}))
	}
	for _, binding := range append(bootstrappolicy.ClusterRoleBindings(), bootstrappolicy.ControllerRoleBindings()...) {
		install("ClusterRoleBinding", binding.Name, reconcileBinding(
			reconciliation.ClusterRoleBindingAdapter{ClusterRoleBinding: &binding},
			reconciliation.ClusterRoleBindingClientAdapter{Client: client.RbacV1().ClusterRoleBindings()}))
	}
}

func installNamespaceRoles(client kubernetes.Interface, install installFunc) {
	for _, roles := range bootstrappolicy.NamespaceRoles() {
		for _, role := range roles {
			install("Role", role.Namespace+"/"+role.Name, reconcileRole(
				reconciliation.RoleRuleOwner{Role: &role},
				reconciliation.RoleModifier{Client: client.RbacV1(), NamespaceClient: client.CoreV1().Namespaces()}))
		}
	}
	for _, bindings := range bootstrappolicy.NamespaceRoleBindings() {
		for _, binding := range bindings {
			install("RoleBinding", binding.Namespace+"/"+binding.Name, reconcileBinding(
				reconciliation.RoleBindingAdapter{RoleBinding: &binding},
				reconciliation.RoleBindingClientAdapter{Client: client.RbacV1(), NamespaceClient: client.CoreV1().Namespaces()}))
		}
	}
}

func reconcileRole(role reconciliation.RuleOwner, client reconciliation.RuleOwnerModifier) func() error {
	return func() error {
		_, err := (&reconciliation.ReconcileRoleOptions{Role: role, Client: client, Confirm: true}).Run()
		return err
	}
}

func reconcileBinding(binding reconciliation.RoleBinding, client reconciliation.RoleBindingModifier) func() error {
	return func() error {
		_, err := (&reconciliation.ReconcileRoleBindingOptions{RoleBinding: binding, Client: client, Confirm: true}).Run()
		return err
	}
}
