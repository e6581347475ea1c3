package install

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"k8s.io/client-go/tools/clientcmd"

	"github.com/capstan-io/capstan/internal/cli/hubapi"
	"github.com/capstan-io/capstan/internal/cli/output"
	"github.com/capstan-io/capstan/internal/cli/playground"
)

// checkLocal finds what is missing or wrong for an agent that is a process of this machine, before any server is asked.
func (j *joining) checkLocal() error {
	switch {
	case j.inCluster.managedKubeconfig == "":
		return errors.New("--managed-cluster-kubeconfig is missing: with --local, the agent runs as a process of this machine and needs a kubeconfig of the " +
			"cluster it is for")
	case j.Kubeconfig != "" || j.Context != "":
		return errors.New("--kubeconfig, --context: of no use with --local: the kubeconfig of the cluster is --managed-cluster-kubeconfig, and its current " +
			"context is used")
	}
	for _, flag := range j.inCluster.flags.changed(j.command) {
		return fmt.Errorf("--%s: for agents in clusters, of no use with --local", flag)
	}
	return j.checkKubeconfig()
}

func (j *joining) checkKubeconfig() error {
	file, err := filepath.Abs(j.inCluster.managedKubeconfig)
	if err != nil {
		return err
	}
	j.inCluster.managedKubeconfig = file
	config, err := clientcmd.LoadFromFile(file)
	if err != nil {
		return fmt.Errorf("--managed-cluster-kubeconfig: %w: name a kubeconfig that leads to the cluster", err)
	}
	if config.Contexts[config.CurrentContext] == nil {
		return fmt.Errorf("--managed-cluster-kubeconfig: %s: its current context is %q, which is none of its contexts: choose one of %s with \"kubectl "+
			"config use-context\"",
			file, config.CurrentContext, strings.Join(slices.Sorted(maps.Keys(config.Contexts)), ", "))
	}
	if _, err := clientcmd.BuildConfigFromFlags("", file); err != nil {
		return fmt.Errorf("--managed-cluster-kubeconfig: %s: %w", file, err)
	}
	return nil
}

// joinLocal runs an agent as a process of this machine.
func (j *joining) joinLocal(ctx context.Context) error {
	trust, hub, err := j.findHub(ctx)
	if err != nil {
		return err
	}
	member, err := j.findCluster(ctx)
	if err != nil {
		return err
	}
	enrolment := playground.Enrolment{Member: member, Invitation: j.invitation, Trust: trust}
	if j.DryRun {
		program, err := j.Home.AgentProgram(member)
		if err == nil {
			j.Say("would run %s", output.ShellCommand(append([]string{program.Path}, program.Args...)...))
		}
		return err
	}
	j.warnOfClash(ctx, hub)
	program, err := j.Home.Enrol(enrolment)
	if err != nil {
		return err
	}
	if j.detach {
		return j.runDetached(ctx, hub, program, enrolment)
	}
	return j.runAttached(ctx, hub, program, enrolment)
}

// findCluster makes sure that the kubeconfig lets us into a cluster, and finds the URL that the cluster publishes, else
// that of the kubeconfig.
func (j *joining) findCluster(ctx context.Context) (playground.Member, error) {
	member := playground.Member{Name: j.cluster, Kubeconfig: j.inCluster.managedKubeconfig}
	ctx, cancel := j.Limited(ctx)
	defer cancel()
	config, err := clientcmd.BuildConfigFromFlags("", j.inCluster.managedKubeconfig)
	if err != nil {
		return member, err
	}
	cluster, err := hubapi.New(config)
	if err == nil {
		err = cluster.Live(ctx)
	}
	if err != nil {
		return member, fmt.Errorf("--managed-cluster-kubeconfig: %s: the cluster at %s cannot be used: %w: see whether it runs, and whether the kubeconfig "+
			"is a recent one",
			j.inCluster.managedKubeconfig, config.Host, err)
	}
	published, err := cluster.Published(ctx)
	if err == nil && strings.HasPrefix(published.Server, "https://") {
		member.URL = published.Server
	}
	return member, nil
}

// warnOfClash tells that the name is taken already, unless that is the agent of this home.
func (j *joining) warnOfClash(ctx context.Context, hub *hubapi.Hub) {
	ctx, cancel := j.Limited(ctx)
	defer cancel()
	if _, err := hub.Cluster(ctx, j.cluster); err == nil && !j.Home.Enrolled(j.cluster) {
		j.Note("Warning: the hub knows a cluster %s already. If that is another cluster, interrupt this agent (\"capstan down\" if it is detached) "+
			"and choose another --cluster-name: both would answer to the same works.", j.cluster)
	}
}

func (j *joining) runDetached(ctx context.Context, hub *hubapi.Hub, program playground.Program, enrolment playground.Enrolment) error {
	agent, err := j.Home.Detach(program, enrolment)
	if err != nil {
		return err
	}
	if j.wait {
		if err := j.awaitCluster(ctx, hub, agent); err != nil {
			return err
		}
	}
	j.Note("The agent runs in the background as process %d; its log is %s.", agent.PID, agent.Log)
	j.sayAccept()
	return nil
}

func (j *joining) awaitCluster(ctx context.Context, hub *hubapi.Hub, agent *playground.Process) error {
	ctx, cancel := j.Limited(ctx)
	defer cancel()
	progress := j.Progress()
	defer progress.Close()
	progress.Wait(j.cluster, "registering with the hub")
	if err := playground.AwaitDetached(ctx, hub, j.cluster, agent, progress); err != nil {
		return err
	}
	progress.Done(j.cluster, "registered with the hub")
	return nil
}

// runAttached shows the log of the agent, and how to accept the cluster once the hub knows it.
func (j *joining) runAttached(ctx context.Context, hub *hubapi.Hub, program playground.Program, enrolment playground.Enrolment) error {
	agent, err := j.Home.Attach(ctx, program, enrolment, j.ErrOut)
	if err != nil {
		return err
	}
	registering, cancel := j.Limited(ctx)
	defer cancel()
	switch err := playground.AwaitCluster(registering, hub, j.cluster, agent); {
	case err == nil:
		j.sayAccept()
	case agent.Running() && ctx.Err() == nil:
		j.Note("The hub does not know the cluster yet: %v\nThe agent goes on trying; interrupt it to give up.", err)
	}
	err = agent.Result()
	if ctx.Err() != nil || err == nil { // asked to stop, by an interrupt, "capstan down" or "capstan unjoin"
		j.Note("The agent is stopped. The same command starts it again.")
		return nil
	}
	return fmt.Errorf("the agent ended: %w: its log above says why", err)
}
