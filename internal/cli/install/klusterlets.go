package install

import (
	"context"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	operatorv1 "github.com/capstan-io/capstan/api/operator/v1"
	"github.com/capstan-io/capstan/internal/cli/hubapi"
	"github.com/capstan-io/capstan/internal/cli/options"
)

// completeKlusterlets completes the names of the Klusterlets in the cluster that the flags are about.
func completeKlusterlets(global *options.Global) cobra.CompletionFunc {
	return func(command *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
		return global.CompleteFromCluster(command.Context(), func(ctx context.Context, hub *hubapi.Hub) ([]string, error) {
			found, err := clusterOf(hub).Klusterlets(ctx)
			return hubapi.ObjectNames(found), err
		}), cobra.ShellCompDirectiveNoFileComp
	}
}

// hubOfAgent is the address of the hub that an agent has joined, as far as its namespace has that.
func hubOfAgent(ctx context.Context, in *Cluster, klusterlet *operatorv1.Klusterlet) (string, error) {
	hubs, err := in.HubsOfAgent(ctx, klusterlet)
	if err != nil || len(hubs) == 0 {
		return "", err
	}
	return hubs[0].Server, nil
}

// knownNameOf is ClusterNameOf for a Klusterlet among others. Who may not read in its namespace knows no name that its agent has made.
func (c *Cluster) knownNameOf(ctx context.Context, klusterlet *operatorv1.Klusterlet) (string, error) {
	name, err := c.ClusterNameOf(ctx, klusterlet)
	if apierrors.IsForbidden(err) {
		return "", nil
	}
	return name, err
}

// flagNames are the names of a command's own flags.
func flagNames(command *cobra.Command) []string {
	var names []string
	command.Flags().VisitAll(func(flag *pflag.Flag) { names = append(names, flag.Name) })
	return names
}
