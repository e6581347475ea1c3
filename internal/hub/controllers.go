// Package hub lists the controllers that run on the hub. They are the same ones in the standalone hub, where they talk
// to the API server of their own process, and in an existing cluster.
package hub

import (
	"context"
	"errors"
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

// Options say which controllers run.
type Options struct {
	// Groups are names out of Groups; empty means all of them.
	Groups []string
	// AutoApprovedUsers are the users whose clusters are approved and accepted without a person.
	AutoApprovedUsers []string
	// Gates switch controllers on and off; nil means their defaults.
	Gates *featuregates.Set
	// Labels are put on what the hub makes for a cluster, beside its own.
	Labels map[string]string
	// CleanupResources are deleted from the namespace of a deleted cluster, one after the other; nil means the default ones.
	CleanupResources []schema.GroupVersionResource
	// DeletionTimeout is how long the deletion of a cluster that is not available waits for its agent; 0 means for ever.
	DeletionTimeout time.Duration
	// PendingClusterExpiry is how long a cluster that somebody with a bootstrap credential asked for waits to be accepted; 0 means for ever.
	PendingClusterExpiry time.Duration
	// TieBreak is how placements choose among clusters of equal scores.
	TieBreak scheduler.TieBreak
	// PlacementDebug answers why placements select what they do, once the controllers are registered; nil answers nobody.
	PlacementDebug *debug.Endpoint
	// TrustPlacementDecisions has the controllers act on whichever clusters PlacementDecisions name.
	TrustPlacementDecisions bool
	// Clock is the source of time; nil means the machine's.
	Clock clock.Clock
}

// GroupPlacement is the group of controllers that Options.PlacementDebug belongs to.
const GroupPlacement = "placement"

// group is a set of controllers that is switched on and off as one.
type group struct {
	name string
	// gates have controllers behind them. A group whose gates are all off has none to run; one without gates always has.
	gates []featuregate.Feature
	// reads is what the controllers cannot do without, beside what every Kubernetes API serves.
	reads    func(Options) []schema.GroupVersionResource
	register []func(ctrl.Manager, Options) error
}

// enabled says whether a feature gate is on.
func (o Options) enabled(gate featuregate.Feature) bool {
	if o.Gates == nil {
		return featuregates.Hub().Enabled(gate)
	}
	return o.Gates.Enabled(gate)
}

// behind is for controllers that are there while a feature gate is on.
func behind(gate featuregate.Feature, register func(ctrl.Manager, Options) error) func(ctrl.Manager, Options) error {
	return func(mgr ctrl.Manager, o Options) error {
		if !o.enabled(gate) {
			return nil
		}
		return register(mgr, o)
	}
}

// groups is every controller of the hub.
var groups = []group{
	{name: "registration", reads: registrationReads, register: []func(ctrl.Manager, Options) error{
		func(mgr ctrl.Manager, o Options) error {
			return accept.Register(mgr, accept.Options{Labels: o.Labels, KeepsContent: !o.Gates.Enabled(featuregates.ResourceCleanup),
				Clock: o.Clock})
		},
		withClock(renewal.Register),
		withClock(availability.Register),
		withClock(taint.Register),
		func(mgr ctrl.Manager, o Options) error {
			if len(o.AutoApprovedUsers) == 0 {
				return nil
			}
			return errors.Join(autoapprove.Register(mgr, o.Clock, o.AutoApprovedUsers), autoaccept.Register(mgr, o.Clock, o.AutoApprovedUsers))
		},
		func(mgr ctrl.Manager, o Options) error {
			if o.PendingClusterExpiry == 0 {
				return nil
			}
			return expire.Register(mgr, o.Clock, o.PendingClusterExpiry)
		},
		behind(featuregates.DefaultClusterSet, func(mgr ctrl.Manager, _ Options) error { return defaultset.Register(mgr) }),
		withClock(clusterset.Register),
		withClock(binding.Register),
		withClock(managednamespace.Register),
		behind(featuregates.ClusterProfile, withClock(clusterprofile.Register)),
		func(mgr ctrl.Manager, o Options) error {
			return cleanup.Register(mgr, cleanup.Options{Off: !o.enabled(featuregates.ResourceCleanup), Resources: o.CleanupResources,
				Timeout: o.DeletionTimeout, Clock: o.Clock})
		},
	}},
	{name: GroupPlacement, reads: always(managedClusters, managedClusterSets, managedClusterSetBindings, placements, placementDecisions,
		addOnPlacementScores), register: []func(ctrl.Manager, Options) error{
		func(mgr ctrl.Manager, o Options) error {
			return placement.Register(mgr, o.Clock, scheduler.Options{TieBreak: o.TieBreak, TrustDecisions: o.TrustPlacementDecisions},
				o.PlacementDebug)
		},
	}},
	{name: "work", gates: []featuregate.Feature{featuregates.ManifestWorkReplicaSet, featuregates.CleanUpCompletedManifestWork},
		reads: workReads, register: []func(ctrl.Manager, Options) error{
			behind(featuregates.ManifestWorkReplicaSet, func(mgr ctrl.Manager, o Options) error {
				return replicaset.Register(mgr, replicaset.Options{TrustDecisions: o.TrustPlacementDecisions, Clock: o.Clock})
			}),
			behind(featuregates.CleanUpCompletedManifestWork, withClock(ttl.Register)),
		}},
	{name: "addon", gates: []featuregate.Feature{featuregates.AddonManagement}, reads: addOnReads,
		register: []func(ctrl.Manager, Options) error{
			func(mgr ctrl.Manager, _ Options) error {
				return lookup.AddIndexes(context.Background(), mgr.GetFieldIndexer())
			},
			func(mgr ctrl.Manager, _ Options) error { return owner.Register(mgr) },
			func(mgr ctrl.Manager, o Options) error {
				return install.Register(mgr, install.Options{TrustDecisions: o.TrustPlacementDecisions, Clock: o.Clock})
			},
			func(mgr ctrl.Manager, o Options) error {
				return configuration.Register(mgr, configuration.Options{TrustDecisions: o.TrustPlacementDecisions, Clock: o.Clock})
			},
			withClock(progress.Register),
			withClock(addonhealth.Register),
			func(mgr ctrl.Manager, o Options) error {
				return token.Register(mgr, token.Options{Labels: o.Labels, Clock: o.Clock})
			},
			withClock(template.Register),
		}},
}

// withClock is for the controllers that have no other options.
func withClock(register func(ctrl.Manager, clock.Clock) error) func(ctrl.Manager, Options) error {
	return func(mgr ctrl.Manager, o Options) error { return register(mgr, o.Clock) }
}

// chosen are the groups that run.
func (o Options) chosen() (chosen []group) {
	for _, g := range groups {
		if (len(o.Groups) == 0 || slices.Contains(o.Groups, g.name)) && (len(g.gates) == 0 || slices.ContainsFunc(g.gates, o.enabled)) {
			chosen = append(chosen, g)
		}
	}
	return chosen
}

// Running are the names of the groups that run.
func (o Options) Running() (names []string) {
	for _, g := range o.chosen() {
		names = append(names, g.name)
	}
	return names
}

// GatesOf are the feature gates of which one has to be on for the group of that name to run; none if it always does.
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

// Register adds the chosen controllers to the manager. It fails on a name that is no group.
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
		for _, register := range g.register {
			if err := register(mgr, o); err != nil {
				return fmt.Errorf("controllers: group %s: %w", g.name, err)
			}
		}
	}
	return nil
}
