package fleet

import (
	"context"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	clusterv1beta2 "github.com/capstan-io/capstan/api/cluster/v1beta2"
	"github.com/capstan-io/capstan/internal/cli/hubapi"
	"github.com/capstan-io/capstan/internal/cli/managedclusters"
	"github.com/capstan-io/capstan/internal/cli/managedclustersets"
	"github.com/capstan-io/capstan/internal/cli/options"
	"github.com/capstan-io/capstan/internal/cli/output"
)

// clusterSetList is one run of "capstan get clustersets".
type clusterSetList struct {
	*options.Global
	format *output.Choice
}

// NewGetClusterSetsCommand is "capstan get clustersets".
func NewGetClusterSetsCommand(global *options.Global) *cobra.Command {
	l := &clusterSetList{Global: global}
	command := &cobra.Command{
		Use:               "clustersets [NAME...]",
		Aliases:           []string{"clusterset", "managedclustersets", "managedclusterset", "mclsets", "mclset"},
		Short:             "Show the cluster sets of the hub, their clusters and the namespaces they are bound to",
		Example:           "  capstan get clustersets\n  capstan get clustersets -o table\n  capstan get clustersets prod -o yaml",
		ValidArgsFunction: l.CompleteClusterSets,
	}
	l.format = options.AddOutputFlag(command, output.Tree, output.Table, output.YAML, output.JSON, output.Name)
	command.RunE = func(command *cobra.Command, names []string) error {
		return l.WithHub(command, func(ctx context.Context, hub *hubapi.Hub) error { return l.show(ctx, hub, names) })
	}
	return command
}

func (l *clusterSetList) show(ctx context.Context, hub *hubapi.Hub, names []string) error {
	if len(names) == 1 {
		set, err := managedclustersets.Get(ctx, hub, names[0])
		if err != nil {
			return err
		}
		return l.printSets(ctx, hub, set, []clusterv1beta2.ManagedClusterSet{*set})
	}
	list, err := managedclustersets.List(ctx, hub)
	if err != nil {
		return err
	}
	if list.Items, err = options.FilterByName(list.Items, names, "cluster set", "capstan get clustersets"); err != nil {
		return err
	}
	if len(list.Items) == 0 {
		l.Note("No cluster sets. \"capstan create clusterset NAME\" makes one.")
	}
	return l.printSets(ctx, hub, list, list.Items)
}

// printSets reads what belongs to the sets only for the formats that show it.
func (l *clusterSetList) printSets(ctx context.Context, hub *hubapi.Hub, object any, sets []clusterv1beta2.ManagedClusterSet) error {
	var of output.ClusterSetContext
	format := l.format.Format()
	if len(sets) > 0 && (format == output.Tree || format == output.Table) {
		var err error
		if of, err = clusterSetContext(ctx, hub); err != nil {
			return err
		}
	}
	return l.Print(format, output.ClusterSets(object, sets, of))
}

// clusterSetContext reads the clusters and the bindings of the hub.
func clusterSetContext(ctx context.Context, hub *hubapi.Hub) (output.ClusterSetContext, error) {
	var of output.ClusterSetContext
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error {
		clusters, err := managedclusters.List(ctx, hub, "")
		of.Clusters = clusters.Items
		return err
	})
	group.Go(func() error {
		bindings, err := clusterSetBindings(ctx, hub)
		of.Bindings = bindings.Items
		return err
	})
	return of, group.Wait()
}

// clusterSetBindings lists the bindings of cluster sets in all namespaces.
func clusterSetBindings(ctx context.Context, hub *hubapi.Hub) (*clusterv1beta2.ManagedClusterSetBindingList, error) {
	list := &clusterv1beta2.ManagedClusterSetBindingList{}
	err := hub.Client(managedclustersets.Bindings).List(ctx, metav1.ListOptions{}, list)
	return list, hub.Explain("list the bindings of cluster sets", err)
}
