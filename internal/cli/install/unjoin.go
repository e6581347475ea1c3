package install

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	operatorv1 "github.com/capstan-io/capstan/api/operator/v1"
	workv1 "github.com/capstan-io/capstan/api/work/v1"
	"github.com/capstan-io/capstan/internal/cli/hubapi"
	"github.com/capstan-io/capstan/internal/cli/options"
	"github.com/capstan-io/capstan/internal/installation"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
)

// unjoining is one run of "capstan unjoin".
type unjoining struct {
	*options.Global
	cluster       string
	name          string // of the Klusterlet; empty if the cluster has only one
	purgeOperator bool
	outputFile    string
	wait, force   bool

	in         *Cluster
	klusterlet *operatorv1.Klusterlet // nil if it is gone, and not recorded
	resumed    bool                   // an earlier run has removed the Klusterlet
	idle       bool                   // the operator is there without any Klusterlet, and no earlier run was to remove it
	managed    *hubapi.Hub            // the cluster that the agent is for; nil if it cannot be reached
	elsewhere  map[string]string      // the Klusterlets of agents that run in another cluster, by their namespaces in this one
}

const unjoinLong = `Take the agent of a cluster out of the cluster of the kubeconfig: its Klusterlet, its namespace, and the operator if no other
Klusterlet needs it.

The agent takes what it applied off the cluster when the works are deleted on the hub. As long as there are any, the command
refuses; --wait waits until they are gone, --force leaves what was applied where it is. If something is not gone in time, the error
names it with the finalizers that keep it. Where the operator does not run any more, --force also takes those off.

A cluster that has joined several hubs has a Klusterlet for each of them: --klusterlet chooses the one that goes. A namespace that the
agent of another Klusterlet has, too, stays, and so does that of the operators, of a ManagedCluster or of a ClusterManager.

An operator that Helm, the Operator Lifecycle Manager, Argo CD or Flux keeps is for these to uninstall: the command refuses, unless
--purge-operator=false leaves it, or --force insists.

With --local, it stops the agent that "capstan join --local" runs as a process of this machine, and removes what it has kept here: its
identity, its key, its log.

On the hub nothing is deleted: an administrator does that with "kubectl delete managedcluster NAME", at best before.

A run that was interrupted is run again: it goes on with what is left. An operator without any Klusterlet that no such run was to remove
stays, unless --force insists.`

// NewUnjoinCommand is "capstan unjoin".
func NewUnjoinCommand(global *options.Global) *cobra.Command {
	run := &unjoining{Global: global}
	var local bool
	command := &cobra.Command{
		Use:   "unjoin --cluster-name NAME",
		Short: "Take a cluster from its hub: remove its agent",
		Long:  unjoinLong,
		Example: "  capstan unjoin --cluster-name prod1\n" +
			"  capstan unjoin --cluster-name prod1 --wait      # while a user deletes the works on the hub\n" +
			"  capstan unjoin --cluster-name prod1 --force     # the hub is gone for good\n" +
			"  capstan unjoin --cluster-name prod1 --local     # the agent is a process of this machine",
		Args:              options.FlagsOnly,
		ValidArgsFunction: cobra.NoFileCompletions,
	}
	flags := command.Flags()
	flags.StringVar(&run.cluster, "cluster-name", "", "name that the cluster has on the hub")
	flags.BoolVar(&run.wait, "wait", false,
		"wait until the works are deleted on the hub and off the cluster, for --timeout seconds at most")
	flags.StringVar(&run.name, "klusterlet", "",
		"name of the Klusterlet, if several in the cluster have this --cluster-name, each for another hub, or its agent has made no name yet")
	flags.BoolVar(&run.force, "force", false,
		"leave what was applied on the cluster, and do without the cluster or the operator if they cannot be reached")
	flags.BoolVar(&run.purgeOperator, "purge-operator", true, "remove the operator, too, if no other Klusterlet needs it")
	flags.StringVar(&run.outputFile, "output-file", "", "write what was deleted to this file, which only you can read")
	flags.BoolVar(&local, "local", false, "the agent is a process of this machine")
	command.MarkFlagsMutuallyExclusive("wait", "force")
	command.MarkFlagsMutuallyExclusive("local", "klusterlet")
	options.Complete(command, "cluster-name", completeJoined)
	options.Complete(command, "klusterlet", completeKlusterlets(global))
	command.RunE = func(command *cobra.Command, _ []string) error {
		if run.cluster == "" {
			return errors.New("cluster-name is missing: --cluster-name: \"kubectl get klusterlets\" shows the agents in a cluster, " +
				"\"capstan status\" those that run on this machine")
		}
		if err := errors.Join(options.CheckClusterName("--cluster-name", run.cluster), options.CheckOutputFile(run.outputFile)); err != nil {
			return err
		}
		if local {
			l := &localUnjoin{Global: global, cluster: run.cluster, wait: run.wait, force: run.force}
			return l.run(command)
		}
		return run.RunLimited(command, run.unjoin)
	}
	return command
}

func (u *unjoining) unjoin(ctx context.Context) error {
	if err := u.find(ctx); err != nil {
		return err
	}
	removal := &removal{Global: u.Global, in: u.in, force: u.force}
	if err := u.checkInstallers(ctx, removal); err != nil {
		return err
	}
	var err error
	if u.elsewhere, err = u.hostedElsewhere(ctx); err != nil {
		return err
	}
	if err := u.ensureNoWorks(ctx); err != nil {
		return err
	}
	operator, err := u.operatorObjects(ctx)
	if err != nil {
		return err
	}
	if len(operator) > 0 && u.klusterlet != nil {
		if err := u.annotateNamespace(ctx, fleet.NamespaceOperators); err != nil {
			return err
		}
	}
	if err := u.removeAgent(ctx, removal); err != nil {
		return err
	}
	if err := removal.deleteAll(ctx, operator); err != nil || u.DryRun {
		return err
	}
	if err := u.clearAnnotation(ctx, fleet.NamespaceOperators); err != nil { // of one that stays
		return err
	}
	removal.noteRecord(ctx)
	if err := writeObjects(u.Global, u.outputFile, removal.deleted); err != nil {
		return err
	}
	return u.printResult(ctx)
}

// find finds the Klusterlet of the cluster.
func (u *unjoining) find(ctx context.Context) error {
	var err error
	if u.in, err = connect(u.InstallTarget()); err != nil {
		return err
	}
	if _, err := u.in.Version(ctx); err != nil {
		return err
	}
	found, err := u.namedKlusterlets(ctx)
	if err != nil {
		return err
	}
	switch chosen := u.choose(found); len(chosen) {
	case 0:
	case 1:
		u.klusterlet = &chosen[0]
		u.klusterlet.Spec.ClusterName = u.cluster
		return u.findManaged(ctx)
	default:
		return u.severalKlusterlets(ctx, chosen)
	}
	left, err := u.resume(ctx, found)
	if err != nil {
		return err
	}
	if !left {
		return u.noKlusterlet(ctx, found)
	}
	u.Note("There is no Klusterlet any more: removing what is left of the agent.")
	return nil
}

// namedKlusterlets are the Klusterlets in the cluster, each with the name that its cluster has on the hub, which its agent may have made.
// With --klusterlet, only that one is looked at more closely.
func (u *unjoining) namedKlusterlets(ctx context.Context) ([]operatorv1.Klusterlet, error) {
	found, err := u.in.Klusterlets(ctx)
	if err != nil {
		return nil, err
	}
	for i := range found {
		nameOf := u.in.ClusterNameOf
		switch u.name {
		case "":
			nameOf = u.in.knownNameOf
		case found[i].Name:
		default:
			continue
		}
		if found[i].Spec.ClusterName, err = nameOf(ctx, &found[i]); err != nil {
			return nil, err
		}
	}
	return found, nil
}

// choose are the Klusterlets of the cluster; with --klusterlet, only the one of that name, whose cluster may have no name yet.
func (u *unjoining) choose(found []operatorv1.Klusterlet) []operatorv1.Klusterlet {
	return slices.DeleteFunc(slices.Clone(found), func(k operatorv1.Klusterlet) bool {
		if u.name != "" && k.Name != u.name {
			return true
		}
		return k.Spec.ClusterName != u.cluster && (u.name == "" || k.Spec.ClusterName != "")
	})
}

// severalKlusterlets lists the Klusterlets of which the user has to choose one.
func (u *unjoining) severalKlusterlets(ctx context.Context, found []operatorv1.Klusterlet) error {
	var lines strings.Builder
	for i := range found {
		hub, err := hubOfAgent(ctx, u.in, &found[i])
		if err != nil {
			return err
		}
		fmt.Fprintf(&lines, "\n  Klusterlet %s, with its agent in namespace %s, for the hub at %s", found[i].Name,
			installation.NamespaceOfAgent(&found[i]), cmp.Or(hub, "an unknown address"))
	}
	return fmt.Errorf("the cluster at %s, where %s leads, has %d Klusterlets for cluster %s: choose one with --klusterlet:%s", u.in.Server(),
		u.in.Source(), len(found), u.cluster, lines.String())
}

// agentNamespace is where the agent runs, or has run.
func (u *unjoining) agentNamespace() string {
	if u.klusterlet == nil {
		return fleet.NamespaceAgent
	}
	return installation.NamespaceOfAgent(u.klusterlet)
}

func (u *unjoining) noKlusterlet(ctx context.Context, others []operatorv1.Klusterlet) error {
	hint := "There is no Klusterlet at all."
	if len(others) > 0 {
		hint = "The Klusterlets there are for: " + strings.Join(u.clustersOf(others), ", ") + "."
	}
	if slices.Contains(joinedHere(), u.cluster) {
		hint += fmt.Sprintf("\nAn agent of cluster %s is a process of this machine: --local removes that.", u.cluster)
	}
	if u.idle {
		how, err := u.howIdleGoes(ctx)
		if err != nil {
			return err
		}
		hint += "\nThe operator of agents is there, or a part of it, without any Klusterlet: " + how + "."
	}
	missing := "no Klusterlet"
	if u.name != "" {
		missing = fmt.Sprintf("no Klusterlet %s, which --klusterlet names,", u.name)
	}
	return fmt.Errorf("the cluster at %s, where %s leads, has %s for cluster %s. %s\n"+
		"Choose the cluster that the agent runs in with --kubeconfig or --context", u.in.Server(), u.in.Source(), missing, u.cluster, hint)
}

// clustersOf are the clusters that Klusterlets are for, with their names where one of them is to be chosen by its name.
func (u *unjoining) clustersOf(klusterlets []operatorv1.Klusterlet) []string {
	names := make([]string, len(klusterlets))
	for i := range klusterlets {
		switch name := klusterlets[i].Spec.ClusterName; {
		case name == "":
			names[i] = "a cluster of which no name is known (Klusterlet " + klusterlets[i].Name + ", which --klusterlet chooses)"
		case u.name != "":
			names[i] = name + " (Klusterlet " + klusterlets[i].Name + ")"
		default:
			names[i] = name
		}
	}
	return names
}

// findManaged connects to the cluster that the agent is for.
func (u *unjoining) findManaged(ctx context.Context) error {
	if !installation.HasHostedAgent(u.klusterlet) {
		u.managed = u.in.Hub()
		return nil
	}
	managed, err := clusterOfSecret(ctx, u.in, installation.Reference{
		GroupVersionKind: installation.KindSecret, Namespace: u.klusterlet.Name, Name: fleet.SecretExternalManagedKubeconfig,
	})
	if err == nil {
		u.managed = managed
		return nil
	}
	if u.force {
		u.Note("Warning: cluster %s cannot be reached, so what is there stays: %v", u.cluster, err)
		return nil
	}
	return fmt.Errorf("cluster %s, which the agent is for, cannot be reached: %w\n--force removes the agent and leaves what it has put there", u.cluster, err)
}

// ensureNoWorks makes sure that nothing is left on the cluster that only the agent takes off, unless it may be left there.
func (u *unjoining) ensureNoWorks(ctx context.Context) error {
	if u.managed == nil || u.resumed {
		return nil
	}
	applied, err := appliedWorks(ctx, u.managed, string(u.klusterlet.UID))
	if err != nil || len(applied) == 0 {
		return err
	}
	if u.force {
		u.Note("Warning: what these works have applied stays on cluster %s:\n%s", u.cluster, listWorksApplied(applied))
		return nil
	}
	if !u.wait || u.DryRun {
		return fmt.Errorf("cluster %s still has what its agent applied for the hub, and only the agent takes it off:\n%s\n"+
			"Delete the works on the hub, then run this command again, or run it with --wait meanwhile. Sets of works and add-ons make theirs anew "+
			"as long as the hub has the cluster, so that goes with them:\n"+
			"  kubectl delete managedcluster %s\n--force leaves what they applied where it is",
			u.cluster, listWorksApplied(applied), u.cluster)
	}
	return u.awaitNoWorks(ctx, applied)
}

func (u *unjoining) awaitNoWorks(ctx context.Context, applied []workv1.AppliedManifestWork) error {
	u.Note("Waiting until these works are deleted on the hub and off the cluster:\n%s", listWorksApplied(applied))
	progress := u.Progress()
	defer progress.Close()
	progress.Wait(u.cluster, "waiting until its works are gone")
	if err := awaitNoAppliedWorks(ctx, u.managed, string(u.klusterlet.UID)); err != nil {
		left, _ := appliedWorks(context.WithoutCancel(ctx), u.managed, string(u.klusterlet.UID))
		return fmt.Errorf("wait until the works of cluster %s are gone: %w. These are left:\n%s", u.cluster, err, listWorksApplied(left))
	}
	progress.Done(u.cluster, "its works are gone")
	return nil
}

// printResult prints what is done, and how what works have applied is deleted, where that was left.
func (u *unjoining) printResult(ctx context.Context) error {
	left, err := u.remainingWorks(ctx)
	switch {
	case err != nil:
		return err
	case len(left) == 0 && u.managed == nil && (u.klusterlet != nil || len(u.elsewhere) > 0): // nobody knows
		u.Say("The agent of cluster %[1]s is removed. The status of mcl %[1]s will be unknown in the hub cluster.", u.cluster)
	case len(left) == 0:
		u.Say("Applied resources have been deleted during the %[1]s joined stage. The status of mcl %[1]s will be unknown in the hub cluster.",
			u.cluster)
	default:
		u.Say("The agent of cluster %[1]s is removed, and applied resources stay there. The status of mcl %[1]s will be unknown in the hub cluster.",
			u.cluster)
		u.Note("What works have applied is still on cluster %s. This deletes it, as its owner goes:\n  kubectl delete appliedmanifestworks %s\n"+
			"and, when it is gone:\n  kubectl delete crd %s", u.cluster, strings.Join(left, " "), installation.CRDAppliedManifestWorks)
	}
	u.Note("An administrator of the hub forgets the cluster with:\n  kubectl delete managedcluster %s", u.cluster)
	return nil
}

// remainingWorks are the AppliedManifestWorks of the agent that are left on the cluster.
func (u *unjoining) remainingWorks(ctx context.Context) ([]string, error) {
	cluster := u.in
	switch {
	case u.managed != nil:
		cluster = clusterOf(u.managed)
	case u.klusterlet != nil, len(u.elsewhere) > 0: // it cannot be reached, or they may be those of another agent
		return nil, nil
	}
	works, err := cluster.List(ctx, installation.KindAppliedManifestWork, "", "")
	var names []string
	for i := range works {
		agent, _, _ := unstructured.NestedString(works[i].Object, "spec", "agentID")
		if u.klusterlet == nil || agent == string(u.klusterlet.UID) {
			names = append(names, works[i].GetName())
		}
	}
	return names, err
}
