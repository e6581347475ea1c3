// Package play has the commands of the playground on this machine: "capstan up", "capstan status" and "capstan down".
package play

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/capstan-io/capstan/internal/cli/options"
	"github.com/capstan-io/capstan/internal/cli/output"
	"github.com/capstan-io/capstan/internal/cli/playground"
)

const upLong = `Start a hub and clusters on this machine, as background processes, to play with.

The clusters are sandboxes: each is a real Kubernetes API with simulated nodes, on which pods become Running but containers
do not execute. They are named cluster1, cluster2 and so on; they are registered, accepted and joined, and each gets a
sample, the ManifestWork nginx.

Everything is kept in $CAPSTAN_HOME (default ~/.capstan). Running "up" again starts what does not run, with the identities
it had. A cluster that was deleted on the hub joins anew; one that was denied stays so. "capstan status" shows how it is,
"capstan down" stops it.`

// upCommand is one run of "capstan up".
type upCommand struct {
	*options.Global
	home     playground.Home
	clusters int
}

// NewUpCommand is "capstan up".
func NewUpCommand(global *options.Global) *cobra.Command {
	c := &upCommand{Global: global}
	command := &cobra.Command{
		Use:     "up",
		Short:   "Start a hub and clusters on this machine",
		Long:    upLong,
		Example: "  capstan up\n  capstan up --clusters 3   # now or later",
		Args:    options.FlagsOnly,
	}
	command.Flags().IntVar(&c.clusters, "clusters", 0, fmt.Sprintf("number of clusters (default: those there are, at first %d)",
		playground.DefaultClusters))
	command.RunE = func(command *cobra.Command, _ []string) error {
		if c.clusters < 0 || command.Flags().Changed("clusters") && c.clusters == 0 {
			return fmt.Errorf("--clusters: %d: must be at least 1", c.clusters)
		}
		var err error
		if c.home, err = playground.DefaultHome(); err != nil {
			return err
		}
		if c.DryRun {
			c.AnnounceDryRun(command)
			return c.showPlan()
		}
		return c.up(command.Context())
	}
	return command
}

func (c *upCommand) showPlan() error {
	if err := c.home.CheckOwner(); err != nil {
		return err
	}
	programs, err := c.home.Plan(c.clusters)
	if err != nil {
		return err
	}
	for _, program := range programs {
		c.Say("would start %s: %s", program.Name, output.ShellCommand(append([]string{program.Path}, program.Args...)...))
	}
	if len(programs) == 0 {
		c.Say("would start nothing: everything runs in %s", c.home.Dir)
	}
	return nil
}

func (c *upCommand) up(ctx context.Context) error {
	limited, cancel := c.Limited(ctx)
	defer cancel()
	progress := c.Progress()
	err := c.home.Up(limited, c.clusters, progress)
	progress.Close()
	switch {
	case err != nil && ctx.Err() != nil:
		return fmt.Errorf("%w\nWhat has been started goes on running: \"capstan up\" continues, \"capstan down\" stops it", context.Cause(ctx))
	case err != nil:
		return err
	}
	status, err := c.home.Status(ctx)
	if err != nil {
		return err
	}
	return c.printUp(status)
}

// printUp is the end of "up": how everything is, and what to do with it.
func (c *upCommand) printUp(status playground.Status) error {
	style := output.StyleOf(c.Out)
	c.Say("")
	if err := style.WriteGrid(c.Out, output.PlaygroundClusters(status)); err != nil {
		return err
	}
	c.Say("")
	if err := style.WriteGrid(c.Out, output.PlaygroundWorks(status)); err != nil {
		return err
	}
	cluster := status.Contexts[len(status.Contexts)-1]
	c.Say("\nThe kubeconfig is %s, with the contexts %s.", status.Kubeconfig, strings.Join(status.Contexts, ", "))
	c.Say("Try:\n")
	c.Say("  %s", c.commandForHub("get", "works"))
	c.Say("  %s", output.ShellCommand("kubectl", "--kubeconfig", status.Kubeconfig, "--context", cluster, "get", "deployments,pods"))
	c.Say("  kubectl create configmap demo --namespace default --from-literal=a=b --dry-run=client -o yaml | %s",
		c.commandForHub("create", "work", "demo", "-f", "-", "--clusters", cluster))
	return nil
}

// commandForHub is a command line of this program for the hub of the playground.
func (c *upCommand) commandForHub(words ...string) string {
	return output.ShellCommand(slices.Concat([]string{invocation()}, words, c.home.HubFlags())...)
}

// invocation is how the person who runs this program called it: the one of a fresh build is in no PATH.
func invocation() string {
	if called := os.Args[0]; filepath.Base(called) == "capstan" {
		return called
	}
	return "capstan"
}
