// Package featuregates declares the feature gates: one list for all programs of the hub, and one for agents.
package featuregates

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/go-logr/logr"
	"github.com/spf13/pflag"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/component-base/featuregate"
)

// Gates of the hub.
const (
	// CleanUpCompletedManifestWork deletes works whose time to live after their completion is over.
	CleanUpCompletedManifestWork featuregate.Feature = "CleanUpCompletedManifestWork"
	// CloudEventsDrivers lets a ClusterManager have works brought to agents by a broker. The programs need no gate for it.
	CloudEventsDrivers featuregate.Feature = "CloudEventsDrivers"
	// ClientIdentityPenetration makes requests through ClusterGateways impersonate their callers.
	ClientIdentityPenetration featuregate.Feature = "ClientIdentityPenetration"
	// ClusterImporter installs agents in clusters for which the hub has a kubeconfig.
	ClusterImporter featuregate.Feature = "ClusterImporter"
	// ClusterProfile presents clusters in the inventory API of the Kubernetes SIG Multicluster, with the ways and the tokens to reach them.
	ClusterProfile featuregate.Feature = "ClusterProfile"
	// DefaultClusterSet keeps the sets that every hub has, and puts new clusters into one.
	DefaultClusterSet featuregate.Feature = "DefaultClusterSet"
	// GitOpsCluster makes clusters known to Argo CD.
	GitOpsCluster featuregate.Feature = "GitOpsCluster"
	// ManagedClusterAutoApproval approves and accepts the clusters of users that are named.
	ManagedClusterAutoApproval featuregate.Feature = "ManagedClusterAutoApproval"
	// ManagedServiceAccountEphemeralIdentity deletes ManagedServiceAccounts whose time is over.
	ManagedServiceAccountEphemeralIdentity featuregate.Feature = "ManagedServiceAccountEphemeralIdentity"
	// ManifestWorkReplicaSet brings works to the clusters of placements.
	ManifestWorkReplicaSet featuregate.Feature = "ManifestWorkReplicaSet"
	// NilExecutorValidating asks who makes a work without an executor whether he may act as the work agent.
	NilExecutorValidating featuregate.Feature = "NilExecutorValidating"
	// PlacementDebugServer tells why placements select what they do.
	PlacementDebugServer featuregate.Feature = "PlacementDebugServer"
	// ResourceCleanup empties the namespace of a cluster that is deleted.
	ResourceCleanup featuregate.Feature = "ResourceCleanup"
	// SIGPlacementDecision shows decisions of placements in the inventory API of the Kubernetes SIG Multicluster.
	SIGPlacementDecision featuregate.Feature = "SIGPlacementDecision"
)

// EphemeralIdentity of the manager of managed service accounts is what ManagedServiceAccountEphemeralIdentity is of the hub.
const EphemeralIdentity featuregate.Feature = "EphemeralIdentity"

// Gates of agents.
const (
	// ClusterClaim reports the ClusterClaims of the managed cluster.
	ClusterClaim featuregate.Feature = "ClusterClaim"
	// ClusterProxy lets users of the hub reach the managed cluster, if the hub has the built-in add-on cluster-proxy for it.
	ClusterProxy featuregate.Feature = "ClusterProxy"
	// ClusterProperty reports the ClusterProperties of the managed cluster.
	ClusterProperty featuregate.Feature = "ClusterProperty"
	// MultipleHubs lets an agent know several hubs, and turn from one to another.
	MultipleHubs featuregate.Feature = "MultipleHubs"
	// RawFeedbackJsonString reports objects and lists as values of works.
	RawFeedbackJsonString featuregate.Feature = "RawFeedbackJsonString" //nolint:revive // spelt so on the wire
)

// AddonManagement is a gate of both: the hub runs the manager of add-ons, an agent gives them access to the hub and says how they are.
const AddonManagement featuregate.Feature = "AddonManagement"

// gate is a feature gate. One with a note changes nothing, and the note says why.
type gate struct {
	featuregate.FeatureSpec
	note string
}

// Why a gate changes nothing.
const (
	alwaysOn     = "this is always on"
	notCached    = "the gateway reads ManagedClusters for VirtualClusters alone, as they are asked for"
	byAddOn      = "the add-on managed-serviceaccount is enabled on the hub"
	byWorkDriver = "the flag --work-driver alone decides"
	csrV1Served  = "every Kubernetes that is supported serves certificates.k8s.io/v1"
)

func on(stage featuregate.FeatureSpec) gate {
	stage.Default = true
	return gate{FeatureSpec: stage}
}

var (
	alpha = featuregate.FeatureSpec{PreRelease: featuregate.Alpha}
	beta  = featuregate.FeatureSpec{PreRelease: featuregate.Beta}
)

var hubGates = map[featuregate.Feature]gate{
	AddonManagement:                        on(beta),
	CleanUpCompletedManifestWork:           on(alpha),
	ClientIdentityPenetration:              {FeatureSpec: alpha},
	CloudEventsDrivers:                     {alpha, byWorkDriver},
	ClusterImporter:                        {FeatureSpec: alpha},
	ClusterProfile:                         {FeatureSpec: alpha},
	DefaultClusterSet:                      on(alpha),
	GitOpsCluster:                          {FeatureSpec: alpha},
	ManagedClusterAutoApproval:             {FeatureSpec: alpha},
	ManagedServiceAccountEphemeralIdentity: {FeatureSpec: alpha},
	ManifestWorkReplicaSet:                 on(alpha),
	NilExecutorValidating:                  {FeatureSpec: alpha},
	PlacementDebugServer:                   on(alpha),
	ResourceCleanup:                        on(beta),
	SIGPlacementDecision:                   {FeatureSpec: alpha},
	"V1beta1CSRAPICompatibility":           {alpha, csrV1Served},
}

var serviceAccountGates = map[featuregate.Feature]gate{
	ClusterProfile:    {FeatureSpec: alpha},
	EphemeralIdentity: {FeatureSpec: alpha},
}

var gatewayGates = map[featuregate.Feature]gate{
	ClientIdentityPenetration: {FeatureSpec: alpha},
	"HealthinessCheck":        {alpha, alwaysOn},
	"OCMClusterCache":         {featuregate.FeatureSpec{Default: true, PreRelease: featuregate.Beta}, notCached},
	"SecretCache":             {featuregate.FeatureSpec{Default: true, PreRelease: featuregate.Beta}, alwaysOn},
}

var tunnelGates = map[featuregate.Feature]gate{
	ClusterProfile: {FeatureSpec: alpha},
	GitOpsCluster:  {FeatureSpec: alpha},
}

var agentGates = map[featuregate.Feature]gate{
	AddonManagement:              on(beta),
	ClusterClaim:                 on(beta),
	ClusterProperty:              {FeatureSpec: alpha},
	ClusterProxy:                 on(beta),
	"ExecutorValidatingCaches":   {featuregate.FeatureSpec{Default: true, PreRelease: featuregate.Alpha}, alwaysOn},
	"ManagedServiceAccount":      {alpha, byAddOn},
	MultipleHubs:                 on(alpha),
	RawFeedbackJsonString:        on(alpha),
	"V1beta1CSRAPICompatibility": {alpha, csrV1Served},
}

// Set is the feature gates of a process.
type Set struct {
	featuregate.MutableFeatureGate
	gates  map[featuregate.Feature]gate
	others map[featuregate.Feature]gate
	owner  string // of others
	set    map[featuregate.Feature]bool
}

// Hub returns the gates of the hub with their defaults.
func Hub() *Set { return newSet(hubGates, agentGates, "agents") }

// ServiceAccounts returns the gates of the manager of managed service accounts with their defaults.
func ServiceAccounts() *Set { return newSet(serviceAccountGates, hubGates, "the hub's other programs") }

// Gateway returns the gates of the gateway of an existing cluster with their defaults.
func Gateway() *Set { return newSet(gatewayGates, hubGates, "the hub's other programs") }

// Tunnels returns the gates of the program with the tunnels of an existing cluster, with their defaults.
func Tunnels() *Set { return newSet(tunnelGates, hubGates, "the hub's other programs") }

// Agent returns the gates of agents with their defaults.
func Agent() *Set { return newSet(agentGates, hubGates, "the hub") }

func newSet(all, others map[featuregate.Feature]gate, owner string) *Set {
	s := &Set{MutableFeatureGate: featuregate.NewFeatureGate(), gates: all, others: others, owner: owner, set: map[featuregate.Feature]bool{}}
	specs := map[featuregate.Feature]featuregate.FeatureSpec{}
	for name, g := range all {
		specs[name] = g.FeatureSpec
	}
	utilruntime.Must(s.Add(specs))
	return s
}

// AddFlag adds --feature-gates.
func (s *Set) AddFlag(flags *pflag.FlagSet) {
	var usage strings.Builder
	usage.WriteString("Features to switch on or off, each as NAME=true or NAME=false:\n")
	for _, name := range slices.Sorted(maps.Keys(s.gates)) {
		g := s.gates[name]
		fmt.Fprintf(&usage, "%s (%s, default %t)", name, strings.ToLower(string(g.PreRelease)), g.Default)
		if g.note != "" {
			fmt.Fprintf(&usage, ": accepted, but %s", g.note)
		}
		usage.WriteString("\n")
	}
	flags.Var(s, "feature-gates", strings.TrimSuffix(usage.String(), "\n"))
}

// The names of those that switch many.
const (
	allAlpha featuregate.Feature = "AllAlpha"
	allBeta  featuregate.Feature = "AllBeta"
)

// Set implements pflag.Value.
func (s *Set) Set(value string) error {
	for pair := range strings.SplitSeq(value, ",") {
		text, _, _ := strings.Cut(pair, "=")
		name := featuregate.Feature(strings.TrimSpace(text))
		if _, known := s.gates[name]; known {
			s.set[name] = true
		} else if name != "" && name != allAlpha && name != allBeta {
			return s.unknown(name)
		}
	}
	return s.MutableFeatureGate.(pflag.Value).Set(value) //nolint:forcetypeassert // what AddFlag of a gate relies on, too
}

func (s *Set) unknown(name featuregate.Feature) error {
	hint := ""
	if _, other := s.others[name]; other {
		hint = fmt.Sprintf(" (it is one of %s)", s.owner)
	}
	var names []string
	for _, k := range slices.Sorted(maps.Keys(s.gates)) {
		names = append(names, string(k))
	}
	return fmt.Errorf("%q is no feature gate here%s; use some of %s", name, hint, strings.Join(names, ", "))
}

// Values are the gates that change something, each as NAME=true or NAME=false.
func (s *Set) Values() (values []string) {
	for _, name := range slices.Sorted(maps.Keys(s.gates)) {
		if s.gates[name].note == "" {
			values = append(values, fmt.Sprintf("%s=%t", name, s.Enabled(name)))
		}
	}
	return values
}

// Type implements pflag.Value.
func (s *Set) Type() string { return "mapStringBool" }

// String implements pflag.Value.
func (s *Set) String() string {
	if s == nil || s.MutableFeatureGate == nil {
		return ""
	}
	return s.MutableFeatureGate.(fmt.Stringer).String() //nolint:forcetypeassert // a pflag.Value is one
}

// Log tells of the gates that were set and change nothing.
func (s *Set) Log(logger logr.Logger) {
	for _, name := range slices.Sorted(maps.Keys(s.set)) {
		if note := s.gates[name].note; note != "" {
			logger.Info("A feature gate is accepted and changes nothing", "gate", string(name), "value", s.Enabled(name), "reason", note)
		}
	}
}
