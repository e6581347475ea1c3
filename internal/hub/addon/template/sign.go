package template

import (
	"context"
	"fmt"
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

// validity bounds the certificates of custom signers.
const validity = 24 * time.Hour

// sign issues the certificate of a custom signer with the CA of the template, if the template declares its subject.
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

// authority reads the CA from its Secret. A reference without a namespace is to the namespace of the hub.
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
		return nil, fmt.Errorf("the signingCA, Secret %s, is of type %q: create it with the type %s, and with the certificate and the key of a "+
			"certification authority", key, secret.Type, corev1.SecretTypeTLS)
	}
	sign, err := addon.SignWith(secret.Data[corev1.TLSCertKey], secret.Data[corev1.TLSPrivateKeyKey], validity)
	if err != nil {
		return nil, fmt.Errorf("the signingCA, Secret %s: %w", key, err)
	}
	return sign, nil
}

// checkSubject fails unless the template declares the subject of the request.
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
