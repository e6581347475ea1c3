package cli

import (
	"context"
	"fmt"
	"slices"

	"github.com/spf13/cobra"

	clusterv1beta1 "github.com/capstan-io/capstan/api/cluster/v1beta1"
	"github.com/capstan-io/capstan/internal/cli/hubapi"
	"github.com/capstan-io/capstan/internal/cli/output"
)

// getPlacementsCommand is "capstan get placements".
func (a *app) getPlacementsCommand() *cobra.Command {
	var namespace string
	command := &cobra.Command{
		Use:     "placements [NAME]",
		Aliases: []string{"placement"},
		Short:   "Show the placements of the hub, whether they are satisfied, and the clusters they select",
		Example: "  capstan get placements\n  capstan get placements web --namespace team-a -o yaml",
		Args:    cobra.MaximumNArgs(1),
	}
	command.Flags().StringVarP(&namespace, "namespace", "n", "", "namespace of the hub (default: all)")
	complete(command, "namespace", a.completeNamespaces)
	command.ValidArgsFunction = a.completePlacement(&namespace)
	format := addOutputFlag(command, output.Tree, output.Table, output.YAML, output.JSON, output.Name)
	command.RunE = func(command *cobra.Command, args []string) error {
		if namespace != "" {
			if err := checkNamespaceName("--namespace", namespace); err != nil {
				return err
			}
		}
		return a.withHub(command, func(ctx context.Context, hub *hubapi.Hub) error {
			if len(args) == 1 && namespace != "" {
				placement, err := hub.Placement(ctx, namespace, args[0])
				if err != nil {
					return err
				}
				return a.printPlacements(ctx, hub, format.Format(), placement, []clusterv1beta1.Placement{*placement}, namespace)
			}
			list, err := hub.Placements(ctx, namespace)
			if err != nil {
				return err
			}
			if len(args) == 1 {
				list.Items = slices.DeleteFunc(list.Items, func(p clusterv1beta1.Placement) bool { return p.Name != args[0] })
				if len(list.Items) == 0 {
					return fmt.Errorf("no namespace has a placement %q: \"capstan get placements\" lists those there are", args[0])
				}
			}
			if len(list.Items) == 0 {
				a.note("No placements. \"capstan create placement NAME --namespace NAMESPACE\" makes one.")
			}
			return a.printPlacements(ctx, hub, format.Format(), list, list.Items, namespace)
		})
	}
	return command
}

// printPlacements reads the decisions only for the formats that show them.
func (a *app) printPlacements(ctx context.Context, hub *hubapi.Hub, format output.Format, object any, placements []clusterv1beta1.Placement,
	namespace string) error {
	var decisions []clusterv1beta1.PlacementDecision
	if len(placements) > 0 && (format == output.Tree || format == output.Table) {
		list, err := hub.PlacementDecisions(ctx, namespace)
		if err != nil {
			return err
		}
		decisions = list.Items
	}
	return a.print(format, output.Placements(object, placements, decisions))
}

// completePlacement completes the name of a placement of a namespace, of any if that is empty.
func (a *app) completePlacement(namespace *string) cobra.CompletionFunc {
	return func(command *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
		if len(args) > 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return a.offer(command.Context(), func(ctx context.Context, hub *hubapi.Hub) ([]string, error) {
			list, err := hub.Placements(ctx, *namespace)
			var names []string
			for i := range list.Items {
				names = append(names, list.Items[i].Name)
			}
			slices.Sort(names)
			return slices.Compact(names), err
		}), cobra.ShellCompDirectiveNoFileComp
	}
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
