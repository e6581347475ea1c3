package fleet

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/capstan-io/capstan/internal/cli/components"
	"github.com/capstan-io/capstan/internal/cli/hubapi"
	"github.com/capstan-io/capstan/internal/cli/options"
	"github.com/capstan-io/capstan/internal/cli/output"
)

const getHubInfoLong = `Show what the hub consists of: the operator, the controllers and webhooks of each component, the kinds they are for with the
versions that are served (a star marks the one that is stored), and feature gates.

In a Kubernetes cluster a controller is shown as its Deployment, with the replicas that are available out of those wanted, or
as the process that holds its Lease. A standalone hub runs everything in one process.`

// NewGetHubInfoCommand is "capstan get hub-info".
func NewGetHubInfoCommand(global *options.Global) *cobra.Command {
	command := &cobra.Command{
		Use:               "hub-info",
		Short:             "Show what the hub consists of",
		Long:              getHubInfoLong,
		Example:           "  capstan get hub-info\n  capstan get hub-info -o json",
		Args:              options.FlagsOnly,
		ValidArgsFunction: cobra.NoFileCompletions,
	}
	format := options.AddOutputFlag(command, output.Tree, output.YAML, output.JSON)
	command.RunE = func(command *cobra.Command, _ []string) error {
		return global.WithHub(command, func(ctx context.Context, hub *hubapi.Hub) error {
			if err := hub.CheckIsHub(ctx); err != nil {
				return err
			}
			info, err := components.OfHub(ctx, hub, global.Clock.Now())
			if err != nil {
				return err
			}
			return global.Print(format.Format(), output.HubInfo(info))
		})
	}
	return command
}
