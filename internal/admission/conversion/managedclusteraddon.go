package conversion

import (
	"maps"

	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	addonv1alpha1 "github.com/capstan-io/capstan/api/addon/v1alpha1"
	addonv1beta1 "github.com/capstan-io/capstan/api/addon/v1beta1"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
)

// ManagedClusterAddOnToV1Beta1 converts from the stored version. The install namespace becomes an annotation.
func ManagedClusterAddOnToV1Beta1(in *addonv1alpha1.ManagedClusterAddOn) *addonv1beta1.ManagedClusterAddOn {
	out := &addonv1beta1.ManagedClusterAddOn{
		ObjectMeta: in.ObjectMeta,
		Spec:       addonv1beta1.ManagedClusterAddOnSpec{Configs: in.Spec.Configs},
		Status: addonv1beta1.ManagedClusterAddOnStatus{
			Conditions:       in.Status.Conditions,
			RelatedObjects:   in.Status.RelatedObjects,
			AddOnMeta:        in.Status.AddOnMeta,
			SupportedConfigs: in.Status.SupportedConfigs,
			ConfigReferences: convertAll(in.Status.ConfigReferences, configReferenceToV1Beta1),
			Namespace:        in.Status.Namespace,
			Registrations:    registrationsToV1Beta1(in.Status.Registrations, in.Status.KubeClientDriver),
			HealthCheck:      in.Status.HealthCheck,
		},
	}
	if in.Spec.InstallNamespace != "" {
		out.Annotations = maps.Clone(in.Annotations)
		if out.Annotations == nil {
			out.Annotations = map[string]string{}
		}
		out.Annotations[fleet.AnnotationInstallNamespace] = in.Spec.InstallNamespace
	}
	out.SetGroupVersionKind(addonv1beta1.GroupVersion.WithKind(kindManagedClusterAddOn))
	return out
}

// ManagedClusterAddOnToV1Alpha1 converts to the stored version. The error names the field that has no meaning there:
// an annotation that is no namespace, or a registration that does not fit its type.
func ManagedClusterAddOnToV1Alpha1(in *addonv1beta1.ManagedClusterAddOn) (*addonv1alpha1.ManagedClusterAddOn, error) {
	registrations, driver, err := registrationsToV1Alpha1(in.Status.Registrations)
	if err != nil {
		return nil, err
	}
	out := &addonv1alpha1.ManagedClusterAddOn{
		ObjectMeta: in.ObjectMeta,
		Spec:       addonv1alpha1.ManagedClusterAddOnSpec{Configs: in.Spec.Configs},
		Status: addonv1alpha1.ManagedClusterAddOnStatus{
			Conditions:       in.Status.Conditions,
			RelatedObjects:   in.Status.RelatedObjects,
			AddOnMeta:        in.Status.AddOnMeta,
			SupportedConfigs: in.Status.SupportedConfigs,
			ConfigReferences: convertAll(in.Status.ConfigReferences, configReferenceToV1Alpha1),
			Namespace:        in.Status.Namespace,
			Registrations:    registrations,
			HealthCheck:      in.Status.HealthCheck,
			KubeClientDriver: driver,
		},
	}
	if err := moveInstallNamespace(out); err != nil {
		return nil, err
	}
	out.SetGroupVersionKind(addonv1alpha1.GroupVersion.WithKind(kindManagedClusterAddOn))
	return out, nil
}

// moveInstallNamespace takes the install namespace from its annotation into the spec.
func moveInstallNamespace(addOn *addonv1alpha1.ManagedClusterAddOn) error {
	namespace, ok := addOn.Annotations[fleet.AnnotationInstallNamespace]
	if !ok {
		return nil
	}
	path := field.NewPath("metadata", "annotations").Key(fleet.AnnotationInstallNamespace)
	if namespace != "" {
		for _, problem := range validation.IsDNS1123Label(namespace) {
			return field.Invalid(path, namespace, "must be the name of a namespace: "+problem)
		}
	}
	addOn.Spec.InstallNamespace = namespace
	addOn.Annotations = maps.Clone(addOn.Annotations)
	delete(addOn.Annotations, fleet.AnnotationInstallNamespace)
	if len(addOn.Annotations) == 0 {
		addOn.Annotations = nil
	}
	return nil
}

func configReferenceToV1Beta1(in addonv1alpha1.ConfigReference) addonv1beta1.ConfigReference {
	return addonv1beta1.ConfigReference{
		ConfigGroupResource:    in.ConfigGroupResource,
		LastObservedGeneration: in.LastObservedGeneration,
		DesiredConfig:          in.DesiredConfig,
		LastAppliedConfig:      in.LastAppliedConfig,
	}
}

// configReferenceToV1Alpha1 refills the deprecated name and namespace from the desired configuration.
func configReferenceToV1Alpha1(in addonv1beta1.ConfigReference) addonv1alpha1.ConfigReference {
	out := addonv1alpha1.ConfigReference{
		ConfigGroupResource:    in.ConfigGroupResource,
		LastObservedGeneration: in.LastObservedGeneration,
		DesiredConfig:          in.DesiredConfig,
		LastAppliedConfig:      in.LastAppliedConfig,
	}
	if in.DesiredConfig != nil {
		out.ConfigReferent = in.DesiredConfig.ConfigReferent
	}
	return out
}
