// Command capstan-charts renders, installs and uninstalls Helm charts on a hub, for "capstan install hub-addon". It is a program
// of its own because Helm's library would make every command of capstan several times slower to start.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/capstan-io/capstan/internal/charts"
	"github.com/capstan-io/capstan/internal/version"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := newCommand().ExecuteContext(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func newCommand() *cobra.Command {
	root := &cobra.Command{
		Use:   "capstan-charts",
		Short: "Install Helm charts on a hub",
		Long: `Install Helm charts on a hub, the one of a context in the kubeconfig of KUBECONFIG.

"capstan install hub-addon" and "capstan uninstall hub-addon" run this program. Releases are kept as Helm keeps them, so
that "helm list" shows them.`,
		Version:       version.String(),
		SilenceErrors: true,
		SilenceUsage:  true,
	}
	root.AddCommand(templateCommand(), installCommand(), uninstallCommand())
	return root
}

// target is where a release is, and how long what is done to it may take.
type target struct {
	context, namespace string
	timeout            time.Duration
}

func (t *target) add(flags *pflag.FlagSet) {
	flags.StringVar(&t.context, "kube-context", "", "context of the kubeconfig (default: its current one)")
	flags.StringVarP(&t.namespace, "namespace", "n", "default", "namespace of the release")
	flags.DurationVar(&t.timeout, "timeout", 5*time.Minute, "how long it may take, hooks of the chart included")
}

func (t *target) releases(ctx context.Context) (*charts.Releases, context.Context, context.CancelFunc, error) {
	releases, err := charts.In(t.context, t.namespace)
	if err != nil {
		return nil, nil, nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, t.timeout)
	return releases, ctx, cancel, nil
}

// chart is the chart of a repository.
type chart struct{ repository, version string }

func (c *chart) add(flags *pflag.FlagSet) {
	flags.StringVar(&c.repository, "repo", "", "URL of the Helm repository")
	flags.StringVar(&c.version, "version", "", "version of the chart (default: the newest)")
}

func templateCommand() *cobra.Command {
	var to target
	var from chart
	command := &cobra.Command{
		Use: "template RELEASE CHART", Short: "Show what install would apply", Args: cobra.ExactArgs(2),
		RunE: func(command *cobra.Command, args []string) error {
			loaded, err := charts.Load(charts.Reference{Repository: from.repository, Name: args[1], Version: from.version})
			if err != nil {
				return err
			}
			releases, ctx, cancel, err := to.releases(command.Context())
			if err != nil {
				return err
			}
			defer cancel()
			manifests, err := releases.Render(ctx, args[0], loaded)
			if err != nil {
				return err
			}
			_, err = fmt.Fprint(command.OutOrStdout(), manifests)
			return err
		},
	}
	to.add(command.Flags())
	from.add(command.Flags())
	return command
}

func installCommand() *cobra.Command {
	var to target
	var from chart
	var createNamespace bool
	command := &cobra.Command{
		Use: "install RELEASE CHART", Short: "Install a chart, or upgrade the release there is with its values", Args: cobra.ExactArgs(2),
		RunE: func(command *cobra.Command, args []string) error {
			loaded, err := charts.Load(charts.Reference{Repository: from.repository, Name: args[1], Version: from.version})
			if err != nil {
				return err
			}
			releases, ctx, cancel, err := to.releases(command.Context())
			if err != nil {
				return err
			}
			defer cancel()
			return releases.Install(ctx, args[0], loaded, createNamespace)
		},
	}
	to.add(command.Flags())
	from.add(command.Flags())
	command.Flags().BoolVar(&createNamespace, "create-namespace", false, "create the namespace if it is missing")
	return command
}

func uninstallCommand() *cobra.Command {
	var to target
	command := &cobra.Command{
		Use: "uninstall RELEASE", Short: "Delete a release and what it consists of", Args: cobra.ExactArgs(1),
		RunE: func(command *cobra.Command, args []string) error {
			releases, ctx, cancel, err := to.releases(command.Context())
			if err != nil {
				return err
			}
			defer cancel()
			return releases.Uninstall(ctx, args[0])
		},
	}
	to.add(command.Flags())
	return command
}
