package fleet

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/capstan-io/capstan/internal/cli/hubapi"
	"github.com/capstan-io/capstan/internal/cli/managedclusters"
	"github.com/capstan-io/capstan/internal/cli/options"
	"github.com/capstan-io/capstan/internal/cli/output"
)

// denial is one run of "capstan deny".
type denial struct {
	*options.Global
	hub      *hubapi.Hub
	clusters options.ClusterFlags
	now      bool
}

const denyLong = `Take the rights of clusters back.

It sets spec.hubAcceptsClient of each ManagedCluster to false. The agent of a denied cluster loses its rights and its
certificate is not renewed; placements select the cluster no more, and it gets no new works. The works that it has are
deleted if something selects it no longer, and the agent may finish with them, by their names. "capstan accept" takes
the cluster back.

--now is for a cluster that is compromised. It leaves nothing to the cluster, not even to clean up: all rights of its agent go, its pending
certificate requests and those of its add-ons are denied, and a standalone hub refuses everything to any credential of the cluster and its
add-ons from then on. The command returns when the rights are gone, and says so when they are not.`

// NewDenyCommand takes back what "capstan accept" gives.
func NewDenyCommand(global *options.Global) *cobra.Command {
	run := &denial{Global: global}
	command := &cobra.Command{
		Use:               "deny --clusters CLUSTER,...",
		Short:             "Take the rights of clusters back",
		Long:              denyLong,
		Example:           "  capstan deny --clusters cluster1\n  capstan deny --clusters cluster1 --now",
		Args:              options.FlagsOnly,
		ValidArgsFunction: cobra.NoFileCompletions,
	}
	run.clusters.Add(global, command)
	command.Flags().BoolVar(&run.now, "now", false,
		"cut compromised clusters off: leave no right to their agents and add-ons, and deny what they ask for")
	command.RunE = func(command *cobra.Command, _ []string) error {
		names, err := run.clusters.Required()
		if err != nil {
			return err
		}
		return run.ChangeHub(command, func(ctx context.Context, hub *hubapi.Hub) error {
			run.hub = hub
			return run.denyAll(ctx, names)
		})
	}
	return command
}

// denyAll denies all of them before it waits for anything.
func (r *denial) denyAll(ctx context.Context, clusters []string) error {
	var errs []error
	var denied []string
	for _, cluster := range clusters {
		if err := r.deny(ctx, cluster); err != nil {
			errs = append(errs, err)
			continue
		}
		denied = append(denied, cluster)
	}
	if !r.now {
		return errors.Join(errs...)
	}
	for _, cluster := range denied {
		errs = append(errs, r.denyRequests(ctx, cluster))
	}
	if !r.DryRun {
		errs = append(errs, r.awaitAll(ctx, denied))
	}
	return errors.Join(errs...)
}

func (r *denial) deny(ctx context.Context, cluster string) error {
	if r.DryRun {
		if _, err := managedclusters.Get(ctx, r.hub, cluster); err != nil {
			return err
		}
		r.Say("would set hubAcceptsClient to false for managed cluster %s", cluster)
		return nil
	}
	if err := denyCluster(ctx, r.hub, cluster, r.now); err != nil {
		return err
	}
	r.Say("set hubAcceptsClient to false for managed cluster %s", cluster)
	return nil
}

// denyRequests denies the certificates that the cluster and its add-ons request.
func (r *denial) denyRequests(ctx context.Context, cluster string) error {
	requests, err := pendingRequestsOf(ctx, r.hub, cluster)
	if err != nil {
		return err
	}
	var errs []error
	for _, request := range requests {
		if r.DryRun {
			r.Say("would deny CSR %s", output.Printable(request))
			continue
		}
		if err := denyRequest(ctx, r.hub, request); err != nil {
			errs = append(errs, err)
			continue
		}
		r.Say("CSR %s denied", output.Printable(request))
	}
	return errors.Join(errs...)
}

func (r *denial) awaitAll(ctx context.Context, clusters []string) error {
	errs := r.AwaitEach(clusters, "waiting for the hub to take its rights away", func(cluster string) error {
		return r.awaitNoRights(ctx, cluster)
	})
	for i, cluster := range clusters {
		if errs[i] == nil {
			r.Say("cluster %s is cut off; \"kubectl delete managedcluster %s\" forgets it, and does not wait for its agent", cluster, cluster)
		}
	}
	return errors.Join(errs...)
}

// awaitNoRights waits until the hub has taken the rights away. A hub in an existing cluster whose controllers are not of this version does
// not.
func (r *denial) awaitNoRights(ctx context.Context, cluster string) error {
	left, err := awaitNoRights(ctx, r.hub, cluster)
	switch {
	case err != nil && len(left) > 0:
		return fmt.Errorf("cluster %s is denied, but the hub has not taken away what gives its agent or add-ons rights: see whether its "+
			"controllers, and the managers of the add-ons, run, or delete %s: %w", cluster, strings.Join(left, ", "), err)
	case err != nil:
		return fmt.Errorf("cluster %s is denied, but whether its agent or add-ons still have rights is not known: %w", cluster, err)
	}
	return nil
}
