// Package catalogue finds the add-ons that a manager is in charge of.
package catalogue

import (
	"context"
	"errors"
	"fmt"

	"github.com/capstan-io/capstan/addon"
	addonv1beta1 "github.com/capstan-io/capstan/api/addon/v1beta1"
	clusterv1 "github.com/capstan-io/capstan/api/cluster/v1"
)

// Catalogue finds the code of an add-on.
type Catalogue interface {
	// Agent returns the code of an add-on on a cluster; nil if it is somebody else's. An error means that it is not known now whose it
	// is, or what it is.
	Agent(ctx context.Context, addOn *addonv1beta1.ManagedClusterAddOn) (addon.Agent, error)
}

// Installation is what an agent is asked about: an add-on on a cluster, which is nil if there is none of that name.
func Installation(agent addon.Agent, cluster *clusterv1.ManagedCluster, addOn *addonv1beta1.ManagedClusterAddOn) addon.Installation {
	installation := addon.Installation{Cluster: cluster, AddOn: addOn}
	if choose := agent.Options().HostingCluster; choose != nil && cluster != nil {
		installation.HostingCluster = choose(installation)
	}
	return installation
}

// Fixed is a Catalogue that stays the same.
type Fixed map[string]addon.Agent

// Of makes a Catalogue of the agents. It fails if there are none, two have the same name, or the options of one do not fit.
func Of(agents ...addon.Agent) (Fixed, error) {
	if len(agents) == 0 {
		return nil, errors.New("no add-on is given: a manager needs at least one")
	}
	fixed := Fixed{}
	for i, agent := range agents {
		if agent == nil {
			return nil, fmt.Errorf("add-on %d is nil", i)
		}
		options := agent.Options()
		if err := check(options); err != nil {
			return nil, fmt.Errorf("the Options of %T: %w", agent, err)
		}
		if _, twice := fixed[options.Name]; twice {
			return nil, fmt.Errorf("two add-ons have the name %q: each needs a name of its own", options.Name)
		}
		fixed[options.Name] = asked{Agent: agent, options: options}
	}
	return fixed, nil
}

// Agent is the one of the add-on's name, or nil.
func (f Fixed) Agent(_ context.Context, addOn *addonv1beta1.ManagedClusterAddOn) (addon.Agent, error) {
	agent, ok := f[addOn.Name]
	if !ok {
		return nil, nil
	}
	return agent, nil
}

// asked is an agent whose options are known, and not asked for again.
type asked struct {
	addon.Agent
	options addon.Options
}

func (a asked) Options() addon.Options { return a.options }
