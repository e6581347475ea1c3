package cli

import (
	"context"
	"fmt"
	"slices"

	"github.com/spf13/cobra"

	workv1 "github.com/capstan-io/capstan/api/work/v1"
	"github.com/capstan-io/capstan/internal/cli/hubapi"
	"github.com/capstan-io/capstan/internal/cli/output"
)

// getWorksCommand is "capstan get works".
func (a *app) getWorksCommand() *cobra.Command {
	clusters := &clusterFlags{}
	command := &cobra.Command{
		Use:     "works [NAME]",
		Aliases: []string{"work", "manifestworks", "manifestwork"},
		Short:   "Show the ManifestWorks of the hub, and whether they are applied and available",
		Example: "  capstan get works\n  capstan get works nginx --clusters cluster1,cluster2 -o table",
		Args:    cobra.MaximumNArgs(1),
	}
	clusters.add(a, command)
	format := addOutputFlag(command, output.Tree, output.Table, output.YAML, output.JSON, output.Name)
	command.ValidArgsFunction = a.completeWork(clusters)
	command.RunE = func(command *cobra.Command, args []string) error {
		chosen, err := clusters.names()
		if err != nil {
			return err
		}
		return a.withHub(command, func(ctx context.Context, hub *hubapi.Hub) error {
			if len(args) == 1 && len(chosen) == 1 {
				work, err := hub.Work(ctx, chosen[0], args[0])
				if err != nil {
					return err
				}
				return a.print(format.Format(), output.Works(work, []workv1.ManifestWork{*work}))
			}
			list, err := listWorks(ctx, hub, chosen)
			if err != nil {
				return err
			}
			if len(args) == 1 {
				list.Items = slices.DeleteFunc(list.Items, func(w workv1.ManifestWork) bool { return w.Name != args[0] })
				if len(list.Items) == 0 {
					return fmt.Errorf("work %q is on none of these clusters: \"capstan get works\" lists the works there are", args[0])
				}
			}
			if len(list.Items) == 0 {
				a.note("No works. \"capstan create work NAME -f FILE --clusters CLUSTER\" makes one.")
			}
			return a.print(format.Format(), output.Works(list, list.Items))
		})
	}
	return command
}

// listWorks lists the works of some clusters, of all of them if none is named.
func listWorks(ctx context.Context, hub *hubapi.Hub, clusters []string) (*workv1.ManifestWorkList, error) {
	if len(clusters) == 0 {
		return hub.Works(ctx, "", "")
	}
	var all *workv1.ManifestWorkList
	for _, cluster := range clusters {
		list, err := hub.Works(ctx, cluster, "")
		if err != nil {
			return nil, err
		}
		if len(list.Items) == 0 { // the API does not tell a cluster without works from none
			if _, err := hub.Cluster(ctx, cluster); err != nil {
				return nil, err
			}
		}
		if all == nil {
			all = list
		} else {
			all.Items = append(all.Items, list.Items...)
		}
	}
	return all, nil
}
