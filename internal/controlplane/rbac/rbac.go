// Package rbac makes roles and bindings exist, those of every Kubernetes among them, for the API servers of this
// repository. The stock way to do so begins with an idle second and then works one by one.
package rbac

import (
	"context"
	"fmt"

	"golang.org/x/sync/errgroup"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/util/retry"
	"k8s.io/component-helpers/auth/rbac/reconciliation"
	"k8s.io/kubernetes/plugin/pkg/auth/authorizer/rbac/bootstrappolicy"
)

// atOnce is how many requests are under way together. The API server, on the same processors, does the work of them;
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
// there, it only reads, and that once for each kind.
func Ensure(ctx context.Context, client kubernetes.Interface, p Policy) error {
	found, err := find(ctx, client, p)
	if err != nil {
		return fmt.Errorf("list roles and bindings: %w", err)
	}
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(atOnce)
	ensure := func(kind, name string, reconcile func() error) {
		group.Go(func() error {
			if ctx.Err() != nil {
				return ctx.Err()
			}
			if err := reconcile(); err != nil {
				return fmt.Errorf("ensure %s %s: %w", kind, name, err)
			}
			return nil
		})
	}
	role := func(owner reconciliation.RuleOwner, modifier reconciliation.RuleOwnerModifier) {
		ensure("role", owner.GetName(), func() error {
			options := reconciliation.ReconcileRoleOptions{Role: owner, Client: found.withRoles(modifier), Confirm: true}
			return retry.RetryOnConflict(retry.DefaultBackoff, func() error { _, err := options.Run(); return err })
		})
	}
	binding := func(b reconciliation.RoleBinding, modifier reconciliation.RoleBindingModifier) {
		ensure("role binding", b.GetName(), func() error {
			options := reconciliation.ReconcileRoleBindingOptions{RoleBinding: b, Client: found.withBindings(modifier), Confirm: true}
			return retry.RetryOnConflict(retry.DefaultBackoff, func() error { _, err := options.Run(); return err })
		})
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

// existing is what the API server has, by namespace/name.
type existing struct {
	roles    map[string]reconciliation.RuleOwner
	bindings map[string]reconciliation.RoleBinding
}

func (p Policy) namespaces() sets.Set[string] {
	return sets.KeySet(p.Roles).Union(sets.KeySet(p.RoleBindings))
}

func key(namespace, name string) string { return namespace + "/" + name }

func find(ctx context.Context, client kubernetes.Interface, p Policy) (existing, error) {
	found := existing{roles: map[string]reconciliation.RuleOwner{}, bindings: map[string]reconciliation.RoleBinding{}}
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
		found.bindings[key("", clusterBindings.Items[i].Name)] = reconciliation.ClusterRoleBindingAdapter{
			ClusterRoleBinding: &clusterBindings.Items[i]}
	}
	// Those in other namespaces may be many.
	for namespace := range p.namespaces() {
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

// knownRoles answers the first read of a role from what was listed, and passes writes on. A second read follows a write that failed because
// another hub on the same etcd was faster, and gets what there is now.
type knownRoles struct {
	reconciliation.RuleOwnerModifier
	known    map[string]reconciliation.RuleOwner
	answered bool
}

func (e existing) withRoles(m reconciliation.RuleOwnerModifier) *knownRoles {
	return &knownRoles{RuleOwnerModifier: m, known: e.roles}
}

// Get implements reconciliation.RuleOwnerModifier.
func (k *knownRoles) Get(namespace, name string) (reconciliation.RuleOwner, error) {
	if k.answered {
		return k.RuleOwnerModifier.Get(namespace, name)
	}
	k.answered = true
	if role, found := k.known[key(namespace, name)]; found {
		return role, nil
	}
	return nil, apierrors.NewNotFound(rbacv1.Resource("roles"), name)
}

// knownBindings is knownRoles for bindings.
type knownBindings struct {
	reconciliation.RoleBindingModifier
	known    map[string]reconciliation.RoleBinding
	answered bool
}

func (e existing) withBindings(m reconciliation.RoleBindingModifier) *knownBindings {
	return &knownBindings{RoleBindingModifier: m, known: e.bindings}
}

// Get implements reconciliation.RoleBindingModifier.
func (k *knownBindings) Get(namespace, name string) (reconciliation.RoleBinding, error) {
	if k.answered {
		return k.RoleBindingModifier.Get(namespace, name)
	}
	k.answered = true
	if binding, found := k.known[key(namespace, name)]; found {
		return binding, nil
	}
	return nil, apierrors.NewNotFound(rbacv1.Resource("rolebindings"), name)
}
