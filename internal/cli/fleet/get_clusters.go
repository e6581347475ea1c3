package fleet

import (
	"context"

	"github.com/spf13/cobra"

	clusterv1 "github.com/capstan-io/capstan/api/cluster/v1"
	"github.com/capstan-io/capstan/internal/cli/hubapi"
	"github.com/capstan-io/capstan/internal/cli/managedclusters"
	"github.com/capstan-io/capstan/internal/cli/options"
	"github.com/capstan-io/capstan/internal/cli/output"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
)

// clusterList is one run of "capstan get clusters".
type clusterList struct {
	*options.Global
	clusterSet string
	format     *output.Choice
}

// NewGetClustersCommand is "capstan get clusters".
func NewGetClustersCommand(global *options.Global) *cobra.Command {
	l := &clusterList{Global: global}
	command := &cobra.Command{
		Use:     "clusters [NAME...]",
		Aliases: []string{"cluster", "managedclusters", "managedcluster", "mcl"},
		Short:   "Show the clusters of the hub",
		Example: "  capstan get clusters\n  capstan get clusters -o table\n  capstan get clusters cluster1 -o yaml",
	}
	command.Flags().StringVar(&l.clusterSet, "clusterset", "", "only the clusters whose label names this set")
	l.format = options.AddOutputFlag(command, output.Tree, output.Table, output.YAML, output.JSON, output.Name)
	options.Complete(command, "clusterset", l.CompleteClusterSets)
	command.ValidArgsFunction = l.CompleteClusters
	command.RunE = func(command *cobra.Command, names []string) error {
		return l.WithHub(command, func(ctx context.Context, hub *hubapi.Hub) error { return l.show(ctx, hub, names) })
	}
	return command
}

func (l *clusterList) show(ctx context.Context, hub *hubapi.Hub, names []string) error {
	selector := ""
	if l.clusterSet != "" {
		selector = fleet.LabelClusterSet + "=" + l.clusterSet
	}
	if len(names) == 1 && selector == "" {
		cluster, err := managedclusters.Get(ctx, hub, names[0])
		if err != nil {
			return err
		}
		return l.Print(l.format.Format(), output.Clusters(cluster, []clusterv1.ManagedCluster{*cluster}))
	}
	list, err := managedclusters.List(ctx, hub, selector)
	if err != nil {
		return err
	}
	if list.Items, err = options.FilterByName(list.Items, names, "cluster", "capstan get clusters"); err != nil {
		return err
	}
	switch {
	case len(list.Items) > 0:
	case l.clusterSet != "":
		l.Note("No cluster is in the set %q: the label %s of a cluster names its set.", l.clusterSet, fleet.LabelClusterSet)
	default:
		l.Note("No clusters. \"capstan get token\" prints the command with which one joins this hub, %s.", hub.Server)
	}
	return l.Print(l.format.Format(), output.Clusters(list, list.Items))
}
