package catalogue

import (
	"errors"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/capstan-io/capstan/addon"
)

// check returns the mistakes in options that do not depend on a cluster.
func check(options addon.Options) error {
	if options.Name == "" {
		return errors.New("there is no Name: set it to that of its ClusterManagementAddOn")
	}
	if len(options.Name) > validation.LabelValueMaxLength {
		return fmt.Errorf("the Name %q has %d characters: choose one of no more than %d, which is what a label holds", options.Name,
			len(options.Name), validation.LabelValueMaxLength)
	}
	if problems := validation.IsDNS1123Subdomain(options.Name); len(problems) > 0 {
		return fmt.Errorf("the Name %q: %s", options.Name, problems[0])
	}
	if options.Registration != nil && options.Registration.Configs == nil {
		return errors.New("the Registration has no Configs: say what the agent registers for, or leave Registration nil")
	}
	for _, kind := range options.Configs {
		if kind.Version == "" || kind.Resource == "" {
			return fmt.Errorf("one of the Configs is %q: give version and resource, such as v1beta1 and addondeploymentconfigs", kind)
		}
	}
	return checkHealth(options.Health)
}

var modes = []addon.HealthMode{
	addon.HealthLease, addon.HealthNone, addon.HealthManifests, addon.HealthDeployments, addon.HealthWorkloads, addon.HealthProbes,
}

func checkHealth(health addon.Health) error {
	switch {
	case !slices.Contains(modes, health.Mode):
		return fmt.Errorf("Health.Mode %q does not exist: use one of %q", health.Mode, modes)
	case health.Mode == addon.HealthProbes && len(health.Probes) == 0:
		return errors.New("the Health has no Probes, which the mode HealthProbes needs")
	case health.Mode != addon.HealthProbes && len(health.Probes) > 0:
		return fmt.Errorf("the Health has Probes, which the mode %q does not ask: use HealthProbes", health.Mode)
	}
	for i, probe := range health.Probes {
		if probe.Resource.Resource == "" || probe.Resource.Name == "" {
			return fmt.Errorf("Health.Probes[%d].Resource names no object: give resource and name, such as deployments and *", i)
		}
		if probe.Healthy == nil {
			return fmt.Errorf("Health.Probes[%d] has no Healthy to ask", i)
		}
	}
	return nil
}
