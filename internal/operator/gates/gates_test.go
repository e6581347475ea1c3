package gates_test

import (
	"slices"
	"testing"

	operatorv1 "github.com/capstan-io/capstan/api/operator/v1"
	"github.com/capstan-io/capstan/internal/featuregates"
	"github.com/capstan-io/capstan/internal/operator/gates"
)

func spec(names ...string) (all []operatorv1.FeatureGate) {
	for _, name := range names {
		mode := operatorv1.FeatureGateModeTypeEnable
		if name[0] == '-' {
			name, mode = name[1:], operatorv1.FeatureGateModeTypeDisable
		}
		all = append(all, operatorv1.FeatureGate{Feature: name, Mode: mode})
	}
	return all
}

// CM-14 NX-01: what is not the default of both projects is passed.
func TestFlags(t *testing.T) {
	t.Parallel()
	hub, agent := featuregates.Hub(), featuregates.Agent()
	for name, test := range map[string]struct {
		values  gates.Values
		flags   []string
		unknown []string
	}{
		"defaults":    {gates.Resolve(gates.HubRegistration, nil, hub), nil, nil},
		"ours is on":  {gates.Resolve(gates.HubPlacement, nil, hub), []string{"--feature-gates=PlacementDebugServer=true"}, nil},
		"switched on": {gates.Resolve(gates.HubRegistration, spec("ClusterProfile"), hub), []string{"--feature-gates=ClusterProfile=true"}, nil},
		"switched off": {gates.Resolve(gates.HubRegistration, spec("-DefaultClusterSet", "-ResourceCleanup"), hub),
			[]string{"--feature-gates=DefaultClusterSet=false,ResourceCleanup=false"}, nil},
		"ours switched off": {gates.Resolve(gates.HubPlacement, spec("-PlacementDebugServer"), hub),
			[]string{"--feature-gates=PlacementDebugServer=false"}, nil},
		"unknown": {gates.Resolve(gates.HubRegistration, spec("Nonsense", "ManifestWorkReplicaSet"), hub), nil,
			[]string{"ManifestWorkReplicaSet", "Nonsense"}},
		"of the operator": {gates.Resolve(gates.HubRegistration, spec("-NetworkPolicies"), hub), nil, nil},
		"agent": {gates.Resolve(gates.AgentRegistration, spec("-ClusterClaim"), agent),
			[]string{"--feature-gates=ClusterClaim=false,MultipleHubs=true"}, nil},
		"agent without tunnel": {gates.Resolve(gates.AgentRegistration, spec("-ClusterProxy"), agent),
			[]string{"--feature-gates=ClusterProxy=false,MultipleHubs=true"}, nil},
	} {
		if got := test.values.Flags(); !slices.Equal(got, test.flags) || !slices.Equal(test.values.Unknown, test.unknown) {
			t.Errorf("%s: %v, unknown %v", name, got, test.values.Unknown)
		}
	}
	if got := gates.Unknown(gates.Resolve(gates.HubWork, spec("B", "A"), hub),
		gates.Resolve(gates.HubAddOn, spec("C"), hub)); got != "work: A, B; addon: C" {
		t.Errorf("unknown: %s", got)
	}
}
