// Package cli is the command line: the tree of its commands, and how it ends. What commands do is in a package for each thing
// that users do; what they share is in package options.
package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/capstan-io/capstan/internal/cli/addons"
	"github.com/capstan-io/capstan/internal/cli/fleet"
	"github.com/capstan-io/capstan/internal/cli/install"
	"github.com/capstan-io/capstan/internal/cli/options"
	"github.com/capstan-io/capstan/internal/cli/output"
	"github.com/capstan-io/capstan/internal/cli/play"
	"github.com/capstan-io/capstan/internal/cli/reach"
	"github.com/capstan-io/capstan/internal/cli/work"
	"github.com/capstan-io/capstan/internal/machinery/text"
	"github.com/capstan-io/capstan/internal/program"
	"github.com/capstan-io/capstan/internal/reference"
)

const rootLong = `Capstan manages many Kubernetes clusters from one hub, with the Open Cluster Management API.

"capstan up" starts a hub and two clusters to play with on this machine. The other commands work with any hub.
They find it with the first of these that there is:

  1. the flag --kubeconfig
  2. the environment variable KUBECONFIG
  3. the kubeconfig that "capstan up" writes, $CAPSTAN_HOME/kubeconfig (default ~/.capstan/kubeconfig)
  4. ~/.kube/config
  5. in a pod, its service account; not with --context

--context chooses a context; the third is passed over when it does not have it, and one that leads to different servers
in the third and the fourth is refused. Without the flag it is the current context, and the context "hub" of the third:
commands that change something on that hub say so if there is the fourth, too. Commands that install something in a
cluster, or take it out, pass over the third.`

// NewCommand returns the command line.
func NewCommand(in io.Reader, out, errOut io.Writer) *cobra.Command {
	return tree(options.New(in, out, errOut))
}

// tree is all commands.
func tree(global *options.Global) *cobra.Command {
	root := newRoot(global)
	addGroup(root, "playground", "A playground on this machine:",
		play.NewUpCommand(global),
		play.NewStatusCommand(global),
		play.NewDownCommand(global))
	addGroup(root, "registration", "Install a hub, and bring clusters to it:",
		install.NewInitCommand(global),
		install.NewJoinCommand(global),
		fleet.NewAcceptCommand(global),
		fleet.NewDenyCommand(global),
		install.NewUnjoinCommand(global),
		install.NewCleanCommand(global),
		options.Parent("upgrade", "Upgrade a hub or an agent in a cluster",
			install.NewUpgradeClusterManagerCommand(global),
			install.NewUpgradeKlusterletCommand(global)))
	addGroup(root, "hub", "Work with a hub:",
		reach.NewGetCommand(global, // RESOURCE of clusters
			addons.NewGetCommand(global),
			fleet.NewGetClustersCommand(global),
			fleet.NewGetClusterSetsCommand(global),
			fleet.NewGetHubInfoCommand(global),
			install.NewGetKlusterletInfoCommand(global),
			work.NewGetPlacementsCommand(global),
			work.NewGetCommand(global),
			fleet.NewGetTokenCommand(global)),
		options.Parent("explain", "Show why a placement selects the clusters it does",
			work.NewExplainPlacementCommand(global)),
		options.Parent("create", "Create cluster sets, a placement, a work on clusters, or an example",
			fleet.NewCreateClusterSetCommand(global),
			work.NewCreatePlacementCommand(global),
			work.NewCreateSampleAppCommand(global),
			work.NewCreateCommand(global)),
		options.Parent("diff", "Show what would change on clusters",
			work.NewDiffCommand(global)),
		options.Parent("delete", "Delete cluster sets, works, or what clusters can join with",
			fleet.NewDeleteClusterSetCommand(global),
			fleet.NewDeleteTokenCommand(global),
			work.NewDeleteCommand(global)),
		options.Parent("clusterset", "Put clusters into cluster sets, and bind the sets to namespaces",
			fleet.NewBindClusterSetCommand(global),
			fleet.NewSetClusterSetCommand(global),
			fleet.NewUnbindClusterSetCommand(global)),
		aliased("addons", options.Parent("addon", "Make add-ons of manifests, and deploy add-ons on clusters",
			addons.NewCreateCommand(global),
			addons.NewDisableCommand(global),
			addons.NewEnableCommand(global))),
		options.Parent("install", "Install the hub's side of add-ons",
			install.NewInstallHubAddOnCommand(global)),
		options.Parent("uninstall", "Uninstall the hub's side of add-ons",
			install.NewUninstallHubAddOnCommand(global)))
	addGroup(root, "reach", "Reach into clusters through the hub:",
		reach.NewAccessCommand(global),
		reach.NewKubeconfigCommand(global),
		reach.NewKubectlCommand(global),
		options.Parent("proxy", "See which clusters can be reached through the hub, and run kubectl there",
			reach.NewProxyHealthCommand(global),
			reach.NewProxyKubectlCommand(global)),
		reach.NewCredentialsCommand(global),
		reach.NewLogsCommand(global),
		reach.NewExecCommand(global),
		reach.NewPortForwardCommand(global),
		reach.NewCopyCommand(global))
	root.AddCommand(
		newConfigCommand(global),
		newOptionsCommand(global),
		newPluginCommand(global),
		newVersionCommand(global),
		reference.NewCommand())
	return root
}

// newRoot is "capstan".
func newRoot(global *options.Global) *cobra.Command {
	root := &cobra.Command{
		Use:               "capstan",
		Short:             "Manage many Kubernetes clusters from one hub",
		Long:              rootLong,
		SilenceUsage:      true,
		SilenceErrors:     true,
		Version:           program.Version(),
		Args:              options.KnownCommand,
		RunE:              func(command *cobra.Command, _ []string) error { return command.Help() },
		PersistentPreRunE: func(*cobra.Command, []string) error { return global.Start() },
	}
	root.SetIn(global.In)
	root.SetOut(global.Out)
	root.SetErr(global.ErrOut)
	root.CompletionOptions.HiddenDefaultCmd = false
	root.SetFlagErrorFunc(func(command *cobra.Command, err error) error {
		return fmt.Errorf("%w: \"%s --help\" lists the flags", err, command.CommandPath())
	})
	global.AddFlags(root)
	return root
}

// addGroup adds a group of commands to the root. The help lists groups in the order in which they are added.
func addGroup(root *cobra.Command, group, title string, commands ...*cobra.Command) {
	root.AddGroup(&cobra.Group{ID: group, Title: title})
	for _, command := range commands {
		command.GroupID = group
	}
	root.AddCommand(commands...)
}

// aliased gives a command another name.
func aliased(alias string, command *cobra.Command) *cobra.Command {
	command.Aliases = append(command.Aliases, alias)
	return command
}

// newOptionsCommand is "capstan options".
func newOptionsCommand(global *options.Global) *cobra.Command {
	return &cobra.Command{
		Use: "options", Short: "Show the flags that all commands have", Args: options.FlagsOnly, ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(command *cobra.Command, _ []string) error {
			global.Say("All commands have these flags:\n\n%s", strings.TrimRight(command.Root().PersistentFlags().FlagUsages(), "\n"))
			return nil
		},
	}
}

// Main runs the command line and returns the exit code: 0, 1 on failure, 130 when interrupted. Commands that compare return 1
// for a difference and 2 on failure.
func Main(ctx context.Context, args []string, in io.Reader, out, errOut io.Writer) int {
	return Run(ctx, options.New(in, out, errOut), args)
}

// Run is Main with what commands share, of which tests set the clock.
func Run(ctx context.Context, global *options.Global, args []string) int {
	root := tree(global) //nolint:contextcheck // commands get the context when they run
	if code, ran := runPlugin(root, args, global.In, global.Out, global.ErrOut); ran {
		return code
	}
	root.SetArgs(reach.SeparateKubectl(root, args))
	command, err := root.ExecuteContextC(ctx)
	var exit options.ExitError
	switch {
	case err == nil:
		return 0
	case errors.Is(err, options.ErrDiffers):
		return 1
	case errors.As(err, &exit):
		return exit.Code
	}
	fmt.Fprintln(global.ErrOut, output.StyleOf(global.ErrOut).Error("Error:"), text.Lines(dropRepeatedLines(err.Error())))
	if ctx.Err() != nil {
		return options.InterruptedCode
	}
	if _, compares := command.Annotations[options.ComparesAnnotation]; compares {
		return 2
	}
	return 1
}

// dropRepeatedLines keeps only the last of equal lines: what to do next is the same for much that goes wrong at once.
func dropRepeatedLines(message string) string {
	lines := strings.Split(message, "\n")
	var kept []string
	for i, line := range lines {
		if line == "" || !slices.Contains(lines[i+1:], line) {
			kept = append(kept, line)
		}
	}
	return strings.Join(kept, "\n")
}
