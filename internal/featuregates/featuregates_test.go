package featuregates_test

import (
	"strings"
	"testing"

	"github.com/go-logr/logr/funcr"
	"github.com/spf13/pflag"
	"k8s.io/component-base/featuregate"

	"github.com/capstan-io/capstan/internal/featuregates"
)

// SC-23 CG-05: every gate is accepted where it belongs, with either value, and is what it is set to.
func TestEveryGateOfOCM(t *testing.T) {
	t.Parallel()
	hub := []featuregate.Feature{
		"AddonManagement", "V1beta1CSRAPICompatibility", "DefaultClusterSet", "ManagedClusterAutoApproval", "ResourceCleanup", "ClusterProfile",
		"ClusterImporter",
		"NilExecutorValidating", "ManifestWorkReplicaSet", "CloudEventsDrivers", "CleanUpCompletedManifestWork", "SIGPlacementDecision",
		"PlacementDebugServer",
	}
	gateway := []featuregate.Feature{"HealthinessCheck", "SecretCache", "ClientIdentityPenetration", "OCMClusterCache"}
	agent := []featuregate.Feature{
		"ClusterClaim", "ClusterProperty", "AddonManagement", "V1beta1CSRAPICompatibility", "MultipleHubs", "ExecutorValidatingCaches",
		"RawFeedbackJsonString",
	}
	for side, test := range map[string]struct {
		names  []featuregate.Feature
		create func() *featuregates.Set
	}{"hub": {hub, featuregates.Hub}, "agent": {agent, featuregates.Agent}, "gateway": {gateway, featuregates.Gateway},
		"tunnels":          {[]featuregate.Feature{"ClusterProfile", "GitOpsCluster"}, featuregates.Tunnels},
		"service accounts": {[]featuregate.Feature{"EphemeralIdentity", "ClusterProfile"}, featuregates.ServiceAccounts}} {
		for _, name := range test.names {
			for value, want := range map[string]bool{"true": true, "false": false} {
				set := test.create()
				flags := pflag.NewFlagSet(side, pflag.ContinueOnError)
				set.AddFlag(flags)
				if err := flags.Parse([]string{"--feature-gates=" + string(name) + "=" + value}); err != nil || set.Enabled(name) != want {
					t.Errorf("%s: %s=%s: %v, enabled %t", side, name, value, err, set.Enabled(name))
				}
			}
		}
	}
}

// What is on where nobody says anything.
func TestDefaults(t *testing.T) {
	t.Parallel()
	hub, agent := featuregates.Hub(), featuregates.Agent()
	for name, want := range map[featuregate.Feature]bool{
		featuregates.AddonManagement: true, featuregates.CleanUpCompletedManifestWork: true, featuregates.ClusterProfile: false,
		featuregates.DefaultClusterSet:          true,
		featuregates.ManagedClusterAutoApproval: false, featuregates.ManifestWorkReplicaSet: true, featuregates.NilExecutorValidating: false,
		featuregates.PlacementDebugServer: true, featuregates.ResourceCleanup: true,
	} {
		if hub.Enabled(name) != want {
			t.Errorf("hub: %s is %t", name, !want)
		}
	}
	for name, want := range map[featuregate.Feature]bool{
		featuregates.AddonManagement: true, featuregates.ClusterClaim: true, featuregates.ClusterProperty: false, featuregates.MultipleHubs: true,
		featuregates.RawFeedbackJsonString: true,
	} {
		if agent.Enabled(name) != want {
			t.Errorf("agent: %s is %t", name, !want)
		}
	}
}

func TestRefused(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		set   *featuregates.Set
		value string
		want  []string
	}{
		"unknown": {featuregates.Hub(), "ClusterProfile=true,Nonsense=true", []string{`"Nonsense" is no feature gate`, "AddonManagement",
			"V1beta1CSRAPICompatibility"}},
		"of the agent": {featuregates.Hub(), "ClusterClaim=false", []string{`"ClusterClaim" is no feature gate here (it is one of agents)`}},
		"of the hub":   {featuregates.Agent(), "DefaultClusterSet=false", []string{"it is one of the hub", "RawFeedbackJsonString"}},
		"no value":     {featuregates.Agent(), "ClusterClaim", []string{"ClusterClaim"}},
		"no boolean":   {featuregates.Agent(), "ClusterClaim=maybe", []string{"maybe"}},
	} {
		err := test.set.Set(test.value)
		if err == nil {
			t.Errorf("%s: no error", name)
			continue
		}
		for _, text := range test.want {
			if !strings.Contains(err.Error(), text) {
				t.Errorf("%s: %q does not hold %q", name, err, text)
			}
		}
	}
}

// Gates that many are switched by are those of the field.
func TestAllAlpha(t *testing.T) {
	t.Parallel()
	set := featuregates.Agent()
	if err := set.Set("AllAlpha=true"); err != nil || !set.Enabled(featuregates.ClusterProperty) {
		t.Errorf("%v, ClusterProperty is %t", err, set.Enabled(featuregates.ClusterProperty))
	}
}

// What changes nothing is accepted and said.
func TestLog(t *testing.T) {
	t.Parallel()
	var lines []string
	logger := funcr.New(func(_, line string) { lines = append(lines, line) }, funcr.Options{})
	set := featuregates.Agent()
	if err := set.Set("ExecutorValidatingCaches=true, ClusterClaim=true"); err != nil {
		t.Fatal(err)
	}
	set.Log(logger)
	if len(lines) != 1 || !strings.Contains(lines[0], "ExecutorValidatingCaches") || !strings.Contains(lines[0], "always on") {
		t.Errorf("logged %q", lines)
	}
}

// Users are told of the gates that change something, as they are.
func TestValues(t *testing.T) {
	t.Parallel()
	set := featuregates.Hub()
	if err := set.Set("ClusterProfile=true,DefaultClusterSet=false,CloudEventsDrivers=true"); err != nil {
		t.Fatal(err)
	}
	got := strings.Join(set.Values(), ",")
	for _, want := range []string{"ClusterProfile=true", "DefaultClusterSet=false", "ManifestWorkReplicaSet=true"} {
		if !strings.Contains(got, want) {
			t.Errorf("%s is missing in %s", want, got)
		}
	}
	if strings.Contains(got, "CloudEventsDrivers") {
		t.Errorf("a gate that changes nothing is in %s", got)
	}
}
