package cli

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
)

// completionTimeout is how long a shell waits for the hub before it completes nothing.
const completionTimeout = 3 * time.Second

// clusterFlags choose clusters (CA-03): --cluster names one, --clusters several; together they mean all of them.
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
func (f *clusterFlags) names() []string {
	var names []string
	for _, name := range append([]string{f.one}, f.many...) {
		if name = strings.TrimSpace(name); name != "" && !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return names
}

// required are the chosen clusters; none is an error.
func (f *clusterFlags) required() ([]string, error) {
	names := f.names()
	if len(names) == 0 {
		return nil, errors.New("either --cluster or --clusters needs to be set; \"capstan get clusters\" lists those there are")
	}
	return names, nil
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

// completeClusterList completes the last name of a list and offers no name twice.
func (a *app) completeClusterList(command *cobra.Command, _ []string, typed string) ([]string, cobra.ShellCompDirective) {
	listed, prefix := []string{}, ""
	if last := strings.LastIndex(typed, ","); last >= 0 {
		listed, prefix = strings.Split(typed[:last], ","), typed[:last+1]
	}
	var offers []string
	for _, name := range a.clusterNames(command.Context()) {
		if !slices.Contains(listed, name) {
			offers = append(offers, prefix+name)
		}
	}
	return offers, cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveNoSpace
}

// clusterNames asks the hub; a hub that does not answer has no names to offer.
func (a *app) clusterNames(ctx context.Context) []string {
	if a.setHome() != nil { // completion does not run what commands run first
		return nil
	}
	hub, err := a.hub()
	if err != nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, completionTimeout)
	defer cancel()
	list, err := hub.Clusters(ctx, "")
	if err != nil {
		return nil
	}
	names := make([]string, len(list.Items))
	for i := range list.Items {
		names[i] = list.Items[i].Name
	}
	return names
}

func (a *app) completeContexts(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
	if a.setHome() != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return a.target().Contexts(), cobra.ShellCompDirectiveNoFileComp
}
