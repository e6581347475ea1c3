package clusterpermission

import (
	"cmp"
	"fmt"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	authenticationv1beta1 "github.com/capstan-io/capstan/api/authentication/v1beta1"
	permissionv1alpha1 "github.com/capstan-io/capstan/api/rbac/v1alpha1"
)

// managedServiceAccount is the kind of subjects that stand for the service account of a ManagedServiceAccount.
const managedServiceAccount = "ManagedServiceAccount"

// accountOf returns the service account on the managed cluster that stands behind a ManagedServiceAccount.
type accountOf func(name string) (types.NamespacedName, error)

// render returns the roles and bindings of a permission, with its name where they have none of their own.
func render(permission *permissionv1alpha1.ClusterPermission, account accountOf) (objects []any, err error) {
	spec, name := permission.Spec, permission.Name
	if spec.ClusterRole != nil {
		objects = append(objects, &rbacv1.ClusterRole{TypeMeta: kind("ClusterRole"), ObjectMeta: metav1.ObjectMeta{Name: name},
			Rules: spec.ClusterRole.Rules})
	}
	for _, role := range spec.Roles {
		objects = append(objects, &rbacv1.Role{TypeMeta: kind("Role"), ObjectMeta: metav1.ObjectMeta{Namespace: role.Namespace, Name: name},
			Rules: role.Rules})
	}
	if binding := spec.ClusterRoleBinding; binding != nil {
		subjects, err := subjectsOf("spec.clusterRoleBinding", binding.Subject, binding.Subjects, account)
		if err != nil {
			return nil, err
		}
		role := permissionv1alpha1.RoleRef{Kind: "ClusterRole"}
		if binding.RoleRef != nil {
			role = *binding.RoleRef
		}
		objects = append(objects, &rbacv1.ClusterRoleBinding{TypeMeta: kind("ClusterRoleBinding"),
			ObjectMeta: metav1.ObjectMeta{Name: cmp.Or(binding.Name, name)}, RoleRef: roleOf(role, name), Subjects: subjects})
	}
	for i, binding := range spec.RoleBindings {
		subjects, err := subjectsOf(fmt.Sprintf("spec.roleBindings[%d]", i), binding.Subject, binding.Subjects, account)
		if err != nil {
			return nil, err
		}
		objects = append(objects, &rbacv1.RoleBinding{TypeMeta: kind("RoleBinding"),
			ObjectMeta: metav1.ObjectMeta{Namespace: binding.Namespace, Name: cmp.Or(binding.Name, name)},
			RoleRef:    roleOf(binding.RoleRef, name), Subjects: subjects})
	}
	return objects, nil
}

func kind(of string) metav1.TypeMeta {
	return metav1.TypeMeta{APIVersion: rbacv1.SchemeGroupVersion.String(), Kind: of}
}

func roleOf(role permissionv1alpha1.RoleRef, name string) rbacv1.RoleRef {
	return rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: role.Kind, Name: cmp.Or(role.Name, name)}
}

func subjectsOf(where string, one *rbacv1.Subject, several []rbacv1.Subject, account accountOf) (subjects []rbacv1.Subject, err error) {
	if one != nil {
		several = []rbacv1.Subject{*one}
	}
	for _, subject := range several {
		switch subject.Kind {
		case managedServiceAccount:
			if group := authenticationv1beta1.GroupVersion.Group; subject.APIGroup != group {
				return nil, waits("%s: the subject ManagedServiceAccount %s has the apiGroup %q: it is %s", where, subject.Name, subject.APIGroup,
					group)
			}
			there, err := account(subject.Name)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", where, err)
			}
			subject = rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Namespace: there.Namespace, Name: there.Name}
		case rbacv1.UserKind, rbacv1.GroupKind:
			subject.APIGroup = rbacv1.GroupName
		case rbacv1.ServiceAccountKind:
			subject.APIGroup = ""
			if subject.Namespace == "" {
				return nil, waits("%s: the subject ServiceAccount %s has no namespace: give it the one that it has on the cluster", where,
					subject.Name)
			}
		default:
			return nil, waits("%s: the subject %s has the kind %q: use %s, %s, %s or %s", where, subject.Name, subject.Kind,
				managedServiceAccount, rbacv1.UserKind, rbacv1.GroupKind, rbacv1.ServiceAccountKind)
		}
		subjects = append(subjects, subject)
	}
	return subjects, nil
}
