// Package gates turns the feature gates of a ClusterManager or Klusterlet into flags of the components.
package gates

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/component-base/featuregate"

	operatorv1 "github.com/capstan-io/capstan/api/operator/v1"
	"github.com/capstan-io/capstan/internal/featuregates"
)

// Component is a component with feature gates, by the name that messages have for it.
type Component struct {
	Name  string
	Gates []featuregate.Feature
}

// The components of a hub.
var (
	HubRegistration = Component{"registration", []featuregate.Feature{featuregates.DefaultClusterSet, "V1beta1CSRAPICompatibility",
		featuregates.ManagedClusterAutoApproval, featuregates.ResourceCleanup, featuregates.ClusterProfile, featuregates.ClusterImporter}}
	HubWork = Component{"work", []featuregate.Feature{featuregates.NilExecutorValidating, featuregates.ManifestWorkReplicaSet,
		featuregates.CloudEventsDrivers, featuregates.CleanUpCompletedManifestWork}}
	HubPlacement = Component{"placement", []featuregate.Feature{featuregates.SIGPlacementDecision, featuregates.PlacementDebugServer}}
	HubAddOn     = Component{"addon", []featuregate.Feature{featuregates.AddonManagement, featuregates.GitOpsCluster}}
	HubServer    = Component{"server", nil}
)

// The components of an agent.
var (
	AgentRegistration = Component{"registration", []featuregate.Feature{featuregates.ClusterClaim, featuregates.ClusterProperty,
		featuregates.AddonManagement, "V1beta1CSRAPICompatibility", featuregates.MultipleHubs, featuregates.ClusterProxy}}
	AgentWork = Component{"work", []featuregate.Feature{"ExecutorValidatingCaches", featuregates.RawFeedbackJsonString}}
)

// NetworkPolicies is a gate of the operators themselves: whether they create NetworkPolicies.
const NetworkPolicies featuregate.Feature = "NetworkPolicies"

// onInOCM are the gates that are on by default in Open Cluster Management.
var onInOCM = []featuregate.Feature{featuregates.ClusterClaim, featuregates.AddonManagement, featuregates.DefaultClusterSet,
	featuregates.ResourceCleanup}

// notInOCM are gates that components of Open Cluster Management do not know, and do not start with.
var notInOCM = []featuregate.Feature{featuregates.ClusterProxy}

// Values are the gates of a component as they were resolved.
type Values struct {
	component Component
	values    map[featuregate.Feature]bool
	defaults  *featuregates.Set
	// Unknown are the names in the spec that are no gates of the component.
	Unknown []string
}

// Resolve looks the gates of the component up in the spec. Those that the spec leaves out have the defaults of the set.
func Resolve(component Component, spec []operatorv1.FeatureGate, defaults *featuregates.Set) Values {
	v := Values{component: component, values: map[featuregate.Feature]bool{}, defaults: defaults}
	for _, gate := range component.Gates {
		v.values[gate] = defaults.Enabled(gate)
	}
	for _, gate := range spec {
		name := featuregate.Feature(gate.Feature)
		if name == NetworkPolicies {
			continue
		}
		if !slices.Contains(component.Gates, name) {
			v.Unknown = append(v.Unknown, gate.Feature)
			continue
		}
		v.values[name] = gate.Mode == operatorv1.FeatureGateModeTypeEnable
	}
	slices.Sort(v.Unknown)
	return v
}

// Enabled reports whether a gate of the component is on.
func (v Values) Enabled(gate featuregate.Feature) bool { return v.values[gate] }

// Flags are the arguments that give a component these gates, whether it is one of this project or of Open Cluster Management: those that
// are not the default of both.
func (v Values) Flags() []string {
	var pairs []string
	for _, gate := range v.component.Gates {
		on := v.values[gate]
		if on == v.defaults.Enabled(gate) && slices.Contains(notInOCM, gate) {
			continue
		}
		if on != slices.Contains(onInOCM, gate) || on != v.defaults.Enabled(gate) {
			pairs = append(pairs, fmt.Sprintf("%s=%t", gate, on))
		}
	}
	if len(pairs) == 0 {
		return nil
	}
	slices.Sort(pairs)
	return []string{"--feature-gates=" + strings.Join(pairs, ",")}
}

// NetworkPoliciesEnabled reports whether the operator creates NetworkPolicies: unless the spec switches them off.
func NetworkPoliciesEnabled(spec []operatorv1.FeatureGate) bool {
	at := slices.IndexFunc(spec, func(g operatorv1.FeatureGate) bool { return g.Feature == string(NetworkPolicies) })
	return at < 0 || spec[at].Mode == operatorv1.FeatureGateModeTypeEnable
}

// Unknown lists the unknown gates of the components, for the condition ValidFeatureGates; empty if there are none.
func Unknown(values ...Values) string {
	var parts []string
	for _, v := range values {
		if len(v.Unknown) > 0 {
			parts = append(parts, v.component.Name+": "+strings.Join(v.Unknown, ", "))
		}
	}
	return strings.Join(parts, "; ")
}
