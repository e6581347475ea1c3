package sandbox

import (
	"context"
	"fmt"

	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/component-helpers/auth/rbac/reconciliation"
	scheduling "k8s.io/kubernetes/pkg/apis/scheduling/v1"
	rbacrest "k8s.io/kubernetes/pkg/registry/rbac/rest"
	schedulingrest "k8s.io/kubernetes/pkg/registry/scheduling/rest"
	"k8s.io/kubernetes/plugin/pkg/auth/authorizer/rbac/bootstrappolicy"
)

// stockHooks are the hooks of the API server that installDefaults stands in for:
// each of them begins with an idle second.
var stockHooks = []string{rbacrest.PostStartHookName, schedulingrest.PostStartHookName}

// installDefaults makes the roles, bindings and priority classes exist that every
// Kubernetes has, and restores what is missing of them.
func installDefaults(ctx context.Context, client kubernetes.Interface) error {
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
	installPriorityClasses(ctx, client, install)
	installClusterRoles(client, install)
	installNamespaceRoles(client, install)
	return group.Wait()
}

type installFunc func(kind, name string, reconcile func() error)

func installPriorityClasses(ctx context.Context, client kubernetes.Interface, install installFunc) {
	for _, class := range scheduling.SystemPriorityClasses() {
		install("PriorityClass", class.Name, func() error {
			_, err := client.SchedulingV1().PriorityClasses().Create(ctx, class, metav1.CreateOptions{})
			if apierrors.IsAlreadyExists(err) {
				return nil
			}
			return err
		})
	}
}

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
