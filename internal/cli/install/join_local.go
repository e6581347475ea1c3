package install

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/capstan-io/capstan/internal/cli/hubapi"
	"github.com/capstan-io/capstan/internal/cli/joinrequests"
	"github.com/capstan-io/capstan/internal/cli/managedclusters"
	"github.com/capstan-io/capstan/internal/cli/output"
	"github.com/capstan-io/capstan/internal/cli/playground"
)

// localJoin is "capstan join --local", for an agent that is a process of this machine.
type localJoin struct {
	*joining
	home playground.Home
}

// check finds what is missing or wrong for an agent that is a process of this machine, before any request.
func (l *localJoin) check(command *cobra.Command, inCluster clusterJoinFlags) error {
	switch {
	case l.managedKubeconfig == "":
		return errors.New("--managed-cluster-kubeconfig is missing: with --local, the agent runs as a process of this machine and needs a kubeconfig of the " +
			"cluster it is for")
	case l.Kubeconfig != "" || l.Context != "":
		return errors.New("--kubeconfig, --context: of no use with --local: the kubeconfig of the cluster is --managed-cluster-kubeconfig, and its current " +
			"context is used")
	}
	for _, flag := range inCluster.changed(command) {
		return fmt.Errorf("--%s: for agents in clusters, of no use with --local", flag)
	}
	var err error
	if l.home, err = playground.DefaultHome(); err != nil {
		return err
	}
	return l.checkKubeconfig()
}

func (l *localJoin) checkKubeconfig() error {
	file, err := filepath.Abs(l.managedKubeconfig)
	if err != nil {
		return err
	}
	l.managedKubeconfig = file
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

// join runs an agent as a process of this machine.
func (l *localJoin) join(ctx context.Context) error {
	trust, hub, err := l.findHub(ctx)
	if err != nil {
		return err
	}
	member, err := l.findCluster(ctx)
	if err != nil {
		return err
	}
	agent := l.home.Agent(member)
	l.warnIfMoves(agent)
	if l.DryRun {
		program, err := agent.Program()
		if err == nil {
			l.Say("would run %s", output.ShellCommand(append([]string{program.Path}, program.Args...)...))
		}
		return err
	}
	registration := &playground.Registration{Agent: agent, Invitation: l.invitation, Trust: trust, Hub: hub, Background: l.detach}
	registration.Earlier = l.warnIfTaken(ctx, hub, agent)
	program, err := registration.Prepare()
	if err != nil {
		return err
	}
	if l.detach {
		return l.runDetached(ctx, program, registration)
	}
	return l.runAttached(ctx, program, registration)
}

// findCluster makes sure that the kubeconfig gives access to a cluster, and finds the URL that the cluster publishes, else
// that of the kubeconfig.
func (l *localJoin) findCluster(ctx context.Context) (playground.Member, error) {
	member := playground.Member{Name: l.cluster, Kubeconfig: l.managedKubeconfig}
	ctx, cancel := l.Limited(ctx)
	defer cancel()
	config, err := clientcmd.BuildConfigFromFlags("", l.managedKubeconfig)
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
			l.managedKubeconfig, config.Host, err)
	}
	published, err := cluster.Published(ctx)
	if err == nil && strings.HasPrefix(published.Server, "https://") {
		member.URL = published.Server
	}
	return member, nil
}

// warnIfMoves warns that the agent of this home has joined by another URL before: one agent serves one hub.
func (l *localJoin) warnIfMoves(agent playground.Agent) {
	if before := agent.HubURL(); before != "" && before != l.invitation.Server {
		l.warnOfMove(before, l.invitation.Server, "choose another --cluster-name")
	}
}

// warnIfTaken warns that the name is taken already, unless by the agent of this home, and returns the certificate requests that there are.
func (l *localJoin) warnIfTaken(ctx context.Context, hub *hubapi.Hub, agent playground.Agent) (requests map[string]bool) {
	ctx, cancel := l.Limited(ctx)
	defer cancel()
	if _, err := managedclusters.Get(ctx, hub, l.cluster); err == nil && !agent.HasJoined() {
		l.Note("Warning: the hub knows a cluster %s already. If that is another cluster, interrupt this agent (\"capstan down\" if it is detached) "+
			"and choose another --cluster-name: both would answer to the same works.", l.cluster)
	}
	requests, _ = joinrequests.Names(ctx, hub, l.cluster) // none where they may not be read
	return requests
}

func (l *localJoin) runDetached(ctx context.Context, program playground.Program, registration *playground.Registration) error {
	if err := registration.Detach(program); err != nil {
		return err
	}
	if l.wait {
		if err := l.awaitRegistered(ctx, registration); err != nil {
			return err
		}
	}
	l.Note("The agent runs in the background as process %d; its log is %s.", registration.Process.PID, registration.Process.Log)
	l.printAcceptCommand()
	return nil
}

func (l *localJoin) awaitRegistered(ctx context.Context, registration *playground.Registration) error {
	ctx, cancel := l.Limited(ctx)
	defer cancel()
	progress := l.Progress()
	defer progress.Close()
	progress.Wait(l.cluster, "registering with the hub")
	return l.reportRegistered(progress, registration.AwaitDetached(ctx, progress))
}

// runAttached shows the log of the agent, and how to accept the cluster once the hub knows it.
func (l *localJoin) runAttached(ctx context.Context, program playground.Program, registration *playground.Registration) error {
	if err := registration.Attach(ctx, program, l.ErrOut); err != nil {
		return err
	}
	registering, cancel := l.Limited(ctx)
	defer cancel()
	var invisible *joinrequests.InvisibleError
	switch err := registration.Await(registering); {
	case err == nil, errors.As(err, &invisible):
		l.printAcceptCommand()
	case registration.Process.Running() && ctx.Err() == nil:
		l.Note("The hub has not heard of the agent yet: %v\nThe agent goes on trying; interrupt it to give up.", err)
	}
	err := registration.Process.Result()
	if ctx.Err() != nil || err == nil { // stopped, by an interrupt, "capstan down" or "capstan unjoin"
		l.Note("The agent is stopped. The same command starts it again.")
		return nil
	}
	return fmt.Errorf("the agent ended: %w: its log above says why", err)
}
