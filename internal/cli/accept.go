package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"

	clusterv1 "github.com/capstan-io/capstan/api/cluster/v1"
	"github.com/capstan-io/capstan/internal/cli/hubapi"
	"github.com/capstan-io/capstan/internal/fleet"
)

// acceptance is one run of "capstan accept".
type acceptance struct {
	*app
	hub *hubapi.Hub

	wait             bool
	skipApproveCheck bool
	requesters       []string
}

const acceptLong = `Let clusters work with the hub.

Of each cluster it approves the certificate requests that its agent made with a bootstrap credential, and sets
spec.hubAcceptsClient of its ManagedCluster. Requests that merely carry the label of the cluster are left alone.

When several agents ask to be the same cluster, none is approved until you say which: --requesters names them,
--skip-approve-check approves all of them.`

// acceptCommand is CA-18.
func (a *app) acceptCommand() *cobra.Command {
	clusters := &clusterFlags{}
	run := &acceptance{app: a}
	command := &cobra.Command{
		Use:               "accept --clusters CLUSTER,...",
		Short:             "Let clusters work with the hub",
		Long:              acceptLong,
		Example:           "  capstan accept --clusters cluster1\n  capstan accept --clusters cluster1,cluster2 --wait",
		Args:              flagsOnly,
		ValidArgsFunction: cobra.NoFileCompletions,
	}
	clusters.add(a, command)
	command.Flags().BoolVar(&run.wait, "wait", false, "wait for the clusters to ask, for --timeout seconds at most")
	command.Flags().BoolVar(&run.skipApproveCheck, "skip-approve-check", false, "approve requests of several agents for the same cluster, too")
	command.Flags().StringSliceVar(&run.requesters, "requesters", nil, "common names of the agents to approve, separated by commas; each has to match exactly")
	complete(command, "requesters", a.completeRequesters(clusters))
	command.RunE = func(command *cobra.Command, _ []string) error {
		names, err := clusters.required()
		if err != nil {
			return err
		}
		return a.withHub(command, func(ctx context.Context, hub *hubapi.Hub) error {
			run.hub = hub
			return run.acceptAll(ctx, names)
		})
	}
	return command
}

func (r *acceptance) acceptAll(ctx context.Context, clusters []string) error {
	var errs []error
	for _, cluster := range clusters {
		if err := r.accept(ctx, cluster); err != nil {
			errs = append(errs, err)
			continue
		}
		if !r.dryRun {
			r.say("cluster %s is accepted; \"capstan get clusters\" shows when it is available", cluster)
		}
	}
	return errors.Join(errs...)
}

func (r *acceptance) accept(ctx context.Context, name string) error {
	cluster, err := r.cluster(ctx, name)
	if err != nil {
		return err
	}
	if err := r.approve(ctx, cluster); err != nil {
		return err
	}
	if r.dryRun {
		r.say("would set hubAcceptsClient to true for managed cluster %s", name)
		return nil
	}
	if err := r.hub.AcceptCluster(ctx, name); err != nil {
		return err
	}
	r.say("set hubAcceptsClient to true for managed cluster %s", name)
	return nil
}

// cluster reads the ManagedCluster, which its agent creates, and waits for it if that was asked for.
func (r *acceptance) cluster(ctx context.Context, name string) (*clusterv1.ManagedCluster, error) {
	cluster, err := r.hub.Cluster(ctx, name)
	if !apierrors.IsNotFound(err) || errors.Is(err, hubapi.ErrNotAHub) {
		return cluster, err
	}
	if !r.wait {
		return nil, fmt.Errorf("cluster %s is not known to the hub: its agent creates it when it joins (\"capstan get token\" prints the command); "+
			"--wait waits for that: %w", name, err)
	}
	err = r.waitFor(name, "waiting for its agent", func() error {
		return r.hub.WaitForCluster(ctx, name, func(found *clusterv1.ManagedCluster) bool {
			cluster = found
			return true
		})
	})
	return cluster, err
}

func (r *acceptance) waitFor(subject, what string, waiting func() error) error {
	progress := r.app.progress()
	defer progress.Close()
	progress.Wait(subject, what)
	err := waiting()
	if errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("%w: see whether the agent of the cluster runs and can reach the hub", err)
	}
	return err
}

// approve approves what there is to approve. It fails when the agent of the cluster has and gets no way in.
func (r *acceptance) approve(ctx context.Context, cluster *clusterv1.ManagedCluster) error {
	requests, rejected, err := r.hub.JoinRequests(ctx, cluster.Name)
	if err != nil {
		return err
	}
	chosen, approved, err := r.choose(cluster.Name, requests)
	if err != nil {
		return err
	}
	others := r.unwanted(requests)
	if len(chosen) == 0 && !approved && (len(others) > 0 || !needsNoRequest(cluster)) {
		if !r.wait {
			return noRequest(cluster.Name, others, rejected)
		}
		if err := r.awaitRequest(ctx, cluster.Name); err != nil {
			return err
		}
		return r.approve(ctx, cluster)
	}
	for _, request := range chosen {
		if r.dryRun {
			r.say("would approve CSR %s of %s", request.Name, request.CommonName)
			continue
		}
		if err := r.hub.Approve(ctx, request.Name); err != nil {
			return err
		}
		r.say("CSR %s approved", request.Name)
	}
	return nil
}

// choose tells which requests to approve, and whether one of those wanted was approved before.
func (r *acceptance) choose(cluster string, requests []hubapi.JoinRequest) (chosen []hubapi.JoinRequest, approved bool, err error) {
	var agents []string
	for _, request := range requests {
		if !r.wanted(request) {
			continue
		}
		approved = approved || request.Approved
		if !request.Pending {
			continue
		}
		chosen = append(chosen, request)
		if !slices.Contains(agents, request.CommonName) {
			agents = append(agents, request.CommonName)
		}
	}
	if len(agents) > 1 && len(r.requesters) == 0 && !r.skipApproveCheck {
		return nil, approved, fmt.Errorf("%d agents ask to be cluster %s, so none is approved. Choose the ones you know with --requesters, "+
			"or approve all with --skip-approve-check:\n  %s", len(agents), cluster, strings.Join(agents, "\n  "))
	}
	return chosen, approved, nil
}

// wanted matches common names whole (O16).
func (r *acceptance) wanted(request hubapi.JoinRequest) bool {
	return len(r.requesters) == 0 || slices.Contains(r.requesters, request.CommonName)
}

// unwanted are the common names of agents that ask, or were approved, and that --requesters does not name.
func (r *acceptance) unwanted(requests []hubapi.JoinRequest) []string {
	var names []string
	for _, request := range requests {
		if (request.Pending || request.Approved) && !r.wanted(request) && !slices.Contains(names, request.CommonName) {
			names = append(names, request.CommonName)
		}
	}
	return names
}

func (r *acceptance) awaitRequest(ctx context.Context, cluster string) error {
	return r.waitFor(cluster, "waiting for its certificate request", func() error {
		return r.hub.WatchJoinRequests(ctx, cluster, func(request hubapi.JoinRequest) bool {
			return request.Approved || request.Pending && r.wanted(request)
		})
	})
}

// needsNoRequest tells whether the agent of a cluster has another way in: it has joined, or is known by its AWS role.
func needsNoRequest(cluster *clusterv1.ManagedCluster) bool {
	joined := cluster.Spec.HubAcceptsClient && meta.IsStatusConditionTrue(cluster.Status.Conditions, fleet.ConditionJoined)
	return joined || cluster.Annotations[fleet.AnnotationManagedClusterARN] != ""
}

func noRequest(cluster string, others []string, rejected []hubapi.RejectedRequest) error {
	var left strings.Builder
	if len(others) > 0 {
		fmt.Fprintf(&left, "\n  --requesters names none of those who asked, whose names it has to match whole:\n    %s", strings.Join(others, "\n    "))
	}
	for _, request := range rejected {
		fmt.Fprintf(&left, "\n  CSR %s is left alone: %s", request.Name, request.Why)
	}
	return fmt.Errorf("no csr is approved yet for cluster %s: see whether its agent runs and can reach the hub; --wait waits for its request%s", cluster, left.String())
}
