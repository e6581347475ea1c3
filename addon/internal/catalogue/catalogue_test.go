package catalogue

import (
	"context"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/capstan-io/capstan/addon"
	addonv1beta1 "github.com/capstan-io/capstan/api/addon/v1beta1"
	workv1 "github.com/capstan-io/capstan/api/work/v1"
)

type agent addon.Options

func (a agent) Options() addon.Options { return addon.Options(a) }

func (a agent) Manifests(context.Context, addon.Installation) (*addon.Workload, error) {
	return &addon.Workload{}, nil
}

func configs(context.Context, addon.Installation) ([]addonv1beta1.RegistrationConfig, error) {
	return nil, nil
}

// AF-02, AF-07: mistakes are reported when a manager gets an add-on, and not by every cluster.
func TestOf(t *testing.T) {
	t.Parallel()
	const name = "hello"
	probes := []addon.Probe{addon.DeploymentProbe("ns", "*")}
	for what, test := range map[string]struct {
		agents []addon.Agent
		says   string // nothing if all is well
	}{
		"least": {[]addon.Agent{agent{Name: name}}, ""},
		"all": {[]addon.Agent{agent{Name: name, Registration: &addon.Registration{Configs: configs},
			Health: addon.Health{Mode: addon.HealthProbes, Probes: probes}}}, ""},
		"none":                {nil, "no add-on is given"},
		"nil":                 {[]addon.Agent{agent{Name: name}, nil}, "add-on 1 is nil"},
		"no name":             {[]addon.Agent{agent{}}, "catalogue.agent: there is no Name"},
		"name with capitals":  {[]addon.Agent{agent{Name: "Hello"}}, `Name "Hello": a lowercase`},
		"long name":           {[]addon.Agent{agent{Name: strings.Repeat("a", 64)}}, "64 characters: choose one of no more than 63"},
		"same name":           {[]addon.Agent{agent{Name: name}, agent{Name: name}}, `"hello"`},
		"no registrations":    {[]addon.Agent{agent{Name: name, Registration: &addon.Registration{}}}, "Registration has no Configs"},
		"config without type": {[]addon.Agent{agent{Name: name, Configs: []schema.GroupVersionResource{{Group: "g"}}}}, "one of the Configs is"},
		"mode": {[]addon.Agent{agent{Name: name, Health: addon.Health{Mode: "Probe"}}},
			`Health.Mode "Probe" does not exist: use one of`},
		"probes without probe": {[]addon.Agent{agent{Name: name, Health: addon.Health{Mode: addon.HealthProbes}}}, "Health has no Probes"},
		"probes not asked":     {[]addon.Agent{agent{Name: name, Health: addon.Health{Probes: probes}}}, "use HealthProbes"},
		"probe of nothing": {[]addon.Agent{agent{Name: name,
			Health: addon.Health{Mode: addon.HealthProbes, Probes: []addon.Probe{{Resource: workv1.ResourceIdentifier{Resource: "deployments"}}}}}},
			"Probes[0].Resource names no object"},
		"probe that asks not": {[]addon.Agent{agent{Name: name,
			Health: addon.Health{Mode: addon.HealthProbes, Probes: []addon.Probe{{Resource: probes[0].Resource}}}}}, "Probes[0] has no Healthy"},
	} {
		_, err := Of(test.agents...)
		if test.says == "" && err != nil || test.says != "" && (err == nil || !strings.Contains(err.Error(), test.says)) {
			t.Errorf("%s: %v, want %s", what, err, test.says)
		}
	}
}
