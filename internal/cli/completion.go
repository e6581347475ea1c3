package cli

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/capstan-io/capstan/internal/cli/hubapi"
)

// completionTimeout is how long a shell waits for the hub before it completes nothing.
const completionTimeout = 3 * time.Second

// complete makes a shell complete the values of a flag.
func complete(command *cobra.Command, flag string, values cobra.CompletionFunc) {
	if err := command.RegisterFlagCompletionFunc(flag, values); err != nil {
		panic(err) // the flag is missing or registered twice
	}
}

func (a *app) completeClusters(command *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
	return a.clusterNames(command.Context()), cobra.ShellCompDirectiveNoFileComp
}

// completeClusterList completes the last name of a list of clusters.
func (a *app) completeClusterList(command *cobra.Command, _ []string, typed string) ([]string, cobra.ShellCompDirective) {
	return completeList(typed, a.clusterNames(command.Context()))
}

// completeClusterSetList completes the last name of a list of cluster sets.
func (a *app) completeClusterSetList(command *cobra.Command, _ []string, typed string) ([]string, cobra.ShellCompDirective) {
	return completeList(typed, a.clusterSetNames(command.Context()))
}

// completeList completes the last name of a list and offers no name twice.
func completeList(typed string, names []string) ([]string, cobra.ShellCompDirective) {
	listed, prefix := []string{}, ""
	if last := strings.LastIndex(typed, ","); last >= 0 {
		listed, prefix = strings.Split(typed[:last], ","), typed[:last+1]
	}
	var offers []string
	for _, name := range names {
		if !slices.Contains(listed, name) {
			offers = append(offers, prefix+name)
		}
	}
	return offers, cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveNoSpace
}

func (a *app) clusterNames(ctx context.Context) []string {
	return a.offer(ctx, func(ctx context.Context, hub *hubapi.Hub) ([]string, error) {
		list, err := hub.Clusters(ctx, "")
		var names []string
		for i := range list.Items {
			names = append(names, list.Items[i].Name)
		}
		return names, err
	})
}

// completeClusterSets completes the names of cluster sets that are not on the line yet.
func (a *app) completeClusterSets(command *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	return slices.DeleteFunc(a.clusterSetNames(command.Context()), func(name string) bool { return slices.Contains(args, name) }),
		cobra.ShellCompDirectiveNoFileComp
}

func (a *app) clusterSetNames(ctx context.Context) []string {
	return a.offer(ctx, func(ctx context.Context, hub *hubapi.Hub) ([]string, error) {
		list, err := hub.ClusterSets(ctx)
		var names []string
		for i := range list.Items {
			names = append(names, list.Items[i].Name)
		}
		return names, err
	})
}

// completeClusterSet completes the one name of a cluster set that a command takes.
func (a *app) completeClusterSet(command *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return a.completeClusterSets(command, args, typed)
}

func (a *app) completeNamespaces(command *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
	return a.offer(command.Context(), func(ctx context.Context, hub *hubapi.Hub) ([]string, error) {
		return hub.Namespaces(ctx)
	}), cobra.ShellCompDirectiveNoFileComp
}

// offer asks the hub for names to complete; one that does not answer has none to offer.
func (a *app) offer(ctx context.Context, names func(context.Context, *hubapi.Hub) ([]string, error)) []string {
	if a.setHome() != nil { // completion does not run what commands run first
		return nil
	}
	silenceLibraries()
	hub, err := a.hub()
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

func (a *app) completeContexts(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
	if a.setHome() != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return a.target().Contexts(), cobra.ShellCompDirectiveNoFileComp
}

// completePlacementRef completes NAMESPACE/NAME of a placement.
func (a *app) completePlacementRef(command *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
	return a.offer(command.Context(), func(ctx context.Context, hub *hubapi.Hub) ([]string, error) {
		list, err := hub.Placements(ctx, "")
		var refs []string
		for i := range list.Items {
			refs = append(refs, list.Items[i].Namespace+"/"+list.Items[i].Name)
		}
		return refs, err
	}), cobra.ShellCompDirectiveNoFileComp
}
