package conversion

import (
	addonv1alpha1 "github.com/capstan-io/capstan/api/addon/v1alpha1"
	addonv1beta1 "github.com/capstan-io/capstan/api/addon/v1beta1"
)

// ClusterManagementAddOnToV1Beta1 converts from the stored version. A type in supportedConfigs without default becomes
// a default of the name ReservedNoDefaultConfigName.
func ClusterManagementAddOnToV1Beta1(in *addonv1alpha1.ClusterManagementAddOn) *addonv1beta1.ClusterManagementAddOn {
	out := &addonv1beta1.ClusterManagementAddOn{
		ObjectMeta: in.ObjectMeta,
		Spec: addonv1beta1.ClusterManagementAddOnSpec{
			AddOnMeta:       in.Spec.AddOnMeta,
			DefaultConfigs:  convertAll(in.Spec.SupportedConfigs, defaultConfig),
			InstallStrategy: in.Spec.InstallStrategy,
		},
		Status: addonv1beta1.ClusterManagementAddOnStatus{
			DefaultConfigReferences: in.Status.DefaultConfigReferences,
			InstallProgressions:     in.Status.InstallProgressions,
		},
	}
	out.SetGroupVersionKind(addonv1beta1.GroupVersion.WithKind(kindClusterManagementAddOn))
	return out
}

// ClusterManagementAddOnToV1Alpha1 converts to the stored version.
func ClusterManagementAddOnToV1Alpha1(in *addonv1beta1.ClusterManagementAddOn) *addonv1alpha1.ClusterManagementAddOn {
	out := &addonv1alpha1.ClusterManagementAddOn{
		ObjectMeta: in.ObjectMeta,
		Spec: addonv1alpha1.ClusterManagementAddOnSpec{
			AddOnMeta:        in.Spec.AddOnMeta,
			SupportedConfigs: convertAll(in.Spec.DefaultConfigs, supportedConfig),
			InstallStrategy:  in.Spec.InstallStrategy,
		},
		Status: addonv1alpha1.ClusterManagementAddOnStatus{
			DefaultConfigReferences: in.Status.DefaultConfigReferences,
			InstallProgressions:     in.Status.InstallProgressions,
		},
	}
	out.SetGroupVersionKind(addonv1alpha1.GroupVersion.WithKind(kindClusterManagementAddOn))
	return out
}

func defaultConfig(in addonv1alpha1.ConfigMeta) addonv1beta1.AddOnConfig {
	out := addonv1beta1.AddOnConfig{
		ConfigGroupResource: in.ConfigGroupResource,
		ConfigReferent:      addonv1beta1.ConfigReferent{Name: addonv1beta1.ReservedNoDefaultConfigName},
	}
	if in.DefaultConfig != nil {
		out.ConfigReferent = *in.DefaultConfig
	}
	return out
}

func supportedConfig(in addonv1beta1.AddOnConfig) addonv1alpha1.ConfigMeta {
	out := addonv1alpha1.ConfigMeta{ConfigGroupResource: in.ConfigGroupResource}
	if in.Name != addonv1beta1.ReservedNoDefaultConfigName {
		out.DefaultConfig = &in.ConfigReferent
	}
	return out
}

// convertAll converts every element, and nil to nil.
func convertAll[In, Out any](in []In, convert func(In) Out) []Out {
	if in == nil {
		return nil
	}
	out := make([]Out, 0, len(in))
	for i := range in {
		out = append(out, convert(in[i]))
	}
	return out
}
