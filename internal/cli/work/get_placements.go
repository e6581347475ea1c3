package work

import (
	"context"
	"fmt"
	"slices"

	"github.com/spf13/cobra"

	clusterv1beta1 "github.com/capstan-io/capstan/api/cluster/v1beta1"
	"github.com/capstan-io/capstan/internal/cli/hubapi"
	"github.com/capstan-io/capstan/internal/cli/options"
	"github.com/capstan-io/capstan/internal/cli/output"
	"github.com/capstan-io/capstan/internal/cli/placements"
)

// placementList is one run of "capstan get placements".
type placementList struct {
	*options.Global
	namespace string
	format    *output.Choice
}

// NewGetPlacementsCommand is "capstan get placements".
func NewGetPlacementsCommand(global *options.Global) *cobra.Command {
	l := &placementList{Global: global}
	command := &cobra.Command{
		Use:     "placements [NAME]",
		Aliases: []string{"placement"},
		Short:   "Show the placements of the hub, whether they are satisfied, and the clusters they select",
		Example: "  capstan get placements\n  capstan get placements web --namespace team-a -o yaml",
		Args:    cobra.MaximumNArgs(1),
	}
	command.Flags().StringVarP(&l.namespace, "namespace", "n", "", "namespace of the hub (default: all)")
	options.Complete(command, "namespace", l.CompleteNamespaces)
	command.ValidArgsFunction = completePlacement(global, &l.namespace)
	l.format = options.AddOutputFlag(command, output.Tree, output.Table, output.YAML, output.JSON, output.Name)
	command.RunE = func(command *cobra.Command, args []string) error {
		if l.namespace != "" {
			if err := options.CheckNamespaceName("--namespace", l.namespace); err != nil {
				return err
			}
		}
		return l.WithHub(command, func(ctx context.Context, hub *hubapi.Hub) error { return l.show(ctx, hub, args) })
	}
	return command
}

func (l *placementList) show(ctx context.Context, hub *hubapi.Hub, names []string) error {
	if len(names) == 1 && l.namespace != "" {
		placement, err := placements.Get(ctx, hub, l.namespace, names[0])
		if err != nil {
			return err
		}
		return l.printPlacements(ctx, hub, placement, []clusterv1beta1.Placement{*placement})
	}
	list, err := placements.List(ctx, hub, l.namespace)
	if err != nil {
		return err
	}
	if len(names) == 1 {
		list.Items = slices.DeleteFunc(list.Items, func(p clusterv1beta1.Placement) bool { return p.Name != names[0] })
		if len(list.Items) == 0 {
			return fmt.Errorf("no namespace has a placement %q: \"capstan get placements\" lists those there are", names[0])
		}
	}
	if len(list.Items) == 0 {
		l.Note("No placements. \"capstan create placement NAME --namespace NAMESPACE\" makes one.")
	}
	return l.printPlacements(ctx, hub, list, list.Items)
}

// printPlacements reads the decisions only for the formats that show them.
func (l *placementList) printPlacements(ctx context.Context, hub *hubapi.Hub, object any, shown []clusterv1beta1.Placement) error {
	format := l.format.Format()
	var decisions []clusterv1beta1.PlacementDecision
	if len(shown) > 0 && (format == output.Tree || format == output.Table) {
		list, err := placements.Decisions(ctx, hub, l.namespace)
		if err != nil {
			return err
		}
		decisions = list.Items
	}
	return l.Print(format, output.Placements(object, shown, decisions))
}

// completePlacement completes the name of a placement of a namespace, of any if that is empty.
func completePlacement(global *options.Global, namespace *string) cobra.CompletionFunc {
	return func(command *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
		if len(args) > 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return global.CompleteFromHub(command.Context(), func(ctx context.Context, hub *hubapi.Hub) ([]string, error) {
			list, err := placements.List(ctx, hub, *namespace)
			names := hubapi.ObjectNames(list.Items)
			slices.Sort(names)
			return slices.Compact(names), err
		}), cobra.ShellCompDirectiveNoFileComp
	}
}
