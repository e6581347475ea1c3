package controlplane

import (
	"context"
	"fmt"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/component-helpers/auth/rbac/reconciliation"
	"k8s.io/kubernetes/plugin/pkg/auth/authorizer/rbac/bootstrappolicy"
)

// policy is a set of roles and bindings.
type policy struct {
	clusterRoles        []rbacv1.ClusterRole
	clusterRoleBindings []rbacv1.ClusterRoleBinding
	roles               map[string][]rbacv1.Role
	roleBindings        map[string][]rbacv1.RoleBinding
}

// kubernetesPolicy is what every Kubernetes API server has: admin, edit, view, system:discovery and so on.
func kubernetesPolicy() policy {
	return policy{
		clusterRoles:        append(bootstrappolicy.ClusterRoles(), bootstrappolicy.ControllerRoles()...),
		clusterRoleBindings: append(bootstrappolicy.ClusterRoleBindings(), bootstrappolicy.ControllerRoleBindings()...),
		roles:               bootstrappolicy.NamespaceRoles(),
		roleBindings:        bootstrappolicy.NamespaceRoleBindings(),
	}
}

// ensurePolicy adds what a policy has and the hub has not. It takes away no rule and no subject, and leaves objects with
// the annotation rbac.authorization.kubernetes.io/autoupdate=false alone. At a restart, when all is there, it only reads,
// and that once for each kind.
func ensurePolicy(ctx context.Context, client kubernetes.Interface, p policy) error {
	found, err := findPolicy(ctx, client)
	if err != nil {
		return err
	}
	var jobs []func() error
	role := func(owner reconciliation.RuleOwner, modifier reconciliation.RuleOwnerModifier) {
		jobs = append(jobs, func() error {
			_, err := (&reconciliation.ReconcileRoleOptions{Role: owner, Client: found.withRoles(modifier), Confirm: true}).Run()
			return explain("role", owner.GetName(), err)
		})
	}
	binding := func(b reconciliation.RoleBinding, modifier reconciliation.RoleBindingModifier) {
		jobs = append(jobs, func() error {
			_, err := (&reconciliation.ReconcileRoleBindingOptions{RoleBinding: b, Client: found.withBindings(modifier), Confirm: true}).Run()
			return explain("role binding", b.GetName(), err)
		})
	}
	rbac, namespaces := client.RbacV1(), client.CoreV1().Namespaces()
	for i := range p.clusterRoles {
		role(reconciliation.ClusterRoleRuleOwner{ClusterRole: &p.clusterRoles[i]}, reconciliation.ClusterRoleModifier{Client: rbac.ClusterRoles()})
	}
	for _, roles := range p.roles {
		for i := range roles {
			role(reconciliation.RoleRuleOwner{Role: &roles[i]}, reconciliation.RoleModifier{Client: rbac, NamespaceClient: namespaces})
		}
	}
	for i := range p.clusterRoleBindings {
		binding(reconciliation.ClusterRoleBindingAdapter{ClusterRoleBinding: &p.clusterRoleBindings[i]}, reconciliation.ClusterRoleBindingClientAdapter{Client: rbac.ClusterRoleBindings()})
	}
	for _, bindings := range p.roleBindings {
		for i := range bindings {
			binding(reconciliation.RoleBindingAdapter{RoleBinding: &bindings[i]}, reconciliation.RoleBindingClientAdapter{Client: rbac, NamespaceClient: namespaces})
		}
	}
	return inParallel(jobs)
}

func explain(kind, name string, err error) error {
	if err != nil {
		return fmt.Errorf("ensure %s %s: %w", kind, name, err)
	}
	return nil
}

// existingPolicy is what the hub has, by namespace/name.
type existingPolicy struct {
	roles    map[string]reconciliation.RuleOwner
	bindings map[string]reconciliation.RoleBinding
}

func key(namespace, name string) string { return namespace + "/" + name }

func findPolicy(ctx context.Context, client kubernetes.Interface) (existingPolicy, error) {
	found := existingPolicy{roles: map[string]reconciliation.RuleOwner{}, bindings: map[string]reconciliation.RoleBinding{}}
	all := metav1.ListOptions{}
	clusterRoles, err := client.RbacV1().ClusterRoles().List(ctx, all)
	if err != nil {
		return found, err
	}
	for i := range clusterRoles.Items {
		found.roles[key("", clusterRoles.Items[i].Name)] = reconciliation.ClusterRoleRuleOwner{ClusterRole: &clusterRoles.Items[i]}
	}
	clusterBindings, err := client.RbacV1().ClusterRoleBindings().List(ctx, all)
	if err != nil {
		return found, err
	}
	for i := range clusterBindings.Items {
		found.bindings[key("", clusterBindings.Items[i].Name)] = reconciliation.ClusterRoleBindingAdapter{ClusterRoleBinding: &clusterBindings.Items[i]}
	}
	// Roles and bindings in other namespaces, two for each cluster, are none of the policy's.
	for _, namespace := range []string{metav1.NamespaceSystem, metav1.NamespacePublic} {
		roles, err := client.RbacV1().Roles(namespace).List(ctx, all)
		if err != nil {
			return found, err
		}
		for i := range roles.Items {
			found.roles[key(namespace, roles.Items[i].Name)] = reconciliation.RoleRuleOwner{Role: &roles.Items[i]}
		}
		bindings, err := client.RbacV1().RoleBindings(namespace).List(ctx, all)
		if err != nil {
			return found, err
		}
		for i := range bindings.Items {
			found.bindings[key(namespace, bindings.Items[i].Name)] = reconciliation.RoleBindingAdapter{RoleBinding: &bindings.Items[i]}
		}
	}
	return found, nil
}

// knownRoles answers reads from what was listed and passes writes on.
type knownRoles struct {
	reconciliation.RuleOwnerModifier
	existing map[string]reconciliation.RuleOwner
}

func (e existingPolicy) withRoles(m reconciliation.RuleOwnerModifier) knownRoles {
	return knownRoles{m, e.roles}
}

// Get implements reconciliation.RuleOwnerModifier.
func (k knownRoles) Get(namespace, name string) (reconciliation.RuleOwner, error) {
	if role, found := k.existing[key(namespace, name)]; found {
		return role, nil
	}
	return nil, apierrors.NewNotFound(rbacv1.Resource("roles"), name)
}

// knownBindings is knownRoles for bindings.
type knownBindings struct {
	reconciliation.RoleBindingModifier
	existing map[string]reconciliation.RoleBinding
}

func (e existingPolicy) withBindings(m reconciliation.RoleBindingModifier) knownBindings {
	return knownBindings{m, e.bindings}
}

// Get implements reconciliation.RoleBindingModifier.
func (k knownBindings) Get(namespace, name string) (reconciliation.RoleBinding, error) {
	if binding, found := k.existing[key(namespace, name)]; found {
		return binding, nil
	}
	return nil, apierrors.NewNotFound(rbacv1.Resource("rolebindings"), name)
}
