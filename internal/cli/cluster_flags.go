package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/capstan-io/capstan/internal/cli/hubapi"
)

// completionTimeout is how long a shell waits for the hub before it completes nothing.
const completionTimeout = 3 * time.Second

// clusterFlags choose clusters: --cluster names one, --clusters several; together they mean all of them.
type clusterFlags struct {
	one  string
	many []string
}

func (f *clusterFlags) add(a *app, command *cobra.Command) {
	command.Flags().StringVarP(&f.one, "cluster", "c", "", "name of a cluster")
	command.Flags().StringSliceVar(&f.many, "clusters", nil, "names of clusters, separated by commas")
	complete(command, "cluster", a.completeClusters)
	complete(command, "clusters", a.completeClusterList)
}

// names are the chosen clusters, each once, in the order they were given.
func (f *clusterFlags) names() ([]string, error) {
	var names []string
	for _, name := range append([]string{f.one}, f.many...) {
		if name = strings.TrimSpace(name); name == "" || slices.Contains(names, name) {
			continue
		}
		if err := checkClusterName("--clusters", name); err != nil {
			return nil, err
		}
		names = append(names, name)
	}
	return names, nil
}

// required are the chosen clusters; none is an error.
func (f *clusterFlags) required() ([]string, error) {
	names, err := f.names()
	if err == nil && len(names) == 0 {
		err = errors.New("either --cluster or --clusters needs to be set; \"capstan get clusters\" lists those there are")
	}
	return names, err
}

// checkClusterName says what is wrong with the name of a cluster: it is the name of a namespace on the hub, too.
func checkClusterName(flag, name string) error {
	if len(validation.IsDNS1123Label(name)) == 0 {
		return nil
	}
	return fmt.Errorf("%s: %q is no name of a cluster: small letters, digits and dashes, a letter or digit at both ends, and at most %d characters, such "+
		"as cluster1",
		flag, name, validation.DNS1123LabelMaxLength)
}

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

// completeRequesters completes the common names of agents that ask to be one of the chosen clusters.
func (a *app) completeRequesters(clusters *clusterFlags) cobra.CompletionFunc {
	return func(command *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
		return a.offer(command.Context(), func(ctx context.Context, hub *hubapi.Hub) ([]string, error) {
			chosen, err := clusters.names()
			var names []string
			for _, cluster := range chosen {
				requests, _, err := hub.JoinRequests(ctx, cluster, time.Time{})
				if err != nil {
					return nil, err
				}
				for _, request := range requests {
					if request.Pending {
						names = append(names, request.CommonName)
					}
				}
			}
			return names, err
		}), cobra.ShellCompDirectiveNoFileComp
	}
}

// completeWork completes the name of a work of the chosen clusters.
func (a *app) completeWork(clusters *clusterFlags) cobra.CompletionFunc {
	return func(command *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
		if len(args) > 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return a.offer(command.Context(), func(ctx context.Context, hub *hubapi.Hub) ([]string, error) {
			chosen, err := clusters.names()
			if err != nil {
				return nil, err
			}
			list, err := listWorks(ctx, hub, chosen)
			if err != nil {
				return nil, err
			}
			var names []string
			for i := range list.Items {
				names = append(names, list.Items[i].Name)
			}
			slices.Sort(names)
			return slices.Compact(names), nil
		}), cobra.ShellCompDirectiveNoFileComp
	}
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
