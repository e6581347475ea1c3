package template

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capstan-io/capstan/addon"
	"github.com/capstan-io/capstan/addon/config"
	addonv1beta1 "github.com/capstan-io/capstan/api/addon/v1beta1"
	"github.com/capstan-io/capstan/internal/machinery/addon/template"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
)

// registrations returns the registrations in the template. While the rollout of the template has not reached the cluster, they stay as
// they were: the agent must be able to renew its credentials, however long that takes. Certificates for a signer or a subject that the
// template no longer declares cannot be renewed: only the template names the CA, and others may write the status.
func (a *agent) registrations(ctx context.Context, installation addon.Installation) ([]addonv1beta1.RegistrationConfig, error) {
	spec, err := a.template(ctx, installation)
	existing := installation.AddOn.Status.Registrations
	if len(existing) > 0 && (errors.Is(err, addon.ErrNotYet) || errors.Is(err, config.ErrMissing) && isLeaving(installation.AddOn)) {
		return a.asBefore(installation), nil
	}
	if err != nil {
		return nil, err
	}
	registrations, err := template.Registrations(spec, a.name, installation.Cluster.Name)
	if err != nil {
		return nil, fmt.Errorf("the AddOnTemplate: %w", err)
	}
	return registrations, nil
}

// asBefore returns the registrations in the status. The agent of the cluster may write there, so the identity on the hub is replaced by
// that of all templates, and requests to sign are checked against the template again.
func (a *agent) asBefore(installation addon.Installation) []addonv1beta1.RegistrationConfig {
	registrations := make([]addonv1beta1.RegistrationConfig, 0, len(installation.AddOn.Status.Registrations))
	for _, registration := range installation.AddOn.Status.Registrations {
		if registration.Type == addonv1beta1.KubeClient {
			registration = addon.KubeClient(installation, fleet.TemplateAgent(a.name))
		}
		registrations = append(registrations, registration)
	}
	return registrations
}

// permissions returns the bindings in the template, each for the agents of this cluster only. Those in shared namespaces are deleted
// with the add-on, too.
func (a *agent) permissions(ctx context.Context, installation addon.Installation) ([]client.Object, error) {
	spec, err := a.template(ctx, installation)
	if errors.Is(err, config.ErrMissing) && isLeaving(installation.AddOn) {
		return nil, fmt.Errorf("the AddOnTemplate is gone: %w", addon.ErrNotYet)
	}
	if err != nil {
		return nil, err
	}
	var bindings []client.Object
	for i, registration := range spec.Registration {
		if registration.KubeClient == nil || registration.Type != addonv1beta1.RegistrationTypeKubeClient {
			continue
		}
		for j := range registration.KubeClient.HubPermissions {
			binding, err := bind(installation, &registration.KubeClient.HubPermissions[j])
			if err != nil {
				return nil, fmt.Errorf("the AddOnTemplate: spec.registration[%d].kubeClient.hubPermissions[%d]: %w", i, j, err)
			}
			if !slices.ContainsFunc(bindings, func(other client.Object) bool {
				return client.ObjectKeyFromObject(other) == client.ObjectKeyFromObject(binding)
			}) {
				bindings = append(bindings, binding)
			}
		}
	}
	return bindings, nil
}

func bind(installation addon.Installation, permission *addonv1beta1.HubPermissionConfig) (client.Object, error) {
	current, single := permission.CurrentCluster, permission.SingleNamespace
	switch {
	case permission.Type == addonv1beta1.HubPermissionsBindingCurrentCluster && current != nil:
		return addon.BindClusterRole(installation, current.ClusterRoleName)
	case permission.Type == addonv1beta1.HubPermissionsBindingSingleNamespace && single != nil && single.RoleRef.Kind == "Role":
		return addon.BindRoleIn(installation, single.Namespace, single.RoleRef.Name)
	case permission.Type == addonv1beta1.HubPermissionsBindingSingleNamespace && single != nil && single.RoleRef.Kind == "ClusterRole":
		return addon.BindClusterRoleIn(installation, single.Namespace, single.RoleRef.Name)
	}
	return nil, fmt.Errorf("type %q needs currentCluster.clusterRoleName (CurrentCluster), or singleNamespace with a namespace and a roleRef of the kind "+
		"Role or ClusterRole (SingleNamespace)", permission.Type)
}
