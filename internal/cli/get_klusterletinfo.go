package cli

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/capstan-io/capstan/internal/cli/install"
	"github.com/capstan-io/capstan/internal/cli/output"
)

const getKlusterletInfoLong = `Show what the agents in the cluster of the kubeconfig consist of: the operator, the Klusterlets with their conditions and the
Deployments that they run, with the replicas that are available out of those wanted, and the kinds that they need.`

// newGetKlusterletInfoCommand is "capstan get klusterlet-info".
func newGetKlusterletInfoCommand(global *app) *cobra.Command {
	command := &cobra.Command{
		Use:               "klusterlet-info",
		Short:             "Show what the agents in a cluster consist of",
		Long:              getKlusterletInfoLong,
		Example:           "  capstan get klusterlet-info\n  capstan get klusterlet-info --context cluster1 -o json",
		Args:              flagsOnly,
		ValidArgsFunction: cobra.NoFileCompletions,
	}
	format := addOutputFlag(command, output.Tree, output.YAML, output.JSON)
	command.RunE = func(command *cobra.Command, _ []string) error {
		cluster, err := install.Connect(global.installTarget())
		if err != nil {
			return err
		}
		ctx, cancel := global.limited(command.Context())
		defer cancel()
		info, err := klusterletInfo(ctx, cluster)
		if err != nil {
			return err
		}
		return global.print(format.Format(), output.KlusterletInfo(info))
	}
	return command
}

// klusterletInfo reads what the agents in a cluster consist of.
func klusterletInfo(ctx context.Context, cluster *install.Cluster) (*install.KlusterletInfo, error) {
	if _, err := cluster.Version(ctx); err != nil {
		return nil, err
	}
	return cluster.KlusterletInfo(ctx)
}
