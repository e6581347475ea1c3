package options

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/capstan-io/capstan/internal/cli/hubapi"
	"github.com/capstan-io/capstan/internal/cli/managedclusters"
	"github.com/capstan-io/capstan/internal/cli/managedclustersets"
	"github.com/capstan-io/capstan/internal/cli/namespaces"
	"github.com/capstan-io/capstan/internal/cli/placements"
)

// completionTimeout is how long a shell waits for the hub before it completes nothing.
const completionTimeout = 3 * time.Second

// Complete makes a shell complete the values of a flag.
func Complete(command *cobra.Command, flag string, values cobra.CompletionFunc) {
	if err := command.RegisterFlagCompletionFunc(flag, values); err != nil {
		panic(err) // the flag is missing or registered twice
	}
}

// CompleteClusters completes the name of a cluster.
func (g *Global) CompleteClusters(command *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
	return g.ClusterNames(command.Context()), cobra.ShellCompDirectiveNoFileComp
}

// completeClusterList completes the last name of a list of clusters.
func (g *Global) completeClusterList(command *cobra.Command, _ []string, typed string) ([]string, cobra.ShellCompDirective) {
	return CompleteList(typed, g.ClusterNames(command.Context()))
}

// CompleteClusterSetList completes the last name of a list of cluster sets.
func (g *Global) CompleteClusterSetList(command *cobra.Command, _ []string, typed string) ([]string, cobra.ShellCompDirective) {
	return CompleteList(typed, g.clusterSetNames(command.Context()))
}

// CompleteList completes the last name of a list and offers no name twice.
func CompleteList(typed string, names []string) ([]string, cobra.ShellCompDirective) {
	listed, prefix := []string{}, ""
	if last := strings.LastIndex(typed, ","); last >= 0 {
		listed, prefix = strings.Split(typed[:last], ","), typed[:last+1]
	}
	var completions []string
	for _, name := range names {
		if !slices.Contains(listed, name) {
			completions = append(completions, prefix+name)
		}
	}
	return completions, cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveNoSpace
}

// ClusterNames are the clusters of the hub, to complete.
func (g *Global) ClusterNames(ctx context.Context) []string {
	return g.CompleteFromHub(ctx, func(ctx context.Context, hub *hubapi.Hub) ([]string, error) {
		list, err := managedclusters.List(ctx, hub, "")
		return hubapi.ObjectNames(list.Items), err
	})
}

// CompleteClusterSets completes the names of cluster sets that are not on the line yet.
func (g *Global) CompleteClusterSets(command *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	return slices.DeleteFunc(g.clusterSetNames(command.Context()), func(name string) bool { return slices.Contains(args, name) }),
		cobra.ShellCompDirectiveNoFileComp
}

func (g *Global) clusterSetNames(ctx context.Context) []string {
	return g.CompleteFromHub(ctx, func(ctx context.Context, hub *hubapi.Hub) ([]string, error) {
		list, err := managedclustersets.List(ctx, hub)
		return hubapi.ObjectNames(list.Items), err
	})
}

// CompleteClusterSet completes the one name of a cluster set that a command takes.
func (g *Global) CompleteClusterSet(command *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return g.CompleteClusterSets(command, args, typed)
}

// CompleteNamespaces completes the name of a namespace of the hub.
func (g *Global) CompleteNamespaces(command *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
	return g.CompleteFromHub(command.Context(), namespaces.Names), cobra.ShellCompDirectiveNoFileComp
}

// namesFrom are names that a hub or a cluster has.
type namesFrom = func(context.Context, *hubapi.Hub) ([]string, error)

// CompleteFromHub reads names to complete from the hub; a hub that cannot be reached has none.
func (g *Global) CompleteFromHub(ctx context.Context, names namesFrom) []string {
	return g.completeFrom(ctx, g.Target, names)
}

// CompleteFromCluster does the same for the cluster that something is installed in, or taken out of.
func (g *Global) CompleteFromCluster(ctx context.Context, names namesFrom) []string {
	return g.completeFrom(ctx, g.InstallTarget, names)
}

func (g *Global) completeFrom(ctx context.Context, target func() hubapi.Target, names namesFrom) []string {
	silenceLibraries() // completion does not run what commands run first
	hub, err := hubapi.Connect(target())
	if err != nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, completionTimeout)
	defer cancel()
	found, err := names(ctx, hub)
	if err != nil {
		return nil
	}
	return found
}

// CompleteContexts completes the name of a context of the kubeconfig.
func (g *Global) CompleteContexts(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
	return g.Target().Contexts(), cobra.ShellCompDirectiveNoFileComp
}

// CompletePlacementRef completes NAMESPACE/NAME of a placement.
func (g *Global) CompletePlacementRef(command *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
	return g.CompleteFromHub(command.Context(), func(ctx context.Context, hub *hubapi.Hub) ([]string, error) {
		list, err := placements.List(ctx, hub, "")
		var refs []string
		for i := range list.Items {
			refs = append(refs, list.Items[i].Namespace+"/"+list.Items[i].Name)
		}
		return refs, err
	}), cobra.ShellCompDirectiveNoFileComp
}
