package playground

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/tools/clientcmd"

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

func (u *up) startHub(ctx context.Context, port int) error {
	program, err := u.home.hubProgram(port)
	if err != nil {
		return err
	}
	u.report.Wait("hub", "starting")
	process, started, err := u.home.Start(program)
	if err != nil {
		return err
	}
	hub, err := u.awaitServer(ctx, process, u.home.hubKubeconfig(), (*hubapi.Hub).Ready)
	if err != nil {
		return err
	}
	if err := u.publish(hubapi.PlaygroundContext, u.home.hubKubeconfig()); err != nil {
		return err
	}
	admin, err := loadSelfContained(u.home.hubKubeconfig())
	if err != nil {
		return err
	}
	u.hub, u.hubProcess = hub, process
	u.invitation = hubapi.Invitation{Server: hub.Server}
	u.trust = hubapi.Trust{CA: admin.Clusters[admin.Contexts[admin.CurrentContext].Cluster].CertificateAuthorityData}
	u.report.Done("hub", stateOf(started, "ready"))
	close(u.hubIsReady)
	return nil
}

// startCluster brings a cluster from nothing, or from whatever state it is in, to running the sample. The agent starts as soon as
// there are API servers on both sides; the cluster gets its nodes meanwhile.
func (u *up) startCluster(ctx context.Context, cluster ClusterState) error {
	program, err := u.home.sandboxProgram(cluster)
	if err != nil {
		return err
	}
	u.report.Wait(program.Name, "starting")
	sandbox, started, err := u.home.Start(program)
	if err != nil {
		return err
	}
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error {
		if _, err := u.awaitServer(ctx, sandbox, u.home.sandboxKubeconfig(cluster.Name), (*hubapi.Hub).Ready); err != nil {
			return err
		}
		u.report.Done(program.Name, stateOf(started, "ready"))
		return u.publish(cluster.Name, u.home.sandboxKubeconfig(cluster.Name))
	})
	group.Go(func() error {
		if _, err := u.awaitServer(ctx, sandbox, u.home.sandboxKubeconfig(cluster.Name), (*hubapi.Hub).Live); err != nil {
			return err
		}
		u.report.Wait(cluster.Name, "waiting for the hub")
		select {
		case <-u.hubIsReady:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		return u.joinMember(ctx, cluster, sandbox)
	})
	return group.Wait()
}

// joinMember makes a running cluster a member of the running hub.
func (u *up) joinMember(ctx context.Context, state ClusterState, sandbox *Process) error {
	cluster := state.Name
	agent, started, err := u.startAgent(ctx, state)
	if err != nil {
		return err
	}
	deleted, err := u.awaitDeletion(ctx, cluster, sandbox, agent)
	if err == nil && deleted {
		agent, started, err = u.restartAgent(ctx, state, agent)
	}
	if err != nil {
		return err
	}
	u.report.Wait(cluster, "joining")
	ctx, release := cancelOnExit(ctx, u.hubProcess, sandbox, agent)
	defer release()
	problems := followLog(agent, started)
	err = waitReportingReasons(ctx, u.report, cluster, func(ctx context.Context) string { return u.reasonNotJoined(ctx, cluster, problems) },
		func(ctx context.Context) error { return u.join(ctx, cluster, agent, started) })
	if err != nil {
		return processExitOr(ctx, err, u.hubProcess, sandbox, agent)
	}
	u.report.Done(cluster, "accepted, joined and available")
	u.report.Wait(cluster, "applying the sample")
	err = waitReportingReasons(ctx, u.report, cluster, func(ctx context.Context) string { return u.reasonNoSample(ctx, cluster) },
		func(ctx context.Context) error { return u.awaitSample(ctx, cluster) })
	if err != nil {
		return processExitOr(ctx, err, u.hubProcess, sandbox, agent)
	}
	u.report.Done(cluster, "the sample is applied and available")
	return nil
}

// startAgent starts the agent of a cluster. It gets a fresh token to join with each time, which it needs if it has lost
// its own access to the hub or was stopped until that expired. One that runs takes a changed token up by itself.
func (u *up) startAgent(ctx context.Context, cluster ClusterState) (agent *Process, started bool, err error) {
	program, err := u.home.AgentProgram(u.home.sandboxMember(cluster))
	if err != nil {
		return nil, false, err
	}
	running, err := u.home.Process(program.Name)
	if err != nil {
		return nil, false, err
	}
	if running.Running() {
		return running, false, u.renewInvitation(ctx, cluster.Name)
	}
	if err := u.invite(ctx, cluster.Name); err != nil {
		return nil, false, err
	}
	return u.home.Start(program)
}

// awaitDeletion tells whether an agent that had joined has to join anew, because its cluster was deleted on the hub: it continues with the
// certificate that it has. While a deletion is in progress, the agent has to complete it.
func (u *up) awaitDeletion(ctx context.Context, name string, sandbox, agent *Process) (deleted bool, err error) {
	if !u.home.hasCredential(name) {
		return false, nil
	}
	cluster, err := managedclusters.Get(ctx, u.hub, name)
	switch {
	case apierrors.IsNotFound(err):
		return true, nil
	case err != nil:
		return false, processExitOr(ctx, err, u.hubProcess)
	case cluster.DeletionTimestamp.IsZero():
		return false, nil
	}
	u.report.Wait(name, "being deleted on the hub")
	ctx, release := cancelOnExit(ctx, u.hubProcess, sandbox, agent)
	defer release()
	err = waitReportingReasons(ctx, u.report, name, func(ctx context.Context) string { return u.reasonNotJoined(ctx, name, &logProblems{}) },
		func(ctx context.Context) error { return awaitNoCluster(ctx, u.hub, name, cluster.UID) })
	if err != nil {
		return false, processExitOr(ctx, err, u.hubProcess, sandbox, agent)
	}
	return true, nil
}

// restartAgent starts an agent again without its certificate, to join with a new token.
func (u *up) restartAgent(ctx context.Context, cluster ClusterState, agent *Process) (*Process, bool, error) {
	u.report.Wait(cluster.Name, "stopping its agent, to join anew")
	if _, err := agent.Stop(ctx, shutdownGrace); err != nil {
		return nil, false, err
	}
	if err := u.home.forgetCredential(cluster.Name); err != nil {
		return nil, false, err
	}
	u.report.Done(cluster.Name, "was deleted on the hub, joining anew")
	return u.startAgent(ctx, cluster)
}

// invite writes a new token to join with.
func (u *up) invite(ctx context.Context, cluster string) (err error) {
	invitation := u.invitation
	if invitation.Token, err = bootstrap.ServiceAccountToken(ctx, u.hub); err != nil {
		return processExitOr(ctx, err, u.hubProcess)
	}
	return u.home.WriteBootstrapKubeconfig(cluster, invitation, u.trust)
}

// renewInvitation gives an agent that runs a new token unless it needs none: the one that it was started with is good for an hour.
func (u *up) renewInvitation(ctx context.Context, name string) error {
	cluster, err := managedclusters.Get(ctx, u.hub, name)
	switch {
	case err != nil && !apierrors.IsNotFound(err):
		return processExitOr(ctx, err, u.hubProcess)
	case err == nil && cluster.DeletionTimestamp.IsZero() && has(fleet.ConditionJoined, fleet.ConditionClusterAvailable)(cluster):
		return nil
	}
	return u.invite(ctx, name)
}

// join does what an administrator does on other hubs: it approves the agent's certificate and accepts the cluster, unless an administrator
// has denied it.
func (u *up) join(ctx context.Context, cluster string, agent *Process, started bool) error {
	if err := u.awaitRegistered(ctx, cluster); err != nil {
		return err
	}
	approving, stop := context.WithCancel(ctx)
	var approvals errgroup.Group
	approvals.Go(func() error { return u.approve(approving, cluster) })
	err := u.awaitJoined(ctx, cluster, agent, started)
	stop()
	return errors.Join(err, approvals.Wait())
}

func (u *up) approve(ctx context.Context, cluster string) error {
	var failed error
	err := joinrequests.Watch(ctx, u.hub, cluster, time.Time{}, func(request joinrequests.Request) bool {
		if request.Pending {
			failed = joinrequests.Approve(ctx, u.hub, request.Name)
		}
		return failed != nil
	})
	if ctx.Err() != nil {
		return nil //nolint:nilerr // the caller has ended the watch
	}
	return errors.Join(failed, err)
}

// awaitRegistered returns once a cluster is registered and not being deleted. It fails if it was denied.
func (u *up) awaitRegistered(ctx context.Context, name string) error {
	var cluster *clusterv1.ManagedCluster
	err := managedclusters.Wait(ctx, u.hub, name, func(found *clusterv1.ManagedCluster) bool {
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
	return fmt.Errorf("cluster %s %s on the hub, by \"capstan deny\" or spec.hubAcceptsClient of its ManagedCluster, and stays so\n"+
		"To take it back, run \"capstan accept --clusters %s\", and then \"capstan up\".", name, how, name)
}

func (u *up) awaitJoined(ctx context.Context, cluster string, agent *Process, started bool) error {
	if err := managedclusters.Accept(ctx, u.hub, cluster); err != nil {
		return err
	}
	if err := managedclusters.Wait(ctx, u.hub, cluster, has(fleet.ConditionHubAccepted)); err != nil {
		return err
	}
	if err := u.deploySample(ctx, cluster); err != nil { // at once, so that the agent finds it when it lists works first
		return err
	}
	if started { // the conditions of the cluster may be from before the agent stopped
		if err := awaitHeartbeat(ctx, u.hub, cluster, agent.StartedAt); err != nil {
			return err
		}
	}
	return managedclusters.Wait(ctx, u.hub, cluster, has(fleet.ConditionJoined, fleet.ConditionClusterAvailable))
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
func (u *up) deploySample(ctx context.Context, cluster string) error {
	work, err := examples.Nginx(cluster)
	if err != nil {
		return err
	}
	if _, err := manifestworks.Create(ctx, u.hub, work); err != nil && !apierrors.IsAlreadyExists(err) {
		return err
	}
	return nil
}

func (u *up) awaitSample(ctx context.Context, cluster string) error {
	work, err := examples.Nginx(cluster)
	if err != nil {
		return err
	}
	return manifestworks.Wait(ctx, u.hub, cluster, work.Name, func(work *workv1.ManifestWork) bool {
		return meta.IsStatusConditionTrue(work.Status.Conditions, fleet.ConditionApplied) &&
			meta.IsStatusConditionTrue(work.Status.Conditions, fleet.ConditionAvailable)
	})
}

// startJoined starts the agent of a cluster that is not of the playground again. Whether its hub accepts it is not waited for.
func (u *up) startJoined(joined Member) error {
	program, err := u.home.AgentProgram(joined)
	if err != nil {
		return err
	}
	_, started, err := u.home.Start(program)
	if err == nil {
		u.report.Done(joined.Name, stateOf(started, "the agent runs"))
	}
	return err
}

func (u *up) publish(name, kubeconfig string) error {
	u.publishing.Lock()
	defer u.publishing.Unlock()
	return u.home.publish(name, kubeconfig)
}

// awaitServer returns when a probe of the API server that the process runs succeeds.
func (u *up) awaitServer(ctx context.Context, process *Process, kubeconfig string,
	probe func(*hubapi.Hub, context.Context) error) (*hubapi.Hub, error) {
	var server *hubapi.Hub
	last := errors.New("it has not answered yet")
	ctx, release := cancelOnExit(ctx, process)
	defer release()
	err := wait.PollUntilContextCancel(ctx, readyPollInterval, true, func(ctx context.Context) (bool, error) {
		ctx, cancel := context.WithTimeout(ctx, readyRequestTimeout)
		defer cancel()
		if _, err := os.Stat(kubeconfig); err != nil {
			return false, nil
		}
		config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
		if err == nil {
			server, err = hubapi.New(config)
		}
		if err == nil {
			err = probe(server, ctx)
		}
		last = err
		return err == nil, nil
	})
	if err == nil {
		return server, nil
	}
	if errors.Is(context.Cause(ctx), context.DeadlineExceeded) {
		return nil, fmt.Errorf("%s is not ready in time: %w\nIt goes on starting; its log is %s. Run the command again with a longer --timeout.",
			process.Name, last, process.Log)
	}
	return nil, context.Cause(ctx)
}

// cancelOnExit returns a context that ends when one of the processes does, with its exit error as the cause.
func cancelOnExit(ctx context.Context, processes ...*Process) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	for _, process := range processes {
		go func() {
			if process.WaitExit(ctx) == nil {
				cancel(process.ExitError())
			}
		}()
	}
	return ctx, func() { cancel(nil) }
}

// processExitOr returns that a process has ended, if one has, because that explains why a request failed; otherwise the error of the
// request.
func processExitOr(ctx context.Context, err error, processes ...*Process) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), exitNotice)
	defer cancel()
	for _, process := range processes {
		if process.WaitExit(ctx) == nil {
			return process.ExitError()
		}
	}
	return err
}

func stateOf(started bool, what string) string {
	if started {
		return what
	}
	return what + " (it ran already)"
}
