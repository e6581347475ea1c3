// Command capstan-charts renders, installs and uninstalls Helm charts, for "capstan install hub-addon". It is a program of its own because
// Helm's library would make every command of capstan several times slower to start.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	chart "helm.sh/helm/v4/pkg/chart/v2"

	"github.com/capstan-io/capstan/internal/charts"
	"github.com/capstan-io/capstan/internal/program"
	"github.com/capstan-io/capstan/internal/reference"
)

func main() {
	if err := newCommand().ExecuteContext(program.Context()); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func newCommand() *cobra.Command {
	root := &cobra.Command{
		Use:   "capstan-charts",
		Short: "Render and install Helm charts",
		Long: `Render Helm charts, and install them in the cluster of a context in the kubeconfig of KUBECONFIG.

"capstan install hub-addon" and "capstan uninstall hub-addon" install and uninstall charts with this program. Releases are kept as Helm
keeps them, so that "helm list" shows them.`,
		Version:       program.Version(),
		SilenceErrors: true,
		SilenceUsage:  true,
	}
	root.AddCommand(templateCommand(), installCommand(), uninstallCommand(), reference.NewCommand())
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

// do does something to the releases there.
func (t *target) do(ctx context.Context, what func(context.Context, *charts.Releases) error) error {
	releases, err := charts.In(t.context, t.namespace)
	if err != nil {
		return err
	}
	if err := context.Cause(ctx); err != nil { // while the chart was loaded
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, t.timeout)
	defer cancel()
	err = what(ctx, releases)
	if err != nil && errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return fmt.Errorf("%w: not done after %s (--timeout)", err, t.timeout)
	}
	return err
}

// source is where a chart comes from.
type source struct{ repository, caFile, version string }

func (s *source) add(command *cobra.Command) {
	command.Flags().StringVar(&s.repository, "repository", "", "URL of the Helm repository (required)")
	command.Flags().StringVar(&s.caFile, "repository-ca-file", "",
		"PEM certificates to verify the Helm repository with (default: those of this machine)")
	command.Flags().StringVar(&s.version, "version", "", "version of the chart in the repository (default: the newest)")
	if err := command.MarkFlagRequired("repository"); err != nil {
		panic(err) // there is no such flag
	}
}

func (s *source) load(name string) (*chart.Chart, error) {
	return charts.Load(charts.Reference{Repository: s.repository, Name: name, Version: s.version, CAFile: s.caFile})
}

func templateCommand() *cobra.Command {
	var to target
	var from source
	command := &cobra.Command{
		Use: "template RELEASE CHART", Short: "Show what install would apply", Args: cobra.ExactArgs(2),
		RunE: func(command *cobra.Command, args []string) error {
			loaded, err := from.load(args[1])
			if err != nil {
				return err
			}
			return to.do(command.Context(), func(ctx context.Context, releases *charts.Releases) error {
				manifests, err := releases.Render(ctx, args[0], loaded)
				if err != nil {
					return err
				}
				_, err = fmt.Fprint(command.OutOrStdout(), manifests)
				return err
			})
		},
	}
	to.add(command.Flags())
	from.add(command)
	return command
}

func installCommand() *cobra.Command {
	var to target
	var from source
	var createNamespace bool
	command := &cobra.Command{
		Use: "install RELEASE CHART", Short: "Install a chart, or upgrade the release there is with its values", Args: cobra.ExactArgs(2),
		RunE: func(command *cobra.Command, args []string) error {
			loaded, err := from.load(args[1])
			if err != nil {
				return err
			}
			return to.do(command.Context(), func(ctx context.Context, releases *charts.Releases) error {
				return releases.Install(ctx, args[0], loaded, createNamespace)
			})
		},
	}
	to.add(command.Flags())
	from.add(command)
	command.Flags().BoolVar(&createNamespace, "create-namespace", false, "create the namespace if it is missing")
	return command
}

func uninstallCommand() *cobra.Command {
	var to target
	command := &cobra.Command{
		Use: "uninstall RELEASE", Short: "Delete a release and what it consists of", Args: cobra.ExactArgs(1),
		RunE: func(command *cobra.Command, args []string) error {
			return to.do(command.Context(), func(ctx context.Context, releases *charts.Releases) error { return releases.Uninstall(ctx, args[0]) })
		},
	}
	to.add(command.Flags())
	return command
}
