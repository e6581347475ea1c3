package clusterpermission

import (
	"cmp"
	"errors"
	"fmt"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	authenticationv1beta1 "github.com/capstan-io/capstan/api/authentication/v1beta1"
	permissionv1alpha1 "github.com/capstan-io/capstan/api/rbac/v1alpha1"
)

// managedServiceAccount is the kind of subjects that stand for the service account of a ManagedServiceAccount.
const managedServiceAccount = "ManagedServiceAccount"

// accountOf returns the service account on the managed cluster that stands behind a ManagedServiceAccount. It may return one with a
// waitError, if that is where the account was last.
type accountOf func(name string) (types.NamespacedName, error)

// rendered is what a permission has on its cluster.
type rendered struct {
	// objects are its roles and bindings.
	objects []any
	// waiting is why subjects are not as the permission says.
	waiting []string
	// accountNamespace is that of the service accounts of ManagedServiceAccounts; empty if it has none.
	accountNamespace string
}

// render returns the roles and bindings of a permission, with its name where they have none of their own. Subjects that the cluster cannot
// have are left out, and so are bindings without any other: whatever else changes takes effect.
func render(permission *permissionv1alpha1.ClusterPermission, account accountOf) (*rendered, error) {
	spec, name, r := permission.Spec, permission.Name, &rendered{}
	if spec.ClusterRole != nil {
		r.objects = append(r.objects, &rbacv1.ClusterRole{TypeMeta: kind("ClusterRole"), ObjectMeta: metav1.ObjectMeta{Name: name},
			Rules: spec.ClusterRole.Rules})
	}
	for _, role := range spec.Roles {
		r.objects = append(r.objects, &rbacv1.Role{TypeMeta: kind("Role"), ObjectMeta: metav1.ObjectMeta{Namespace: role.Namespace, Name: name},
			Rules: role.Rules})
	}
	if binding := spec.ClusterRoleBinding; binding != nil {
		subjects, err := r.subjects("spec.clusterRoleBinding", account, binding.Subject, binding.Subjects)
		if err != nil {
			return nil, err
		}
		role := permissionv1alpha1.RoleRef{Kind: "ClusterRole"}
		if binding.RoleRef != nil {
			role = *binding.RoleRef
		}
		if len(subjects) > 0 {
			r.objects = append(r.objects, &rbacv1.ClusterRoleBinding{TypeMeta: kind("ClusterRoleBinding"),
				ObjectMeta: metav1.ObjectMeta{Name: cmp.Or(binding.Name, name)}, RoleRef: roleOf(role, name), Subjects: subjects})
		}
	}
	for i, binding := range spec.RoleBindings {
		subjects, err := r.subjects(fmt.Sprintf("spec.roleBindings[%d]", i), account, binding.Subject, binding.Subjects)
		if err != nil {
			return nil, err
		}
		if len(subjects) > 0 {
			r.objects = append(r.objects, &rbacv1.RoleBinding{TypeMeta: kind("RoleBinding"),
				ObjectMeta: metav1.ObjectMeta{Namespace: binding.Namespace, Name: cmp.Or(binding.Name, name)},
				RoleRef:    roleOf(binding.RoleRef, name), Subjects: subjects})
		}
	}
	return r, nil
}

func kind(of string) metav1.TypeMeta {
	return metav1.TypeMeta{APIVersion: rbacv1.SchemeGroupVersion.String(), Kind: of}
}

func roleOf(role permissionv1alpha1.RoleRef, name string) rbacv1.RoleRef {
	return rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: role.Kind, Name: cmp.Or(role.Name, name)}
}

// subjects returns who the subjects of a binding are on the cluster.
func (r *rendered) subjects(where string, account accountOf, one *rbacv1.Subject, several []rbacv1.Subject) (
	subjects []rbacv1.Subject, err error) {
	if one != nil {
		several = []rbacv1.Subject{*one}
	}
	for _, subject := range several {
		there, err := r.subject(subject, account)
		if err != nil && !errors.As(err, new(waitError)) {
			return nil, fmt.Errorf("%s: %w", where, err)
		}
		if err != nil {
			r.waiting = append(r.waiting, fmt.Sprintf("%s: %v", where, err))
		}
		if there.Name != "" {
			subjects = append(subjects, there)
		}
	}
	return subjects, nil
}

// subject returns what a subject is on the cluster: nothing, with a waitError, if the cluster cannot have it.
func (r *rendered) subject(subject rbacv1.Subject, account accountOf) (there rbacv1.Subject, err error) {
	switch subject.Kind {
	case managedServiceAccount:
		if group := authenticationv1beta1.GroupVersion.Group; subject.APIGroup != group {
			return there, waits("the subject ManagedServiceAccount %s has the apiGroup %q: it is %s", subject.Name, subject.APIGroup, group)
		}
		known, err := account(subject.Name)
		if known.Namespace == "" {
			return there, err
		}
		r.accountNamespace = known.Namespace
		return rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Namespace: known.Namespace, Name: known.Name}, err
	case rbacv1.UserKind, rbacv1.GroupKind:
		subject.APIGroup = rbacv1.GroupName
	case rbacv1.ServiceAccountKind:
		subject.APIGroup = ""
		if subject.Namespace == "" {
			return there, waits("the subject ServiceAccount %s has no namespace: give it the one that it has on the cluster", subject.Name)
		}
	default:
		return there, waits("the subject %s has the kind %q: use %s, %s, %s or %s", subject.Name, subject.Kind,
			managedServiceAccount, rbacv1.UserKind, rbacv1.GroupKind, rbacv1.ServiceAccountKind)
	}
	return subject, nil
}
