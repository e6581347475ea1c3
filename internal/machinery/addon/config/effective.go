package config

import (
	"cmp"
	"slices"

	addonv1beta1 "github.com/capstan-io/capstan/api/addon/v1beta1"
)

// Effective are the configurations that apply when several places give some. Of each type, the last layer that
// gives any replaces those before: pass the defaults of the ClusterManagementAddOn first, then the configs of the
// placement, then those of the ManagedClusterAddOn. A type may have several configurations; they keep their order, and
// each is listed once. The result is sorted by group and resource.
func Effective(layers ...[]addonv1beta1.AddOnConfig) []addonv1beta1.AddOnConfig {
	chosen := map[addonv1beta1.ConfigGroupResource][]addonv1beta1.AddOnConfig{}
	for _, layer := range layers {
		given := map[addonv1beta1.ConfigGroupResource][]addonv1beta1.AddOnConfig{}
		for _, config := range layer {
			if config.Name != addonv1beta1.ReservedNoDefaultConfigName && !slices.Contains(given[config.ConfigGroupResource], config) {
				given[config.ConfigGroupResource] = append(given[config.ConfigGroupResource], config)
			}
		}
		for kind, configs := range given {
			chosen[kind] = configs
		}
	}
	var all []addonv1beta1.AddOnConfig
	for _, configs := range chosen {
		all = append(all, configs...)
	}
	slices.SortStableFunc(all, func(a, b addonv1beta1.AddOnConfig) int {
		return cmp.Or(cmp.Compare(a.Group, b.Group), cmp.Compare(a.Resource, b.Resource))
	})
	return all
}

// Pending are references to configurations that the add-on is to have and has not been given: they do not exist yet, or its
// turn has not come. Managers wait while there is one. Without any, they deploy the add-on with defaults.
func Pending(configs []addonv1beta1.AddOnConfig) (references []addonv1beta1.ConfigReference) {
	for _, config := range configs {
		references = append(references, addonv1beta1.ConfigReference{
			ConfigGroupResource: config.ConfigGroupResource, DesiredConfig: &addonv1beta1.ConfigSpecHash{ConfigReferent: config.ConfigReferent},
		})
	}
	return references
}

// IsPending reports whether a reference is to a configuration that the add-on has not been given.
func IsPending(reference addonv1beta1.ConfigReference) bool {
	return reference.DesiredConfig == nil || reference.DesiredConfig.SpecHash == ""
}

// Supported splits configurations into those of the types that an add-on supports, and the others, which have no effect.
func Supported(configs []addonv1beta1.AddOnConfig, types []addonv1beta1.ConfigGroupResource) (supported,
	others []addonv1beta1.AddOnConfig) {
	for _, config := range configs {
		if slices.Contains(types, config.ConfigGroupResource) {
			supported = append(supported, config)
		} else {
			others = append(others, config)
		}
	}
	return supported, others
}
