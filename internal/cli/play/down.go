package play

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/capstan-io/capstan/internal/cli/options"
	"github.com/capstan-io/capstan/internal/cli/playground"
)

const downLong = `Stop every process that "capstan up" and "capstan join --local" have started.

What they keep stays in $CAPSTAN_HOME (default ~/.capstan), so that "capstan up" goes on where they stopped. --purge removes
it: the hub, the clusters and everything in them are gone then. What else is in that folder stays, as do contexts of your own
in its kubeconfig.`

// downCommand is one run of "capstan down".
type downCommand struct {
	*options.Global
	home  playground.Home
	purge bool
}

// NewDownCommand is "capstan down".
func NewDownCommand(global *options.Global) *cobra.Command {
	c := &downCommand{Global: global}
	command := &cobra.Command{
		Use:   "down",
		Short: "Stop what runs on this machine",
		Long:  downLong,
		Args:  options.FlagsOnly,
	}
	command.Flags().BoolVar(&c.purge, "purge", false, "remove the data, too")
	command.RunE = func(command *cobra.Command, _ []string) error {
		var err error
		if c.home, err = playground.DefaultHome(); err != nil {
			return err
		}
		if c.DryRun {
			c.AnnounceDryRun(command)
		}
		exists, err := c.home.Exists()
		switch {
		case err != nil:
			return err
		case !exists:
			c.Say("There is no playground in %s.", c.home.Dir)
			return nil
		case c.DryRun:
			return c.showPlan()
		}
		return c.down(command.Context())
	}
	return command
}

func (c *downCommand) showPlan() error {
	running, err := c.home.Running()
	if err != nil {
		return err
	}
	for _, process := range running {
		c.Say("would stop %s, process %d", process.Name, process.PID)
	}
	if len(running) == 0 {
		c.Say("would stop nothing: nothing runs in %s", c.home.Dir)
	}
	if c.purge {
		for _, file := range c.home.Kept() {
			but := ""
			if file == c.home.Kubeconfig() {
				but = ", but for contexts of your own"
			}
			c.Say("would remove %s%s", file, but)
		}
	}
	return nil
}

func (c *downCommand) down(ctx context.Context) error {
	ctx, cancel := c.Limited(ctx)
	defer cancel()
	progress := c.Progress()
	stopped, err := c.home.Down(ctx, c.purge, progress)
	progress.Close()
	switch {
	case err != nil:
		return err
	case c.purge:
		c.Say("The playground in %s is gone.", c.home.Dir)
	case stopped == 0:
		c.Say("Nothing runs in %s.", c.home.Dir)
	case c.home.HasPlayground():
		c.Say("Stopped. The data is kept in %s: \"capstan up\" goes on with it, \"capstan down --purge\" removes it.", c.home.Dir)
	default: // "up" would make a playground, too
		c.Say("Stopped. The data is kept in %s: the \"capstan join --local\" of before starts an agent again, \"capstan down --purge\" removes it.",
			c.home.Dir)
	}
	return nil
}
