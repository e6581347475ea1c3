package playground

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"

	clusterv1 "github.com/capstan-io/capstan/api/cluster/v1"
	workv1 "github.com/capstan-io/capstan/api/work/v1"
	"github.com/capstan-io/capstan/deploy/examples"
	"github.com/capstan-io/capstan/internal/cli/bootstrap"
	"github.com/capstan-io/capstan/internal/cli/hubapi"
	"github.com/capstan-io/capstan/internal/cli/joinrequests"
	"github.com/capstan-io/capstan/internal/cli/managedclusters"
	"github.com/capstan-io/capstan/internal/cli/manifestworks"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
	"github.com/capstan-io/capstan/internal/machinery/managedcluster"
)

// upCluster is what Home.Up does for one cluster of the playground: it starts the sandbox and the agent, and makes the cluster a member
// of the hub.
type upCluster struct {
	*up
	name    string
	sandbox sandbox
	agent   Agent

	sandboxProcess, agentProcess *Process
	agentStarted                 bool // by this run
}

func (u *up) cluster(state ClusterState) *upCluster {
	sandbox := u.home.sandbox(state)
	return &upCluster{up: u, name: state.Name, sandbox: sandbox, agent: u.home.Agent(sandbox.member())}
}

// start starts a cluster that does not exist, or is in any other state, until it runs the sample. The agent starts as soon as
// there are API servers on both sides; the cluster gets its nodes meanwhile.
func (c *upCluster) start(ctx context.Context) error {
	program, err := c.sandbox.program()
	if err != nil {
		return err
	}
	c.report.Wait(program.Name, "starting")
	var started bool
	if c.sandboxProcess, started, err = c.home.Processes().Start(program); err != nil {
		return err
	}
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error {
		if _, err := awaitServer(ctx, c.sandboxProcess, c.sandbox.kubeconfig(), (*hubapi.Hub).Ready); err != nil {
			return err
		}
		c.report.Done(program.Name, stateOf(started, "ready"))
		return c.publish(c.name, c.sandbox.kubeconfig())
	})
	group.Go(func() error {
		if _, err := awaitServer(ctx, c.sandboxProcess, c.sandbox.kubeconfig(), (*hubapi.Hub).Live); err != nil {
			return err
		}
		c.report.Wait(c.name, "waiting for the hub")
		return c.joinStartedHub(ctx)
	})
	return group.Wait()
}

// joinStartedHub makes a running cluster a member of the hub once that is ready. It has no error where that fails, which is the one of
// startHub: that ends with the context, too, and says more than that the time is up.
func (c *upCluster) joinStartedHub(ctx context.Context) error {
	if <-c.hubStarted; c.hub == nil {
		return nil
	}
	return c.joinHub(ctx)
}

// joinHub makes a running cluster a member of the running hub.
func (c *upCluster) joinHub(ctx context.Context) error {
	if err := c.startAgent(ctx); err != nil {
		return err
	}
	deleted, err := c.awaitDeletion(ctx)
	if err == nil && deleted {
		err = c.restartAgent(ctx)
	}
	if err != nil {
		return err
	}
	c.report.Wait(c.name, "joining")
	problems := followLog(c.agentProcess, c.agentStarted)
	reason := func(ctx context.Context) string { return c.reasonNotJoined(ctx, problems) }
	if err := c.await(ctx, reason, c.join); err != nil {
		return err
	}
	c.report.Done(c.name, "accepted, joined and available")
	c.report.Wait(c.name, "applying the sample")
	if err := c.await(ctx, c.reasonNoSample, c.awaitSample); err != nil {
		return err
	}
	c.report.Done(c.name, "the sample is applied and available")
	return nil
}

// await waits while the hub, the sandbox and the agent run, and reports meanwhile what blocks that.
func (c *upCluster) await(ctx context.Context, reason func(context.Context) string, wait func(context.Context) error) error {
	ctx, release := cancelOnExit(ctx, c.hubProcess, c.sandboxProcess, c.agentProcess)
	defer release()
	if err := waitReportingReasons(ctx, c.report, c.name, reason, wait); err != nil {
		return processExitOr(ctx, err, c.hubProcess, c.sandboxProcess, c.agentProcess)
	}
	return nil
}

// startAgent starts the agent. It gets a fresh token to join with each time, which it needs if it has lost
// its own access to the hub or was stopped until that expired. One that runs takes a changed token up by itself.
func (c *upCluster) startAgent(ctx context.Context) error {
	program, err := c.agent.Program()
	if err != nil {
		return err
	}
	if c.agentProcess, err = c.agent.process(); err != nil {
		return err
	}
	if c.agentProcess.Running() {
		c.agentStarted = false
		return c.renewTokenIfNeeded(ctx)
	}
	if err := c.renewToken(ctx); err != nil {
		return err
	}
	c.agentProcess, c.agentStarted, err = c.home.Processes().Start(program)
	return err
}

// awaitDeletion reports whether an agent that had joined has to join anew, because its cluster was deleted on the hub: it continues with
// the certificate that it has. While a deletion is in progress, the agent has to complete it.
func (c *upCluster) awaitDeletion(ctx context.Context) (deleted bool, err error) {
	if !c.agent.hasCredential() {
		return false, nil
	}
	cluster, err := managedclusters.Get(ctx, c.hub, c.name)
	switch {
	case apierrors.IsNotFound(err):
		return true, nil
	case err != nil:
		return false, processExitOr(ctx, err, c.hubProcess)
	case cluster.DeletionTimestamp.IsZero():
		return false, nil
	}
	c.report.Wait(c.name, "being deleted on the hub")
	gone := func(ctx context.Context) error {
		err := hubapi.UntilNone(ctx, c.hub.Client(managedclusters.Resource), hubapi.Named(c.name),
			func(live *clusterv1.ManagedCluster) bool { return live.UID == cluster.UID })
		return c.hub.Explain("wait for the deletion of cluster "+c.name, err)
	}
	err = c.await(ctx, func(ctx context.Context) string { return c.reasonNotJoined(ctx, &logProblems{}) }, gone)
	return err == nil, err
}

// restartAgent starts the agent again without its certificate, to join with a new token.
func (c *upCluster) restartAgent(ctx context.Context) error {
	c.report.Wait(c.name, "stopping its agent, to join anew")
	if _, err := c.agentProcess.Stop(ctx, shutdownGrace); err != nil {
		return err
	}
	if err := c.agent.removeCredential(); err != nil {
		return err
	}
	c.report.Done(c.name, "was deleted on the hub, joining anew")
	return c.startAgent(ctx)
}

// renewToken gives the agent a new token to join with.
func (c *upCluster) renewToken(ctx context.Context) (err error) {
	invitation := c.invitation
	if invitation.Token, err = bootstrap.ServiceAccountToken(ctx, c.hub); err != nil {
		return processExitOr(ctx, err, c.hubProcess)
	}
	return c.agent.writeBootstrapKubeconfig(invitation, c.trust)
}

// renewTokenIfNeeded gives an agent that runs a new token unless it needs none: the one that it was started with is good for an hour.
func (c *upCluster) renewTokenIfNeeded(ctx context.Context) error {
	cluster, err := managedclusters.Get(ctx, c.hub, c.name)
	switch {
	case err != nil && !apierrors.IsNotFound(err):
		return processExitOr(ctx, err, c.hubProcess)
	case err == nil && cluster.DeletionTimestamp.IsZero() && has(fleet.ConditionJoined, fleet.ConditionClusterAvailable)(cluster):
		return nil
	}
	return c.renewToken(ctx)
}

// join does what an administrator does on other hubs: it approves the agent's certificate and accepts the cluster, unless an administrator
// has denied it.
func (c *upCluster) join(ctx context.Context) error {
	if err := c.awaitRegistered(ctx); err != nil {
		return err
	}
	approving, stop := context.WithCancel(ctx)
	var approvals errgroup.Group
	approvals.Go(func() error { return c.approve(approving) })
	err := c.awaitJoined(ctx)
	stop()
	return errors.Join(err, approvals.Wait())
}

func (c *upCluster) approve(ctx context.Context) error {
	var failed error
	err := joinrequests.Watch(ctx, c.hub, c.name, time.Time{}, func(request joinrequests.Request) bool {
		if request.Pending {
			failed = joinrequests.Approve(ctx, c.hub, request.Name)
		}
		return failed != nil
	})
	if ctx.Err() != nil {
		return nil //nolint:nilerr // the caller has ended the watch
	}
	return errors.Join(failed, err)
}

// awaitRegistered returns once the cluster is registered and not being deleted. It fails if it was denied.
func (c *upCluster) awaitRegistered(ctx context.Context) error {
	var cluster *clusterv1.ManagedCluster
	err := managedclusters.Wait(ctx, c.hub, c.name, func(found *clusterv1.ManagedCluster) bool {
		cluster = found
		return found.DeletionTimestamp.IsZero()
	})
	if err != nil || !managedcluster.Denied(cluster) {
		return err
	}
	how := "is denied"
	if managedcluster.CutOff(cluster) {
		how = "is denied and cut off"
	}
	target := strings.Join(append([]string{c.name}, c.home.HubFlags()...), " ")
	return fmt.Errorf("cluster %s %s on the hub, by \"capstan deny\" or spec.hubAcceptsClient of its ManagedCluster, and stays so\n"+
		"To take it back, run \"capstan accept --clusters %s\", and then \"capstan up\".", c.name, how, target)
}

// HubFlags are what a command needs to be for the hub of the playground: nothing, unless KUBECONFIG leads elsewhere.
func (h Home) HubFlags() []string {
	_, source, err := hubapi.Target{Playground: h.Kubeconfig()}.Resolve()
	if err == nil && source.Playground {
		return nil
	}
	return []string{"--kubeconfig", h.Kubeconfig()}
}

func (c *upCluster) awaitJoined(ctx context.Context) error {
	if err := managedclusters.Accept(ctx, c.hub, c.name); err != nil {
		return err
	}
	if err := managedclusters.Wait(ctx, c.hub, c.name, has(fleet.ConditionHubAccepted)); err != nil {
		return err
	}
	if err := c.deploySample(ctx); err != nil { // at once, so that the agent finds it when it lists works first
		return err
	}
	if c.agentStarted { // the conditions of the cluster may be from before the agent stopped
		if err := awaitHeartbeat(ctx, c.hub, c.name, c.agentProcess.StartedAt); err != nil {
			return err
		}
	}
	return managedclusters.Wait(ctx, c.hub, c.name, has(fleet.ConditionJoined, fleet.ConditionClusterAvailable))
}

// awaitHeartbeat returns once the agent of a cluster has renewed its lease after a point in time.
func awaitHeartbeat(ctx context.Context, hub *hubapi.Hub, cluster string, after time.Time) error {
	leases := hub.Client(coordinationv1.SchemeGroupVersion.WithResource("leases")).Namespace(cluster)
	err := hubapi.Until(ctx, leases, hubapi.Named(fleet.ClusterNamespaceLease), func(lease *coordinationv1.Lease) bool {
		return lease.Spec.RenewTime != nil && lease.Spec.RenewTime.After(after)
	})
	return hub.Explain("wait for the agent of cluster "+cluster, err)
}

func exists(*clusterv1.ManagedCluster) bool { return true }

func has(conditions ...string) func(*clusterv1.ManagedCluster) bool {
	return func(cluster *clusterv1.ManagedCluster) bool {
		for _, condition := range conditions {
			if !meta.IsStatusConditionTrue(cluster.Status.Conditions, condition) {
				return false
			}
		}
		return true
	}
}

// deploySample leaves a sample that is there as it is: a user may have tried things with it.
func (c *upCluster) deploySample(ctx context.Context) error {
	work, err := examples.Nginx(c.name)
	if err != nil {
		return err
	}
	if _, err := manifestworks.Create(ctx, c.hub, work); err != nil && !apierrors.IsAlreadyExists(err) {
		return err
	}
	return nil
}

func (c *upCluster) awaitSample(ctx context.Context) error {
	work, err := examples.Nginx(c.name)
	if err != nil {
		return err
	}
	return manifestworks.Wait(ctx, c.hub, c.name, work.Name, func(work *workv1.ManifestWork) bool {
		return meta.IsStatusConditionTrue(work.Status.Conditions, fleet.ConditionApplied) &&
			meta.IsStatusConditionTrue(work.Status.Conditions, fleet.ConditionAvailable)
	})
}
