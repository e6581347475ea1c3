package conversion

import (
	"k8s.io/apimachinery/pkg/util/validation/field"

	addonv1alpha1 "github.com/capstan-io/capstan/api/addon/v1alpha1"
	addonv1beta1 "github.com/capstan-io/capstan/api/addon/v1beta1"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
)

// registrationsToV1Beta1 separates registrations for the API server of the hub from those for other signers, and gives the
// former the driver.
func registrationsToV1Beta1(
	in []addonv1alpha1.RegistrationConfig, driver addonv1beta1.KubeClientDriver,
) []addonv1beta1.RegistrationConfig {
	return convertAll(in, func(registration addonv1alpha1.RegistrationConfig) addonv1beta1.RegistrationConfig {
		subject := registration.Subject
		if registration.SignerName == fleet.SignerKubeAPIServerClient {
			return addonv1beta1.RegistrationConfig{
				Type: addonv1beta1.KubeClient,
				KubeClient: &addonv1beta1.KubeClientConfig{
					Subject: addonv1beta1.KubeClientSubject{User: subject.User, Groups: subject.Groups},
					Driver:  driver,
				},
			}
		}
		return addonv1beta1.RegistrationConfig{
			Type: addonv1beta1.CustomSigner,
			CustomSigner: &addonv1beta1.CustomSignerConfig{
				SignerName: registration.SignerName,
				Subject: addonv1beta1.Subject{
					User: subject.User, Groups: subject.Groups, OrganizationUnits: subject.OrganizationUnits,
				},
			},
		}
	})
}

// registrationsToV1Alpha1 returns the registrations and the first driver that any of them has.
func registrationsToV1Alpha1(
	in []addonv1beta1.RegistrationConfig,
) (out []addonv1alpha1.RegistrationConfig, driver addonv1beta1.KubeClientDriver, err error) {
	for i, registration := range in {
		path := field.NewPath("status", "registrations").Index(i)
		converted, err := registrationToV1Alpha1(path, registration)
		if err != nil {
			return nil, "", err
		}
		out = append(out, converted)
		if driver == "" && registration.Type == addonv1beta1.KubeClient && registration.KubeClient != nil {
			driver = registration.KubeClient.Driver
		}
	}
	return out, driver, nil
}

func registrationToV1Alpha1(
	path *field.Path, in addonv1beta1.RegistrationConfig,
) (addonv1alpha1.RegistrationConfig, error) {
	switch in.Type {
	case addonv1beta1.KubeClient:
		out := addonv1alpha1.RegistrationConfig{SignerName: fleet.SignerKubeAPIServerClient}
		if in.KubeClient != nil {
			subject := in.KubeClient.Subject
			out.Subject = addonv1alpha1.Subject{User: subject.User, Groups: subject.Groups}
		}
		return out, nil
	case addonv1beta1.CustomSigner:
		if in.CustomSigner == nil {
			return addonv1alpha1.RegistrationConfig{},
				field.Required(path.Child("customSigner"), "type customSigner needs the name of its signer")
		}
		subject := in.CustomSigner.Subject
		return addonv1alpha1.RegistrationConfig{
			SignerName: in.CustomSigner.SignerName,
			Subject: addonv1alpha1.Subject{
				User: subject.User, Groups: subject.Groups, OrganizationUnits: subject.OrganizationUnits,
			},
		}, nil
	default:
		return addonv1alpha1.RegistrationConfig{}, field.NotSupported(path.Child("type"), in.Type,
			[]addonv1beta1.RegistrationConfigType{addonv1beta1.KubeClient, addonv1beta1.CustomSigner})
	}
}
