package admission

import (
	"context"
	"fmt"
	"slices"

	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	addonv1beta1 "github.com/capstan-io/capstan/api/addon/v1beta1"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
)

// validateGrants checks whether the sender may give away what a template gives to its agents. The hub binds the roles and signs with
// the CA under its own identity, which may have more rights than the author of the template. The required permissions are those for
// doing the same by hand: `bind` on the role, and `get` on the Secret. Having all rights of the role, which Kubernetes also accepts for
// a binding, is not enough, because the role may change later. What a template of the same add-on already gave is not checked again.
func validateGrants(ctx context.Context, path *field.Path, template, old *addonv1beta1.AddOnTemplate,
	sender Sender) (errs field.ErrorList) {
	var before []addonv1beta1.RegistrationSpec
	if old != nil && old.Spec.AddonName == template.Spec.AddonName {
		before = old.Spec.Registration
	}
	for i, registration := range template.Spec.Registration {
		path := path.Index(i)
		if registration.KubeClient != nil {
			path := path.Child("kubeClient", "hubPermissions")
			for j, permission := range registration.KubeClient.HubPermissions {
				if !gavePermission(before, permission) {
					errs = append(errs, validateBinding(ctx, path.Index(j), permission, sender)...)
				}
			}
		}
		if registration.CustomSigner != nil && !signedFor(before, registration.CustomSigner) {
			errs = append(errs, validateSigning(ctx, path.Child("customSigner", "signingCA"), registration.CustomSigner.SigningCA, sender)...)
		}
	}
	return errs
}

func gavePermission(registrations []addonv1beta1.RegistrationSpec, permission addonv1beta1.HubPermissionConfig) bool {
	return slices.ContainsFunc(registrations, func(r addonv1beta1.RegistrationSpec) bool {
		return r.KubeClient != nil && slices.ContainsFunc(r.KubeClient.HubPermissions, func(p addonv1beta1.HubPermissionConfig) bool {
			return equality.Semantic.DeepEqual(p, permission)
		})
	})
}

// signedFor reports whether certificates of the signer were signed already, for the same subject and with the same CA.
func signedFor(registrations []addonv1beta1.RegistrationSpec, signer *addonv1beta1.CustomSignerRegistrationSpec) bool {
	return slices.ContainsFunc(registrations, func(r addonv1beta1.RegistrationSpec) bool {
		return equality.Semantic.DeepEqual(r.CustomSigner, signer)
	})
}

// validateBinding checks the permission to bind a role where the hub is going to.
func validateBinding(ctx context.Context, path *field.Path, permission addonv1beta1.HubPermissionConfig, sender Sender) field.ErrorList {
	bind := authorizationv1.ResourceAttributes{Group: rbacv1.GroupName, Resource: "clusterroles", Verb: "bind"}
	where := "in the namespaces of all clusters, which a ClusterRoleBinding allows"
	if current := permission.CurrentCluster; current != nil {
		path, bind.Name, bind.Namespace = path.Child("currentCluster", "clusterRoleName"), current.ClusterRoleName, metav1.NamespaceAll
	}
	if single := permission.SingleNamespace; single != nil {
		path, bind.Name, bind.Namespace = path.Child("singleNamespace", "roleRef"), single.RoleRef.Name, single.Namespace
		where = fmt.Sprintf("in the namespace %q", single.Namespace)
		if single.RoleRef.Kind == "Role" {
			bind.Resource = "roles"
		}
	}
	if err := sender.may(ctx, bind); err != nil {
		return field.ErrorList{field.Forbidden(path, fmt.Sprintf("user %q cannot give %q to agents %s: %v", sender.Name, bind.Name, where, err))}
	}
	return nil
}

// validateSigning checks the permission to read the Secret of a CA.
func validateSigning(ctx context.Context, path *field.Path, ca addonv1beta1.SigningCARef, sender Sender) field.ErrorList {
	namespace := ca.Namespace
	if namespace == "" {
		namespace = fleet.NamespaceHub
	}
	get := authorizationv1.ResourceAttributes{Resource: "secrets", Verb: "get", Namespace: namespace, Name: ca.Name}
	if err := sender.may(ctx, get); err != nil {
		return field.ErrorList{field.Forbidden(path, fmt.Sprintf("user %q cannot have certificates signed with the Secret %s/%s: %v", sender.Name,
			namespace, ca.Name, err))}
	}
	return nil
}
