package install

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/client-go/tools/clientcmd"

	workv1 "github.com/capstan-io/capstan/api/work/v1"
	"github.com/capstan-io/capstan/internal/apiclient"
	"github.com/capstan-io/capstan/internal/cli/hubapi"
	"github.com/capstan-io/capstan/internal/cli/options"
	"github.com/capstan-io/capstan/internal/cli/playground"
)

// localUnjoin is one run of "capstan unjoin --local".
type localUnjoin struct {
	*options.Global
	cluster string
	wait    bool
	force   bool

	home      playground.Home
	member    playground.Member
	agent     playground.Agent
	agentName string // what the agent calls itself in what it applies
}

// completeJoined completes the names of clusters whose agents are processes of this machine.
func completeJoined(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
	return joinedHere(), cobra.ShellCompDirectiveNoFileComp
}

// joinedHere are the names of clusters whose agents are processes of this machine; none where that is not known.
func joinedHere() []string {
	home, err := playground.DefaultHome()
	if err != nil {
		return nil
	}
	names, err := home.JoinedNames()
	if err != nil {
		return nil
	}
	return names
}

func (l *localUnjoin) run(command *cobra.Command) error {
	if err := l.check(); err != nil {
		return err
	}
	return l.RunLimited(command, l.unjoin)
}

// check finds what is missing or wrong before anything is touched.
func (l *localUnjoin) check() error {
	if l.Kubeconfig != "" || l.Context != "" {
		return errors.New("--kubeconfig, --context: of no use with --local: \"capstan join\" was told the kubeconfig of the cluster, and the hub is not asked")
	}
	var err error
	if l.home, err = playground.DefaultHome(); err != nil {
		return err
	}
	if l.member, err = l.home.Joined(l.cluster); err != nil {
		return err
	}
	l.agent = l.home.Agent(l.member)
	l.agentName, err = l.agent.Name()
	return err
}

func (l *localUnjoin) unjoin(ctx context.Context) error {
	remaining, err := l.ensureNoWorks(ctx)
	if err != nil {
		return err
	}
	if l.DryRun {
		l.Say("would stop the agent of cluster %s and remove %s", l.cluster, l.home.ClusterDir(l.cluster))
		return nil
	}
	if err := l.stop(ctx); err != nil {
		return err
	}
	if meanwhile, err := l.applied(ctx); !l.force && (err != nil || len(meanwhile) > 0) {
		return errors.Join(err, fmt.Errorf("the agent of cluster %s is stopped and not removed: it has applied more meanwhile, or the cluster does not answer any more. "+
			"%s, and run this command again", l.cluster, l.howToStart()))
	}
	if err := l.removeTokenAccounts(ctx); err != nil {
		return err
	}
	if err := l.agent.Remove(); err != nil {
		return err
	}
	l.printResult(remaining)
	return nil
}

// ensureNoWorks makes sure that nothing is left on the cluster that only the agent takes off, unless it may be left there: then it
// returns what.
func (l *localUnjoin) ensureNoWorks(ctx context.Context) (remaining []workv1.AppliedManifestWork, err error) {
	applied, err := l.applied(ctx)
	switch {
	case err != nil && l.force:
		l.Note("Warning: cluster %s cannot be asked what was applied there, so that stays: %v", l.cluster, err)
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("cluster %s cannot be asked what was applied there: %w\nSee whether the cluster runs, and whether the kubeconfig is a recent one. "+
			"--force does without asking: what was applied there stays", l.cluster, err)
	case len(applied) == 0 || l.force:
		return applied, nil
	}
	running, err := l.agent.Running()
	switch {
	case err != nil:
		return nil, err
	case !running:
		return nil, fmt.Errorf("%w\nThe agent does not run. %s, delete the works on the hub, then run this command again", l.worksRemainError(applied),
			l.howToStart())
	case !l.wait || l.DryRun:
		return nil, fmt.Errorf("%w\nDelete them on the hub, then run this command again, or run it with --wait meanwhile. Sets of works and add-ons make theirs "+
			"anew as long as the hub has the cluster, so that goes with them:\n  kubectl delete managedcluster %s",
			l.worksRemainError(applied), l.cluster)
	}
	return nil, l.awaitNoWorks(ctx, applied)
}

// howToStart says how the agent is started again. "up" does so as well, but not for one that a person runs in a terminal, and it would make
// a playground where there is none.
func (l *localUnjoin) howToStart() string {
	if !l.member.Foreground && l.home.HasPlayground() {
		return "Start it again with \"capstan up\""
	}
	return "Start it again with the \"capstan join --local\" of before (with a new token, if that has expired)"
}

// worksRemainError lists what keeps the agent from being removed.
func (l *localUnjoin) worksRemainError(applied []workv1.AppliedManifestWork) error {
	return fmt.Errorf("cluster %s still has what its agent applied for the hub, and only the agent takes it off:\n%s\n--force leaves it there",
		l.cluster, listWorksApplied(applied))
}

func listWorksApplied(applied []workv1.AppliedManifestWork) string {
	lines := make([]string, len(applied))
	for i := range applied {
		lines[i] = fmt.Sprintf("  work %s (objects: %d)", applied[i].Spec.ManifestWorkName, len(applied[i].Status.AppliedResources))
	}
	return strings.Join(lines, "\n")
}

func (l *localUnjoin) awaitNoWorks(ctx context.Context, applied []workv1.AppliedManifestWork) error {
	l.Note("Waiting until these works are deleted on the hub and off the cluster:\n%s", listWorksApplied(applied))
	managed, err := l.managed()
	if err != nil {
		return err
	}
	progress := l.Progress()
	defer progress.Close()
	progress.Wait(l.cluster, "waiting until its works are gone")
	if err := awaitNoAppliedWorks(ctx, managed, l.agentName); err != nil {
		return fmt.Errorf("wait until the works of cluster %s are gone: %w: the agent goes on. See whether the works are deleted on the hub: capstan get works --cluster %s",
			l.cluster, err, l.cluster)
	}
	progress.Done(l.cluster, "its works are gone")
	return nil
}

// applied is what the agent has applied and not taken off. One that never joined has applied nothing.
func (l *localUnjoin) applied(ctx context.Context) ([]workv1.AppliedManifestWork, error) {
	if l.agentName == "" {
		return nil, nil
	}
	managed, err := l.managed()
	if err != nil {
		return nil, err
	}
	return appliedWorks(ctx, managed, l.agentName)
}

// removeTokenAccounts deletes the service accounts that the agent keeps for ManagedServiceAccounts. What the kubeconfig may not delete
// stays, and with --force, whatever cannot be deleted.
func (l *localUnjoin) removeTokenAccounts(ctx context.Context) error {
	if l.agentName == "" {
		return nil
	}
	managed, err := l.managed()
	if err == nil {
		err = removeTokenAccounts(ctx, managed, l.agentName)
	}
	switch {
	case err == nil:
		return nil
	case l.force, apiclient.Denied(err):
		l.Note("Warning: on cluster %s, %v", l.cluster, err)
		return nil
	default:
		return fmt.Errorf("the agent of cluster %s is stopped and not removed: %w\nRun this command again. --force removes the agent all the same",
			l.cluster, err)
	}
}

func (l *localUnjoin) managed() (*hubapi.Hub, error) {
	config, err := clientcmd.BuildConfigFromFlags("", l.member.Kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("the kubeconfig that it was joined with: %w", err)
	}
	return hubapi.New(config)
}

func (l *localUnjoin) stop(ctx context.Context) error {
	progress := l.Progress()
	defer progress.Close()
	return l.agent.Stop(ctx, progress)
}

func (l *localUnjoin) printResult(remaining []workv1.AppliedManifestWork) {
	switch {
	case !l.force:
		l.Say("Applied resources have been deleted during the %s joined stage. The status of mcl %s will be unknown in the hub cluster.",
			l.cluster, l.cluster)
	case len(remaining) > 0:
		l.Say("The agent of cluster %s is removed. What it applied stays there:\n%s\nThe status of mcl %s will be unknown in the hub cluster.",
			l.cluster, listWorksApplied(remaining), l.cluster)
	default:
		l.Say("The agent of cluster %s is removed. The status of mcl %s will be unknown in the hub cluster.", l.cluster, l.cluster)
	}
	l.Note("What stays in the cluster, because other agents may use it: the CustomResourceDefinitions of AppliedManifestWork and ClusterClaim, "+
		"and the namespaces that cluster sets asked for.\nAn administrator of the hub forgets the cluster with:\n  kubectl delete managedcluster %s", l.cluster)
}
