package install

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/capstan-io/capstan/internal/cli/options"
)

// gatedPart is the part of a ClusterManager or Klusterlet that a feature gate is set in.
type gatedPart string

// The parts, by the names of their fields in the values of the charts.
const (
	registrationPart gatedPart = "registrationConfiguration"
	workPart         gatedPart = "workConfiguration"
	placementPart    gatedPart = "placementConfiguration"
	addOnPart        gatedPart = "addOnManagerConfiguration"
)

// featureGate is a feature gate that an operator passes on, or, if it is NetworkPolicies, acts on itself. The programs that have the gates
// declare them in package featuregates; this program does not import it, because what comes with it would make every command slower to
// start.
type featureGate struct {
	part gatedPart
	on   bool // by default
}

// hubFeatureGates are those of "capstan init".
var hubFeatureGates = map[string]featureGate{
	"AddonManagement":                        {addOnPart, true},
	"CleanUpCompletedManifestWork":           {workPart, true},
	"ClientIdentityPenetration":              {registrationPart, false},
	"CloudEventsDrivers":                     {workPart, false},
	"ClusterImporter":                        {registrationPart, false},
	"ClusterProfile":                         {registrationPart, false},
	"DefaultClusterSet":                      {registrationPart, true},
	"GitOpsCluster":                          {addOnPart, false},
	"ManagedClusterAutoApproval":             {registrationPart, false},
	"ManagedServiceAccountEphemeralIdentity": {registrationPart, false},
	"ManifestWorkReplicaSet":                 {workPart, true},
	"NetworkPolicies":                        {registrationPart, true},
	"NilExecutorValidating":                  {workPart, false},
	"PlacementDebugServer":                   {placementPart, true},
	"ResourceCleanup":                        {registrationPart, true},
	"SIGPlacementDecision":                   {placementPart, false},
	"V1beta1CSRAPICompatibility":             {registrationPart, false},
}

// agentFeatureGates are those of "capstan join".
var agentFeatureGates = map[string]featureGate{
	"AddonManagement":            {registrationPart, true},
	"ClusterClaim":               {registrationPart, true},
	"ClusterProperty":            {registrationPart, false},
	"ClusterProxy":               {registrationPart, true},
	"ExecutorValidatingCaches":   {workPart, true},
	"ManagedServiceAccount":      {registrationPart, false},
	"MultipleHubs":               {registrationPart, true},
	"NetworkPolicies":            {registrationPart, true},
	"RawFeedbackJsonString":      {workPart, true},
	"V1beta1CSRAPICompatibility": {registrationPart, false},
}

// gateFlag is --feature-gates of commands that install. It implements pflag.Value.
type gateFlag struct {
	gates map[string]featureGate
	set   map[string]bool
}

func addGateFlag(command *cobra.Command, gates map[string]featureGate) *gateFlag {
	f := &gateFlag{gates: gates, set: map[string]bool{}}
	var usage strings.Builder
	usage.WriteString("features to switch on or off, each as NAME=true or NAME=false:")
	for _, name := range slices.Sorted(maps.Keys(gates)) {
		fmt.Fprintf(&usage, "\n%s (default %t)", name, gates[name].on)
	}
	command.Flags().Var(f, "feature-gates", usage.String())
	options.Complete(command, "feature-gates", func(_ *cobra.Command, _ []string, typed string) ([]string, cobra.ShellCompDirective) {
		var completions []string
		for _, name := range slices.Sorted(maps.Keys(gates)) {
			completions = append(completions, fmt.Sprintf("%s=%t", name, !gates[name].on))
		}
		return options.CompleteList(typed, completions)
	})
	return f
}

// Set reads NAME=true,NAME=false.
func (f *gateFlag) Set(value string) error {
	for pair := range strings.SplitSeq(value, ",") {
		name, text, given := strings.Cut(strings.TrimSpace(pair), "=")
		if name == "" {
			continue
		}
		if _, known := f.gates[name]; !known {
			return fmt.Errorf("%q is no feature gate here; use some of %s", name, strings.Join(slices.Sorted(maps.Keys(f.gates)), ", "))
		}
		on := true
		if given {
			var err error
			if on, err = strconv.ParseBool(text); err != nil {
				return fmt.Errorf("%s=%q: must be true or false", name, text)
			}
		}
		f.set[name] = on
	}
	return nil
}

// String is what was set.
func (f *gateFlag) String() string {
	var pairs []string
	for _, name := range slices.Sorted(maps.Keys(f.set)) {
		pairs = append(pairs, fmt.Sprintf("%s=%t", name, f.set[name]))
	}
	return strings.Join(pairs, ",")
}

// Type names the flag's values in the help.
func (f *gateFlag) Type() string { return "mapStringBool" }

// enabled reports whether a gate is on.
func (f *gateFlag) enabled(name string) bool {
	if on, set := f.set[name]; set {
		return on
	}
	return f.gates[name].on
}

// of are the gates of a part as its custom resource lists them: those that are on, and those that were switched off.
func (f *gateFlag) of(part gatedPart) []any {
	gates := []any{}
	for _, name := range slices.Sorted(maps.Keys(f.gates)) {
		switch gate := f.gates[name]; {
		case gate.part != part:
		case f.enabled(name):
			gates = append(gates, map[string]any{"feature": name, "mode": "Enable"})
		case gate.on:
			gates = append(gates, map[string]any{"feature": name, "mode": "Disable"})
		}
	}
	return gates
}
