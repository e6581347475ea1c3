package cli

import (
	"context"

	"github.com/spf13/cobra"
)

const downLong = `Stop every process that "capstan up" and "capstan join --local" have started.

What they keep stays in $CAPSTAN_HOME (default ~/.capstan), so that "capstan up" goes on where they stopped. --purge removes
it: the hub, the clusters and everything in them are gone then.`

// downCommand is one run of "capstan down".
type downCommand struct {
	*app
	purge bool
}

// newDownCommand is "capstan down".
func newDownCommand(global *app) *cobra.Command {
	c := &downCommand{app: global}
	command := &cobra.Command{
		Use:   "down",
		Short: "Stop what runs on this machine",
		Long:  downLong,
		Args:  flagsOnly,
	}
	command.Flags().BoolVar(&c.purge, "purge", false, "remove the data, too")
	command.RunE = func(command *cobra.Command, _ []string) error {
		if c.dryRun {
			c.announceDryRun(command)
			return c.showPlan(command.Context())
		}
		return c.down(command.Context())
	}
	return command
}

func (c *downCommand) showPlan(ctx context.Context) error {
	status, err := c.home.Status(ctx)
	for _, process := range status.Processes {
		if process.Running {
			c.say("would stop %s, process %d", process.Name, process.PID)
		}
	}
	if c.purge {
		c.say("would remove the data in %s", c.home.Dir)
	}
	return err
}

func (c *downCommand) down(ctx context.Context) error {
	ctx, cancel := c.limited(ctx)
	defer cancel()
	progress := c.progress()
	stopped, err := c.home.Down(ctx, c.purge, progress)
	progress.Close()
	switch {
	case err != nil:
		return err
	case c.purge:
		c.say("The playground in %s is gone.", c.home.Dir)
	case stopped == 0:
		c.say("Nothing runs in %s.", c.home.Dir)
	default:
		c.say("Stopped. The data is kept in %s: \"capstan up\" goes on with it, \"capstan down --purge\" removes it.", c.home.Dir)
	}
	return nil
}
