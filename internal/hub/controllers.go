// Package hub registers the controllers of the hub, with the names <area>-<noun>-<duty> in metrics and logs. They are the same in the
// standalone hub, where they call the API server in their own process, and in an existing cluster.
package hub

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/component-base/featuregate"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/capstan-io/capstan/internal/featuregates"
	"github.com/capstan-io/capstan/internal/hub/addon/addonhealth"
	"github.com/capstan-io/capstan/internal/hub/addon/configuration"
	"github.com/capstan-io/capstan/internal/hub/addon/install"
	"github.com/capstan-io/capstan/internal/hub/addon/lookup"
	"github.com/capstan-io/capstan/internal/hub/addon/owner"
	"github.com/capstan-io/capstan/internal/hub/addon/progress"
	"github.com/capstan-io/capstan/internal/hub/addon/template"
	"github.com/capstan-io/capstan/internal/hub/addon/token"
	"github.com/capstan-io/capstan/internal/hub/placement"
	"github.com/capstan-io/capstan/internal/hub/placement/debug"
	"github.com/capstan-io/capstan/internal/hub/registration/accept"
	"github.com/capstan-io/capstan/internal/hub/registration/autoaccept"
	"github.com/capstan-io/capstan/internal/hub/registration/autoapprove"
	"github.com/capstan-io/capstan/internal/hub/registration/availability"
	"github.com/capstan-io/capstan/internal/hub/registration/binding"
	"github.com/capstan-io/capstan/internal/hub/registration/cleanup"
	"github.com/capstan-io/capstan/internal/hub/registration/clusterprofile"
	"github.com/capstan-io/capstan/internal/hub/registration/clusterset"
	"github.com/capstan-io/capstan/internal/hub/registration/defaultset"
	"github.com/capstan-io/capstan/internal/hub/registration/expire"
	"github.com/capstan-io/capstan/internal/hub/registration/managednamespace"
	"github.com/capstan-io/capstan/internal/hub/registration/renewal"
	"github.com/capstan-io/capstan/internal/hub/registration/taint"
	"github.com/capstan-io/capstan/internal/hub/work/replicaset"
	"github.com/capstan-io/capstan/internal/hub/work/ttl"
	scheduler "github.com/capstan-io/capstan/internal/placement"
)

// Options select and configure the controllers.
type Options struct {
	// Groups are names out of [Groups]; empty means all of them.
	Groups []string
	// AutoApprovedUsers are the users whose clusters are approved and accepted without a decision of an administrator.
	AutoApprovedUsers []string
	// Gates are the feature gates that switch controllers on and off; nil means their defaults.
	Gates *featuregates.Set
	// Labels are set on what the hub creates for a cluster, in addition to its own.
	Labels map[string]string
	// CleanupResources are deleted from the namespace of a deleted cluster, one after the other; nil means the default ones.
	CleanupResources []schema.GroupVersionResource
	// DeletionTimeout is how long the deletion of a cluster that is not available waits for its agent; 0 means that it waits without a
	// limit.
	DeletionTimeout time.Duration
	// PendingClusterExpiry is how long a cluster that an agent with a bootstrap credential has created waits to be accepted, before it is
	// deleted; 0 means that it waits without a limit.
	PendingClusterExpiry time.Duration
	// TieBreak is how placements choose among clusters with equal scores.
	TieBreak scheduler.TieBreak
	// PlacementDebug serves why placements select what they do, once the controllers are registered; nil serves nothing.
	PlacementDebug *debug.Endpoint
	// TrustPlacementDecisions makes the controllers act on all clusters that PlacementDecisions name, without checking them against the
	// bindings.
	TrustPlacementDecisions bool
	// Clock is the source of time; nil means the system clock.
	Clock clock.Clock
}

// GroupPlacement is the group of controllers that Options.PlacementDebug belongs to.
const GroupPlacement = "placement"

// group is a set of controllers that is switched on and off as one.
type group struct {
	name string
	// gates have controllers behind them. A group runs if one of its gates is on, or if it has none.
	gates []featuregate.Feature
	// reads are the resources that the controllers need, in addition to what every Kubernetes API serves.
	reads       func(Options) []schema.GroupVersionResource
	controllers []registration
}

// registration adds a controller to a manager, if the options ask for it.
type registration struct {
	runs     func(Options) bool
	register func(ctrl.Manager, Options) error
}

// enabled says whether a feature gate is on.
func (o Options) enabled(gate featuregate.Feature) bool {
	if o.Gates == nil {
		return featuregates.Hub().Enabled(gate)
	}
	return o.Gates.Enabled(gate)
}

// always is for the controllers that run whenever their group does.
func always(Options) bool { return true }

// gated is for the controllers that run while a feature gate is on.
func gated(gate featuregate.Feature) func(Options) bool {
	return func(o Options) bool { return o.enabled(gate) }
}

func hasAutoApprovedUsers(o Options) bool { return len(o.AutoApprovedUsers) > 0 }

func hasPendingClusterExpiry(o Options) bool { return o.PendingClusterExpiry > 0 }

// groups is every controller of the hub.
var groups = []group{
	{name: "registration", reads: registrationReads, controllers: []registration{
		{always, func(mgr ctrl.Manager, o Options) error {
			return accept.Register(mgr, accept.Options{Labels: o.Labels, KeepsContent: !o.enabled(featuregates.ResourceCleanup), Clock: o.Clock})
		}},
		{always, func(mgr ctrl.Manager, o Options) error { return renewal.Register(mgr, renewal.Options{Clock: o.Clock}) }},
		{always, func(mgr ctrl.Manager, o Options) error {
			return availability.Register(mgr, availability.Options{Clock: o.Clock})
		}},
		{always, func(mgr ctrl.Manager, _ Options) error { return taint.Register(mgr, taint.Options{}) }},
		{hasAutoApprovedUsers, func(mgr ctrl.Manager, o Options) error {
			return autoapprove.Register(mgr, autoapprove.Options{Users: o.AutoApprovedUsers, Clock: o.Clock})
		}},
		{hasAutoApprovedUsers, func(mgr ctrl.Manager, o Options) error {
			return autoaccept.Register(mgr, autoaccept.Options{Users: o.AutoApprovedUsers, Clock: o.Clock})
		}},
		{hasPendingClusterExpiry, func(mgr ctrl.Manager, o Options) error {
			return expire.Register(mgr, expire.Options{After: o.PendingClusterExpiry, Clock: o.Clock})
		}},
		{gated(featuregates.DefaultClusterSet), func(mgr ctrl.Manager, _ Options) error {
			return defaultset.Register(mgr, defaultset.Options{})
		}},
		{always, func(mgr ctrl.Manager, o Options) error {
			return clusterset.Register(mgr, clusterset.Options{Clock: o.Clock})
		}},
		{always, func(mgr ctrl.Manager, o Options) error { return binding.Register(mgr, binding.Options{Clock: o.Clock}) }},
		{always, func(mgr ctrl.Manager, _ Options) error {
			return managednamespace.Register(mgr, managednamespace.Options{})
		}},
		{gated(featuregates.ClusterProfile), func(mgr ctrl.Manager, o Options) error {
			return clusterprofile.Register(mgr, clusterprofile.Options{Clock: o.Clock})
		}},
		{always, func(mgr ctrl.Manager, o Options) error {
			return cleanup.Register(mgr, cleanup.Options{Off: !o.enabled(featuregates.ResourceCleanup), Resources: o.CleanupResources,
				Timeout: o.DeletionTimeout, Clock: o.Clock})
		}},
	}},
	{name: GroupPlacement, reads: reading(managedClusters, managedClusterSets, managedClusterSetBindings, placements, placementDecisions,
		addOnPlacementScores), controllers: []registration{
		{always, func(mgr ctrl.Manager, o Options) error {
			return placement.Register(mgr, placement.Options{TieBreak: o.TieBreak, TrustDecisions: o.TrustPlacementDecisions,
				Debug: o.PlacementDebug, Clock: o.Clock})
		}},
	}},
	{name: "work", gates: []featuregate.Feature{featuregates.ManifestWorkReplicaSet, featuregates.CleanUpCompletedManifestWork},
		reads: workReads, controllers: []registration{
			{gated(featuregates.ManifestWorkReplicaSet), func(mgr ctrl.Manager, o Options) error {
				return replicaset.Register(mgr, replicaset.Options{TrustDecisions: o.TrustPlacementDecisions, Clock: o.Clock})
			}},
			{gated(featuregates.CleanUpCompletedManifestWork), func(mgr ctrl.Manager, o Options) error {
				return ttl.Register(mgr, ttl.Options{Clock: o.Clock})
			}},
		}},
	{name: "addon", gates: []featuregate.Feature{featuregates.AddonManagement}, reads: addOnReads, controllers: []registration{
		{always, func(mgr ctrl.Manager, _ Options) error {
			return lookup.AddIndexes(context.Background(), mgr.GetFieldIndexer())
		}},
		{always, func(mgr ctrl.Manager, _ Options) error { return owner.Register(mgr, owner.Options{}) }},
		{always, func(mgr ctrl.Manager, o Options) error {
			return install.Register(mgr, install.Options{TrustDecisions: o.TrustPlacementDecisions, Clock: o.Clock})
		}},
		{always, func(mgr ctrl.Manager, o Options) error {
			return configuration.Register(mgr, configuration.Options{TrustDecisions: o.TrustPlacementDecisions, Clock: o.Clock})
		}},
		{always, func(mgr ctrl.Manager, o Options) error {
			return progress.Register(mgr, progress.Options{Clock: o.Clock})
		}},
		{always, func(mgr ctrl.Manager, o Options) error {
			return addonhealth.Register(mgr, addonhealth.Options{Clock: o.Clock})
		}},
		{always, func(mgr ctrl.Manager, o Options) error {
			return token.Register(mgr, token.Options{Labels: o.Labels, Clock: o.Clock})
		}},
		{always, func(mgr ctrl.Manager, o Options) error {
			return template.Register(mgr, template.Options{Clock: o.Clock})
		}},
	}},
}

// chosen returns the groups that run.
func (o Options) chosen() (chosen []group) {
	for _, g := range groups {
		if (len(o.Groups) == 0 || slices.Contains(o.Groups, g.name)) && (len(g.gates) == 0 || slices.ContainsFunc(g.gates, o.enabled)) {
			chosen = append(chosen, g)
		}
	}
	return chosen
}

// Running returns the names of the groups that run.
func (o Options) Running() (names []string) {
	for _, g := range o.chosen() {
		names = append(names, g.name)
	}
	return names
}

// GatesOf returns the feature gates of a group, which runs if one of them is on. There are none if the group always runs.
func GatesOf(name string) []featuregate.Feature {
	for _, g := range groups {
		if g.name == name {
			return g.gates
		}
	}
	return nil
}

// Groups returns the names that Options.Groups may hold, in the order in which they start.
func Groups() []string {
	names := make([]string, 0, len(groups))
	for _, g := range groups {
		names = append(names, g.name)
	}
	return names
}

// Register adds the chosen controllers to the manager. It fails if a name in Options.Groups is unknown.
func Register(mgr ctrl.Manager, o Options) error {
	if o.Clock == nil {
		o.Clock = clock.RealClock{}
	}
	if o.CleanupResources == nil {
		o.CleanupResources = cleanup.DefaultResources()
	}
	for _, name := range o.Groups {
		if !slices.Contains(Groups(), name) {
			return fmt.Errorf("controllers: %q is no group of controllers; the groups are %s", name, strings.Join(Groups(), ", "))
		}
	}
	for _, g := range o.chosen() {
		for _, c := range g.controllers {
			if !c.runs(o) {
				continue
			}
			if err := c.register(mgr, o); err != nil {
				return fmt.Errorf("controllers: group %s: %w", g.name, err)
			}
		}
	}
	return nil
}
