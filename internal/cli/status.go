package cli

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/capstan-io/capstan/internal/cli/output"
	"github.com/capstan-io/capstan/internal/cli/playground"
)

func (a *app) statusCommand() *cobra.Command {
	command := &cobra.Command{
		Use:   "status",
		Short: "Show what runs on this machine",
		Long: "Show the processes that \"capstan up\" and \"capstan join --local\" have started, the clusters and the works.\n\n" +
			"The exit code is 0 if everything runs, else 1.",
		Args: flagsOnly,
	}
	format := addOutputFlag(command, output.Table, output.YAML, output.JSON)
	command.RunE = func(command *cobra.Command, _ []string) error {
		ctx, cancel := a.limited(command.Context())
		defer cancel()
		status, err := a.home.Status(ctx)
		if err != nil {
			return err
		}
		if format.Format() != output.Table {
			if err := a.print(format.Format(), output.View{Object: status}); err != nil {
				return err
			}
		} else if err := a.printStatus(status); err != nil {
			return err
		}
		return verdict(status)
	}
	return command
}

func (a *app) printStatus(status playground.Status) error {
	if !status.Exists() {
		return nil
	}
	grids := []output.Grid{output.PlaygroundProcesses(status, a.clock.Now())}
	if len(status.Clusters) > 0 {
		grids = append(grids, output.PlaygroundClusters(status))
	}
	if len(status.Works) > 0 {
		grids = append(grids, output.PlaygroundWorks(status))
	}
	for i, grid := range grids {
		if i > 0 {
			a.say("")
		}
		if err := output.StyleOf(a.out).WriteGrid(a.out, grid); err != nil {
			return err
		}
	}
	return nil
}

// verdict is an error when something that should run does not.
func verdict(status playground.Status) error {
	switch down := status.Down(); {
	case !status.Exists():
		return fmt.Errorf("there is no playground in %s: \"capstan up\" makes one", status.Home)
	case len(down) == len(status.Processes):
		return fmt.Errorf("nothing runs: \"capstan up\" starts it")
	case len(down) > 0:
		return fmt.Errorf("not running: %s: the logs say why, \"capstan up\" starts what does not run", strings.Join(down, ", "))
	case status.Problem != "":
		return fmt.Errorf("the hub runs and cannot be asked: %s", status.Problem)
	}
	return nil
}
