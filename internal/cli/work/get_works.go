package work

import (
	"context"
	"fmt"
	"slices"

	"github.com/spf13/cobra"

	workv1 "github.com/capstan-io/capstan/api/work/v1"
	"github.com/capstan-io/capstan/internal/cli/hubapi"
	"github.com/capstan-io/capstan/internal/cli/managedclusters"
	"github.com/capstan-io/capstan/internal/cli/manifestworks"
	"github.com/capstan-io/capstan/internal/cli/options"
	"github.com/capstan-io/capstan/internal/cli/output"
)

// workList is one run of "capstan get works".
type workList struct {
	*options.Global
	clusters options.ClusterFlags
	format   *output.Choice
}

// NewGetCommand is "capstan get works".
func NewGetCommand(global *options.Global) *cobra.Command {
	l := &workList{Global: global}
	command := &cobra.Command{
		Use:     "works [NAME]",
		Aliases: []string{"work", "manifestworks", "manifestwork"},
		Short:   "Show the ManifestWorks of the hub, and whether they are applied and available",
		Example: "  capstan get works\n  capstan get works nginx --clusters cluster1,cluster2 -o table",
		Args:    cobra.MaximumNArgs(1),
	}
	l.clusters.Add(global, command)
	l.format = options.AddOutputFlag(command, output.Tree, output.Table, output.YAML, output.JSON, output.Name)
	command.ValidArgsFunction = completeWork(global, &l.clusters)
	command.RunE = func(command *cobra.Command, args []string) error {
		chosen, err := l.clusters.Names()
		if err != nil {
			return err
		}
		return l.WithHub(command, func(ctx context.Context, hub *hubapi.Hub) error { return l.show(ctx, hub, args, chosen) })
	}
	return command
}

func (l *workList) show(ctx context.Context, hub *hubapi.Hub, names, clusters []string) error {
	if len(names) == 1 && len(clusters) == 1 {
		work, err := manifestworks.Get(ctx, hub, clusters[0], names[0])
		if err != nil {
			return err
		}
		return l.Print(l.format.Format(), output.Works(work, []workv1.ManifestWork{*work}))
	}
	list, err := listWorks(ctx, hub, clusters)
	if err != nil {
		return err
	}
	if len(names) == 1 {
		list.Items = slices.DeleteFunc(list.Items, func(w workv1.ManifestWork) bool { return w.Name != names[0] })
		if len(list.Items) == 0 {
			return fmt.Errorf("work %q is on none of these clusters: \"capstan get works\" lists the works there are", names[0])
		}
	}
	if len(list.Items) == 0 {
		l.Note("No works. \"capstan create work NAME -f FILE --clusters CLUSTER\" makes one.")
	}
	return l.Print(l.format.Format(), output.Works(list, list.Items))
}

// listWorks lists the works of some clusters, of all of them if none is named.
func listWorks(ctx context.Context, hub *hubapi.Hub, clusters []string) (*workv1.ManifestWorkList, error) {
	return managedclusters.ListIn(ctx, hub, clusters, func(cluster string) (*workv1.ManifestWorkList, error) {
		return manifestworks.List(ctx, hub, cluster, "")
	}, func(list *workv1.ManifestWorkList) *[]workv1.ManifestWork { return &list.Items })
}

// completeWork completes the name of a work of the chosen clusters.
func completeWork(global *options.Global, clusters *options.ClusterFlags) cobra.CompletionFunc {
	return func(command *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
		if len(args) > 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return global.CompleteFromHub(command.Context(), func(ctx context.Context, hub *hubapi.Hub) ([]string, error) {
			chosen, err := clusters.Names()
			if err != nil {
				return nil, err
			}
			list, err := listWorks(ctx, hub, chosen)
			if err != nil {
				return nil, err
			}
			names := hubapi.ObjectNames(list.Items)
			slices.Sort(names)
			return slices.Compact(names), nil
		}), cobra.ShellCompDirectiveNoFileComp
	}
}
