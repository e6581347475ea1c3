// Package hub lists the controllers that run on the hub. They are the same ones in the standalone hub, where they talk
// to the API server of their own process, and in an existing cluster.
package hub

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/capstan-io/capstan/internal/hub/registration/accept"
	"github.com/capstan-io/capstan/internal/hub/registration/binding"
	"github.com/capstan-io/capstan/internal/hub/registration/clusterset"
	"github.com/capstan-io/capstan/internal/hub/registration/defaultset"
	"github.com/capstan-io/capstan/internal/hub/registration/health"
	"github.com/capstan-io/capstan/internal/hub/registration/renewal"
	"github.com/capstan-io/capstan/internal/hub/registration/taint"
)

// Options say which controllers run.
type Options struct {
	// Groups are names out of Groups; empty means all of them.
	Groups []string
	// Clock is the source of time; nil means the machine's.
	Clock clock.Clock
}

// group is a set of controllers that is switched on and off as one.
type group struct {
	name     string
	register []func(ctrl.Manager, clock.Clock) error
}

// groups is every controller of the hub. A name without controllers is reserved by the contract of --controllers and
// says so when it is chosen.
var groups = []group{
	{name: "registration", register: []func(ctrl.Manager, clock.Clock) error{
		accept.Register,
		renewal.Register,
		health.Register,
		taint.Register,
		defaultset.Register,
		clusterset.Register,
		binding.Register,
	}},
	{name: "placement"},
	{name: "work"},
	{name: "addon"},
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
	for _, name := range o.Groups {
		if !slices.Contains(Groups(), name) {
			return fmt.Errorf("controllers: %q is no group of controllers; the groups are %s", name, strings.Join(Groups(), ", "))
		}
	}
	for _, g := range groups {
		if len(o.Groups) > 0 && !slices.Contains(o.Groups, g.name) {
			continue
		}
		if len(g.register) == 0 {
			mgr.GetLogger().Info("This version has no controllers in the group", "group", g.name)
		}
		for _, register := range g.register {
			if err := register(mgr, o.Clock); err != nil {
				return fmt.Errorf("controllers: group %s: %w", g.name, err)
			}
		}
	}
	return nil
}
