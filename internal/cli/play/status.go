package play

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/capstan-io/capstan/internal/cli/options"
	"github.com/capstan-io/capstan/internal/cli/output"
	"github.com/capstan-io/capstan/internal/cli/playground"
)

// statusCommand is one run of "capstan status".
type statusCommand struct {
	*options.Global
	home   playground.Home
	format *output.Choice
}

// NewStatusCommand is "capstan status".
func NewStatusCommand(global *options.Global) *cobra.Command {
	c := &statusCommand{Global: global}
	command := &cobra.Command{
		Use:   "status",
		Short: "Show what runs on this machine",
		Long: "Show the processes that \"capstan up\" and \"capstan join --local\" have started, the clusters and the works.\n\n" +
			"The exit code is 0 if everything runs, else 1.",
		Args: options.FlagsOnly,
	}
	c.format = options.AddOutputFlag(command, output.Table, output.YAML, output.JSON)
	command.RunE = func(command *cobra.Command, _ []string) error {
		var err error
		if c.home, err = playground.DefaultHome(); err != nil {
			return err
		}
		ctx, cancel := c.Limited(command.Context())
		defer cancel()
		return c.show(ctx)
	}
	return command
}

func (c *statusCommand) show(ctx context.Context) error {
	status, err := c.home.Status(ctx)
	if err != nil {
		return err
	}
	if c.format.Format() != output.Table {
		if err := c.Print(c.format.Format(), output.View{Object: status}); err != nil {
			return err
		}
	} else if err := c.printStatus(status); err != nil {
		return err
	}
	return checkRunning(status)
}

func (c *statusCommand) printStatus(status playground.Status) error {
	if !status.Exists() {
		return nil
	}
	grids := []output.Grid{output.PlaygroundProcesses(status, c.Clock.Now())}
	if len(status.Clusters) > 0 {
		grids = append(grids, output.PlaygroundClusters(status))
	}
	if len(status.Works) > 0 {
		grids = append(grids, output.PlaygroundWorks(status))
	}
	for i, grid := range grids {
		if i > 0 {
			c.Say("")
		}
		if err := output.StyleOf(c.Out).WriteGrid(c.Out, grid); err != nil {
			return err
		}
	}
	return nil
}

// checkRunning is an error when something that should run does not.
func checkRunning(status playground.Status) error {
	switch down := status.Down(); {
	case !status.Exists():
		return fmt.Errorf("there is no playground in %s: \"capstan up\" makes one", status.Home)
	case len(down) > 0 && status.AgentsOnly(): // "up" would make a playground, too
		return fmt.Errorf("not running: %s: the \"capstan join --local\" of before starts an agent again", strings.Join(down, ", "))
	case len(down) == len(status.Processes):
		return fmt.Errorf("nothing runs: \"capstan up\" starts it")
	case len(down) > 0:
		return fmt.Errorf("not running: %s: the logs say why, \"capstan up\" starts what does not run", strings.Join(down, ", "))
	case status.Problem != "":
		return fmt.Errorf("the hub runs and cannot be asked: %s", status.Problem)
	}
	return nil
}
