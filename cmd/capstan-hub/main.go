// Command capstan-hub is the hub: the standalone one with an API server of its own, or the hub's controllers alone
// against an existing Kubernetes API.
package main

import (
	"fmt"
	"os"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/client-go/rest"

	"github.com/capstan-io/capstan/internal/ocmcommands"
	"github.com/capstan-io/capstan/internal/program"
	"github.com/capstan-io/capstan/internal/reference"
)

func main() {
	program.TuneGC(gcPercent)
	// Cobra would offer the flags that Kubernetes libraries registered here.
	pflag.CommandLine = pflag.NewFlagSet(os.Args[0], pflag.ContinueOnError)
	// The API server warns its own clients, about deprecations for example; nobody reads that.
	rest.SetDefaultWarningHandler(rest.NoWarnings{})
	command, err := parseCommand(os.Args)
	if err == nil {
		err = command.ExecuteContext(program.Context())
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "Error:", err)
		os.Exit(1)
	}
}

// parseCommand returns the command for a command line, which may be one of Open Cluster Management.
func parseCommand(argv []string) (*cobra.Command, error) {
	args, err := ocmcommands.Arguments(ocmcommands.Hub, argv)
	if err != nil {
		return nil, err
	}
	command := newCommand()
	command.SetArgs(args)
	return command, nil
}

func newCommand() *cobra.Command {
	root := &cobra.Command{
		Use:   "capstan-hub",
		Short: "The hub of a fleet of Kubernetes clusters",
		Long: `The hub of a fleet of Kubernetes clusters: clusters register with it and pull their
work from it.

"capstan-hub server" needs nothing else: it is an API server, its storage and the
hub's controllers in one process. "capstan-hub controllers" runs the same controllers
against a Kubernetes API that is already there.`,
		Version:       program.Version(),
		SilenceErrors: true,
		SilenceUsage:  true,
	}
	root.AddCommand(newServerCommand(), newControllersCommand(), newServiceAccountsCommand(), newWebhooksCommand(), newOperatorCommand(),
		newGatewayCommand(), newGatewayCredentialsCommand(), newClusterProxyCommand(), newGRPCServerCommand(), newPlacementDebugCommand(),
		newBackupCommand(), newCheckBackupCommand(), newRestoreCommand(), reference.NewCommand())
	return root
}
