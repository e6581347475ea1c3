// Package catalogue finds the add-ons that a manager runs.
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
	// Agent returns the code of an add-on on a cluster, or nil if this manager does not run the add-on. An error means that it does not
	// know now.
	Agent(ctx context.Context, addOn *addonv1beta1.ManagedClusterAddOn) (addon.Agent, error)
}

// Installation returns the add-on on a cluster as the agent's methods get it. cluster is nil if there is no ManagedCluster of that
// name.
func Installation(agent addon.Agent, cluster *clusterv1.ManagedCluster, addOn *addonv1beta1.ManagedClusterAddOn) addon.Installation {
	installation := addon.Installation{Cluster: cluster, AddOn: addOn}
	if choose := agent.Options().HostingCluster; choose != nil && cluster != nil {
		installation.HostingCluster = choose(installation)
	}
	return installation
}

// Fixed is a Catalogue of add-ons that are known from the start.
type Fixed map[string]addon.Agent

// Of returns a Catalogue of the agents. It fails if there are none, if two have the same name, or if the options of one are invalid.
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
		fixed[options.Name] = described{Agent: agent, options: options}
	}
	return fixed, nil
}

// Agent returns the agent with the add-on's name, or nil.
func (f Fixed) Agent(_ context.Context, addOn *addonv1beta1.ManagedClusterAddOn) (addon.Agent, error) {
	agent, ok := f[addOn.Name]
	if !ok {
		return nil, nil
	}
	return agent, nil
}

// described is an agent whose options have been read, once.
type described struct {
	addon.Agent
	options addon.Options
}

func (a described) Options() addon.Options { return a.options }
