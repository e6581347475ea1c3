package addon

import (
	"fmt"
	"slices"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	addonv1beta1 "github.com/capstan-io/capstan/api/addon/v1beta1"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
)

// BindClusterRole returns a binding of the agent to a ClusterRole in the namespace of its cluster.
func BindClusterRole(installation Installation, clusterRole string) (client.Object, error) {
	return BindClusterRoleIn(installation, installation.AddOn.Namespace, clusterRole)
}

// BindClusterRoleIn returns a binding of the agent to a ClusterRole in a namespace of the hub.
func BindClusterRoleIn(installation Installation, namespace, clusterRole string) (client.Object, error) {
	return bind(installation, namespace, "ClusterRole", clusterRole)
}

// BindRole returns a binding of the agent to a Role in the namespace of its cluster, such as one of NewRole.
func BindRole(installation Installation, role string) (client.Object, error) {
	return BindRoleIn(installation, installation.AddOn.Namespace, role)
}

// BindRoleIn returns a binding of the agent to a Role in a namespace of the hub.
func BindRoleIn(installation Installation, namespace, role string) (client.Object, error) {
	return bind(installation, namespace, "Role", role)
}

// BindClusterRoleEverywhere returns a binding of the agent to a ClusterRole in all namespaces of the hub, and for cluster-scoped
// objects. Agents can then see objects of other clusters: only bind to rights to read what all agents may see.
func BindClusterRoleEverywhere(installation Installation, clusterRole string) (client.Object, error) {
	subjects, err := subjects(installation)
	if err != nil {
		return nil, err
	}
	return &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: bindingName(installation, "ClusterRole", clusterRole)},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: clusterRole},
		Subjects:   subjects,
	}, nil
}

// NewRole returns a Role in the namespace of the cluster.
func NewRole(installation Installation, name string, rules ...rbacv1.PolicyRule) *rbacv1.Role {
	return &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Namespace: installation.AddOn.Namespace, Name: name}, Rules: rules}
}

func bind(installation Installation, namespace, kind, role string) (client.Object, error) {
	subjects, err := subjects(installation)
	if err != nil {
		return nil, err
	}
	return &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: bindingName(installation, kind, role)},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: kind, Name: role},
		Subjects:   subjects,
	}, nil
}

// bindingName returns a name that no other binding has: clusters and add-ons may share the namespace.
func bindingName(installation Installation, kind, role string) string {
	return fmt.Sprintf("open-cluster-management:%s:%s:%s:%s", installation.AddOn.Namespace, installation.AddOn.Name, strings.ToLower(kind),
		role)
}

// subjects returns the identity of the add-on's agents on the cluster: their service account, their group, or else their user.
func subjects(installation Installation) ([]rbacv1.Subject, error) {
	cluster, name := installation.AddOn.Namespace, installation.AddOn.Name
	for _, registration := range installation.AddOn.Status.Registrations {
		if registration.Type != addonv1beta1.KubeClient || registration.KubeClient == nil {
			continue
		}
		subject := registration.KubeClient.Subject
		switch {
		case registration.KubeClient.Driver == addonv1beta1.KubeClientDriverToken:
			return []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: cluster, Name: fleet.AddOnServiceAccount(name)}}, nil
		case slices.Contains(subject.Groups, fleet.AddOnGroup(cluster, name)):
			return []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.GroupKind, Name: fleet.AddOnGroup(cluster, name)}}, nil
		case subject.User != "":
			return []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: subject.User}}, nil
		}
	}
	return nil, fmt.Errorf("the add-on %s on the cluster %s has no registration of type %s: %w", name, cluster, addonv1beta1.KubeClient,
		ErrSubjectNotReady)
}
