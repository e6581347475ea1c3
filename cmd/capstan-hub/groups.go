package main

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/pflag"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/capstan-io/capstan/internal/hub"
)

const (
	// noGroups is the value of --controllers that runs none.
	noGroups = "none"
	// leaderLease is the name of the Lease by which one of several hubs is the one that acts.
	leaderLease = "capstan-hub-controllers"
	// systemNamespace holds the Lease unless a flag says otherwise.
	systemNamespace = "kube-system"
)

// groups are the controllers chosen, by their groups.
type groups []string

func addControllersFlag(flags *pflag.FlagSet, into *[]string) {
	flags.StringSliceVar(into, "controllers", hub.Groups(),
		"Groups of hub controllers to run, out of "+strings.Join(hub.Groups(), ", ")+"; "+noGroups+" runs none.")
}

// parseGroups refuses names that do not exist.
func parseGroups(names []string) (groups, error) {
	if slices.Equal(names, []string{noGroups}) {
		return nil, nil
	}
	for _, name := range names {
		if !slices.Contains(hub.Groups(), name) {
			return nil, fmt.Errorf("--controllers: %q is no group of controllers; use some of %s, or %s alone", name, strings.Join(hub.Groups(), ", "), noGroups)
		}
	}
	if len(names) == 0 {
		return nil, fmt.Errorf("--controllers: name at least one of %s, or %s", strings.Join(hub.Groups(), ", "), noGroups)
	}
	return names, nil
}

// run is a controlplane.ControllersFunc.
func (g groups) run(ctx context.Context, client *rest.Config, elect bool, started func()) error {
	if len(g) == 0 {
		started()
		<-ctx.Done()
		return nil
	}
	options := hub.ManagerOptions()
	// The API server of the same process serves their metrics with its own.
	options.Metrics = metricsserver.Options{BindAddress: "0"}
	if elect {
		electLeader(&options, systemNamespace)
	}
	manager, err := g.manager(client, options)
	if err != nil {
		return err
	}
	if err := manager.Add(onStart(started)); err != nil {
		return err
	}
	return manager.Start(ctx)
}

func (g groups) manager(client *rest.Config, options ctrl.Options) (ctrl.Manager, error) {
	manager, err := ctrl.NewManager(client, options)
	if err != nil {
		return nil, fmt.Errorf("prepare the controllers: %w", err)
	}
	return manager, hub.Register(manager, hub.Options{Groups: g})
}

func electLeader(options *ctrl.Options, namespace string) {
	options.LeaderElection = true
	options.LeaderElectionID = leaderLease
	options.LeaderElectionNamespace = namespace
	// The process ends with the manager, so that giving the lease back is safe and the next one need not wait for it.
	options.LeaderElectionReleaseOnCancel = true
}

// onStart is called once the manager's caches are filled, whether or not this process leads.
type onStart func()

// Start implements manager.Runnable.
func (f onStart) Start(context.Context) error {
	f()
	return nil
}

// NeedLeaderElection implements manager.LeaderElectionRunnable.
func (f onStart) NeedLeaderElection() bool { return false }
