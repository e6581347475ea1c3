package template

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capstan-io/capstan/addon"
	"github.com/capstan-io/capstan/addon/config"
	addonv1beta1 "github.com/capstan-io/capstan/api/addon/v1beta1"
	"github.com/capstan-io/capstan/internal/machinery/addon/template"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
	"github.com/capstan-io/capstan/internal/machinery/signingrequest"
)

// validity of certificates of custom signers.
const validity = 24 * time.Hour

// registrations are those of the template. While its rollout has not reached the cluster they are what they were: what the agent
// has from them it must be able to renew, however long that takes. Only what the template does not declare any more, nobody can sign: where
// its CA was is known from nowhere else, and there is no telling whether its author still wants it.
func (a *agent) registrations(ctx context.Context, installation addon.Installation) ([]addonv1beta1.RegistrationConfig, error) {
	spec, err := a.template(ctx, installation)
	known := installation.AddOn.Status.Registrations
	if len(known) > 0 && (errors.Is(err, addon.ErrNotYet) || errors.Is(err, config.ErrMissing) && isLeaving(installation.AddOn)) {
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

// asBefore are the registrations in the status. The agent of the cluster may write there; so of the subjects on the hub those that every
// template has are taken, and what is signed is held against the template once more.
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

// permissions are the bindings that the template asks for, each for the agents of this cluster only. Those in a namespace that
// clusters share go with the add-on as well.
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
	return nil, fmt.Errorf("type %q needs currentCluster.clusterRoleName (CurrentCluster), or singleNamespace with a namespace and a roleRef of the kind Role or ClusterRole (SingleNamespace)", permission.Type)
}

// sign issues the certificate of a custom signer with the CA of the template, for the subject that the template declares and for no
// other.
func (a *agent) sign(ctx context.Context, installation addon.Installation, csr *certificatesv1.CertificateSigningRequest) ([]byte, error) {
	object := &addonv1beta1.AddOnTemplate{}
	found, err := config.ReadPresent(ctx, a.client, installation, object)
	if err != nil {
		return nil, err
	}
	if !found {
		return nil, fmt.Errorf("the add-on has no AddOnTemplate that would declare the signer %q", csr.Spec.SignerName)
	}
	reference, declared := template.SigningCA(&object.Spec, csr.Spec.SignerName)
	if !declared {
		return nil, fmt.Errorf("AddOnTemplate %s does not declare the signer %q", object.Name, csr.Spec.SignerName)
	}
	if err := checkSubject(&object.Spec, installation, csr); err != nil {
		return nil, fmt.Errorf("AddOnTemplate %s: %w", object.Name, err)
	}
	sign, err := a.authority(ctx, reference)
	if err != nil {
		return nil, fmt.Errorf("AddOnTemplate %s: signer %q: %w", object.Name, csr.Spec.SignerName, err)
	}
	return sign(ctx, installation, csr)
}

type signer = func(context.Context, addon.Installation, *certificatesv1.CertificateSigningRequest) ([]byte, error)

// authority reads the Secret of a CA. Without a namespace, it is in that of the hub.
func (a *agent) authority(ctx context.Context, reference addonv1beta1.SigningCARef) (signer, error) {
	key := client.ObjectKey{Namespace: reference.Namespace, Name: reference.Name}
	if key.Namespace == "" {
		key.Namespace = fleet.NamespaceHub
	}
	secret := &corev1.Secret{}
	if err := a.uncached.Get(ctx, key, secret); err != nil {
		return nil, fmt.Errorf("read the signingCA, Secret %s: %w", key, err)
	}
	if secret.Type != corev1.SecretTypeTLS {
		return nil, fmt.Errorf("the signingCA, Secret %s, is of type %q: create it with the type %s, and with the certificate and the key of a certification authority", key, secret.Type, corev1.SecretTypeTLS)
	}
	sign, err := addon.SignWith(secret.Data[corev1.TLSCertKey], secret.Data[corev1.TLSPrivateKeyKey], validity)
	if err != nil {
		return nil, fmt.Errorf("the signingCA, Secret %s: %w", key, err)
	}
	return sign, nil
}

// checkSubject holds what a request asks for against what the template declares.
func checkSubject(spec *addonv1beta1.AddOnTemplateSpec, installation addon.Installation,
	csr *certificatesv1.CertificateSigningRequest) error {
	registrations, err := template.Registrations(spec, installation.AddOn.Name, installation.Cluster.Name)
	if err != nil {
		return err
	}
	request, err := signingrequest.Parse(csr)
	if err != nil {
		return err
	}
	for _, registration := range registrations {
		if registration.CustomSigner != nil && registration.CustomSigner.SignerName == csr.Spec.SignerName &&
			signingrequest.IsFor(request, registration.CustomSigner.Subject) {
			return nil
		}
	}
	return fmt.Errorf("the subject %q is not the one that it declares for the signer %q", request.Subject, csr.Spec.SignerName)
}
