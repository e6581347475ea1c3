package gates_test

import (
	"os"
	"strings"
	"testing"

	"github.com/go-logr/logr/funcr"
	"github.com/spf13/pflag"
	"k8s.io/component-base/featuregate"

	"github.com/capstan-io/capstan/internal/gates"
)

// SC-23: every gate is accepted where it belongs, with either value, and is what it is set to.
func TestEveryGateOfTheContract(t *testing.T) {
	t.Parallel()
	hub := []featuregate.Feature{
		"AddonManagement", "V1beta1CSRAPICompatibility", "DefaultClusterSet", "ManagedClusterAutoApproval", "ResourceCleanup", "ClusterProfile", "ClusterImporter",
		"NilExecutorValidating", "ManifestWorkReplicaSet", "CloudEventsDrivers", "CleanUpCompletedManifestWork", "SIGPlacementDecision", "PlacementDebugServer",
	}
	agent := []featuregate.Feature{
		"ClusterClaim", "ClusterProperty", "AddonManagement", "V1beta1CSRAPICompatibility", "MultipleHubs", "ExecutorValidatingCaches", "RawFeedbackJsonString",
	}
	for side, test := range map[string]struct {
		names  []featuregate.Feature
		create func() *gates.Set
	}{"hub": {hub, gates.Hub}, "agent": {agent, gates.Agent}} {
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
	hub, agent := gates.Hub(), gates.Agent()
	for name, want := range map[featuregate.Feature]bool{
		gates.AddonManagement: true, gates.CleanUpCompletedManifestWork: true, gates.ClusterProfile: false, gates.DefaultClusterSet: true,
		gates.ManagedClusterAutoApproval: false, gates.ManifestWorkReplicaSet: true, gates.NilExecutorValidating: false, gates.PlacementDebugServer: true, gates.ResourceCleanup: true,
	} {
		if hub.Enabled(name) != want {
			t.Errorf("hub: %s is %t", name, !want)
		}
	}
	for name, want := range map[featuregate.Feature]bool{
		gates.AddonManagement: true, gates.ClusterClaim: true, gates.ClusterProperty: false, gates.MultipleHubs: true, gates.RawFeedbackJsonString: true,
	} {
		if agent.Enabled(name) != want {
			t.Errorf("agent: %s is %t", name, !want)
		}
	}
}

func TestRefused(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		set   *gates.Set
		value string
		want  []string
	}{
		"unknown":      {gates.Hub(), "ClusterProfile=true,Nonsense=true", []string{`"Nonsense" is no feature gate`, "AddonManagement", "V1beta1CSRAPICompatibility"}},
		"of the agent": {gates.Hub(), "ClusterClaim=false", []string{`"ClusterClaim" is no feature gate here (it is one of agents)`}},
		"of the hub":   {gates.Agent(), "DefaultClusterSet=false", []string{"it is one of the hub", "RawFeedbackJsonString"}},
		"no value":     {gates.Agent(), "ClusterClaim", []string{"ClusterClaim"}},
		"no boolean":   {gates.Agent(), "ClusterClaim=maybe", []string{"maybe"}},
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
	set := gates.Agent()
	if err := set.Set("AllAlpha=true"); err != nil || !set.Enabled(gates.ClusterProperty) {
		t.Errorf("%v, ClusterProperty is %t", err, set.Enabled(gates.ClusterProperty))
	}
}

// What changes nothing is accepted and said.
func TestLog(t *testing.T) {
	t.Parallel()
	var lines []string
	logger := funcr.New(func(_, line string) { lines = append(lines, line) }, funcr.Options{})
	set := gates.Agent()
	if err := set.Set("ExecutorValidatingCaches=true, ClusterClaim=true"); err != nil {
		t.Fatal(err)
	}
	set.Log(logger)
	if len(lines) != 1 || !strings.Contains(lines[0], "ExecutorValidatingCaches") || !strings.Contains(lines[0], "always on") {
		t.Errorf("logged %q", lines)
	}
}

// The page about feature gates has all of them.
func TestDocs(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/flags.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, set := range []*gates.Set{gates.Hub(), gates.Agent()} {
		for name := range set.GetAll() {
			if name != "AllAlpha" && name != "AllBeta" && !strings.Contains(string(page), "`"+string(name)+"`") {
				t.Errorf("docs/flags.md does not say what %s is", name)
			}
		}
	}
}

// Whoever asks is told of the gates that change something, as they are.
func TestValues(t *testing.T) {
	t.Parallel()
	set := gates.Hub()
	if err := set.Set("ClusterProfile=true,DefaultClusterSet=false,SIGPlacementDecision=true"); err != nil {
		t.Fatal(err)
	}
	got := strings.Join(set.Values(), ",")
	for _, want := range []string{"ClusterProfile=true", "DefaultClusterSet=false", "ManifestWorkReplicaSet=true"} {
		if !strings.Contains(got, want) {
			t.Errorf("%s is missing in %s", want, got)
		}
	}
	if strings.Contains(got, "SIGPlacementDecision") {
		t.Errorf("a gate that changes nothing is in %s", got)
	}
}
