package template

import (
	"fmt"
	"slices"

	addonv1beta1 "github.com/capstan-io/capstan/api/addon/v1beta1"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
)

// Registrations are what the agent of a template registers for on a cluster.
func Registrations(template *addonv1beta1.AddOnTemplateSpec, addOn, cluster string) ([]addonv1beta1.RegistrationConfig, error) {
	var registrations []addonv1beta1.RegistrationConfig
	if registersForHub(template) {
		registrations = append(registrations, addonv1beta1.RegistrationConfig{
			Type: addonv1beta1.KubeClient,
			KubeClient: &addonv1beta1.KubeClientConfig{Subject: addonv1beta1.KubeClientSubject{
				User: fleet.AddOnUser(cluster, addOn, fleet.TemplateAgent(addOn)), Groups: fleet.AddOnGroups(cluster, addOn),
			}},
		})
	}
	for i, r := range template.Registration {
		if r.Type != addonv1beta1.RegistrationTypeCustomSigner {
			continue
		}
		if r.CustomSigner == nil {
			return nil, fmt.Errorf("spec.registration[%d].customSigner is missing: write the signerName and the signingCA, or choose the type KubeClient", i)
		}
		if fleet.IsReservedSigner(r.CustomSigner.SignerName) {
			return nil, fmt.Errorf("spec.registration[%d].customSigner.signerName: %w", i, errReservedSigner(r.CustomSigner.SignerName))
		}
		registrations = append(registrations, addonv1beta1.RegistrationConfig{
			Type: addonv1beta1.CustomSigner,
			CustomSigner: &addonv1beta1.CustomSignerConfig{
				SignerName: r.CustomSigner.SignerName,
				Subject:    subjectOf(r.CustomSigner, addOn, cluster),
			},
		})
	}
	return registrations, nil
}

// SigningCA is the Secret of the CA that a template declares for a signer. Of a signer that it does not declare, nothing is
// signed.
func SigningCA(template *addonv1beta1.AddOnTemplateSpec, signer string) (addonv1beta1.SigningCARef, bool) {
	i := slices.IndexFunc(template.Registration, func(r addonv1beta1.RegistrationSpec) bool {
		return r.Type == addonv1beta1.RegistrationTypeCustomSigner && r.CustomSigner != nil && r.CustomSigner.SignerName == signer
	})
	if i < 0 || fleet.IsReservedSigner(signer) {
		return addonv1beta1.SigningCARef{}, false
	}
	return template.Registration[i].CustomSigner.SigningCA, true
}

func errReservedSigner(signer string) error {
	return fmt.Errorf("%q is a signer of Kubernetes or of the hub: write one in a domain of your own, such as example.com/hello", signer)
}

// subjectOf is the subject that a template declares for a signer; what it leaves out is that of an agent with access to the hub.
func subjectOf(signer *addonv1beta1.CustomSignerRegistrationSpec, addOn, cluster string) addonv1beta1.Subject {
	var subject addonv1beta1.Subject
	if signer.Subject != nil {
		subject = addonv1beta1.Subject{
			User:              signer.Subject.User,
			Groups:            slices.Clone(signer.Subject.Groups),
			OrganizationUnits: slices.Clone(signer.Subject.OrganizationUnits),
		}
	}
	if subject.User == "" {
		subject.User = fleet.AddOnUser(cluster, addOn, fleet.TemplateAgent(addOn))
	}
	if len(subject.Groups) == 0 {
		subject.Groups = fleet.AddOnGroups(cluster, addOn)
	}
	return subject
}
