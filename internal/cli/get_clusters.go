package cli

import (
	"context"
	"fmt"
	"slices"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	clusterv1 "github.com/capstan-io/capstan/api/cluster/v1"
	"github.com/capstan-io/capstan/internal/cli/hubapi"
	"github.com/capstan-io/capstan/internal/cli/output"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
)

// getClustersCommand is "capstan get clusters".
func (a *app) getClustersCommand() *cobra.Command {
	var clusterSet string
	command := &cobra.Command{
		Use:     "clusters [NAME...]",
		Aliases: []string{"cluster", "managedclusters", "managedcluster", "mcl"},
		Short:   "Show the clusters of the hub",
		Example: "  capstan get clusters\n  capstan get clusters -o table\n  capstan get clusters cluster1 -o yaml",
	}
	command.Flags().StringVar(&clusterSet, "clusterset", "", "only the clusters whose label names this set")
	format := addOutputFlag(command, output.Tree, output.Table, output.YAML, output.JSON, output.Name)
	complete(command, "clusterset", a.completeClusterSets)
	command.ValidArgsFunction = a.completeClusters
	command.RunE = func(command *cobra.Command, names []string) error {
		return a.withHub(command, func(ctx context.Context, hub *hubapi.Hub) error {
			selector := ""
			if clusterSet != "" {
				selector = fleet.LabelClusterSet + "=" + clusterSet
			}
			if len(names) == 1 && selector == "" {
				cluster, err := hub.Cluster(ctx, names[0])
				if err != nil {
					return err
				}
				return a.print(format.Format(), output.Clusters(cluster, []clusterv1.ManagedCluster{*cluster}))
			}
			list, err := hub.Clusters(ctx, selector)
			if err != nil {
				return err
			}
			if list.Items, err = keepNamed(list.Items, names, "cluster", "capstan get clusters"); err != nil {
				return err
			}
			switch {
			case len(list.Items) > 0:
			case clusterSet != "":
				a.note("No cluster is in the set %q: the label %s of a cluster names its set.", clusterSet, fleet.LabelClusterSet)
			default:
				a.note("No clusters. \"capstan get token\" prints the command with which one joins this hub, %s.", hub.Server)
			}
			return a.print(format.Format(), output.Clusters(list, list.Items))
		})
	}
	return command
}

// keepNamed narrows a list to the names that were asked for, all of them if there are none. One that is missing is an
// error, which names the command that lists those there are.
func keepNamed[T any, P interface {
	*T
	metav1.Object
}](items []T, names []string, kind, list string) ([]T, error) {
	if len(names) == 0 {
		return items, nil
	}
	for _, name := range names {
		if !slices.ContainsFunc(items, func(item T) bool { return P(&item).GetName() == name }) {
			return nil, fmt.Errorf("%s %q is not there: %q lists those that are", kind, name, list)
		}
	}
	return slices.DeleteFunc(items, func(item T) bool { return !slices.Contains(names, P(&item).GetName()) }), nil
}
