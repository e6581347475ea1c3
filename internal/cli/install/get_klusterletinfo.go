package install

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/capstan-io/capstan/internal/cli/components"
	"github.com/capstan-io/capstan/internal/cli/options"
	"github.com/capstan-io/capstan/internal/cli/output"
)

const getKlusterletInfoLong = `Show what the agents in the cluster of the kubeconfig consist of: the operator, the Klusterlets with their conditions and the
Deployments that they run, with the replicas that are available out of those wanted, and the kinds that they need.`

// NewGetKlusterletInfoCommand is "capstan get klusterlet-info".
func NewGetKlusterletInfoCommand(global *options.Global) *cobra.Command {
	command := &cobra.Command{
		Use:               "klusterlet-info",
		Short:             "Show what the agents in a cluster consist of",
		Long:              getKlusterletInfoLong,
		Example:           "  capstan get klusterlet-info\n  capstan get klusterlet-info --context cluster1 -o json",
		Args:              options.FlagsOnly,
		ValidArgsFunction: cobra.NoFileCompletions,
	}
	format := options.AddOutputFlag(command, output.Tree, output.YAML, output.JSON)
	command.RunE = func(command *cobra.Command, _ []string) error {
		cluster, err := connect(global.InstallTarget())
		if err != nil {
			return err
		}
		ctx, cancel := global.Limited(command.Context())
		defer cancel()
		info, err := klusterletInfo(ctx, cluster)
		if err != nil {
			return err
		}
		return global.Print(format.Format(), output.KlusterletInfo(info))
	}
	return command
}

// klusterletInfo reads what the agents in a cluster consist of.
func klusterletInfo(ctx context.Context, cluster *Cluster) (*components.KlusterletInfo, error) {
	if _, err := cluster.Version(ctx); err != nil {
		return nil, err
	}
	return cluster.KlusterletInfo(ctx)
}
