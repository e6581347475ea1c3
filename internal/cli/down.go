package cli

import (
	"github.com/spf13/cobra"
)

const downLong = `Stop every process that "capstan up" and "capstan join --local" have started.

What they keep stays in $CAPSTAN_HOME (default ~/.capstan), so that "capstan up" goes on where they stopped. --purge removes
it: the hub, the clusters and everything in them are gone then.`

func (a *app) downCommand() *cobra.Command {
	var purge bool
	command := &cobra.Command{
		Use:   "down",
		Short: "Stop what runs on this machine",
		Long:  downLong,
		Args:  flagsOnly,
	}
	command.Flags().BoolVar(&purge, "purge", false, "remove the data, too")
	command.RunE = func(command *cobra.Command, _ []string) error {
		if a.dryRun {
			a.announceDryRun(command)
			status, err := a.home.Status(command.Context())
			for _, process := range status.Processes {
				if process.Running {
					a.say("would stop %s, process %d", process.Name, process.PID)
				}
			}
			if purge {
				a.say("would remove the data in %s", a.home.Dir)
			}
			return err
		}
		ctx, cancel := a.limited(command.Context())
		defer cancel()
		progress := a.progress()
		stopped, err := a.home.Down(ctx, purge, progress)
		progress.Close()
		switch {
		case err != nil:
			return err
		case purge:
			a.say("The playground in %s is gone.", a.home.Dir)
		case stopped == 0:
			a.say("Nothing runs in %s.", a.home.Dir)
		default:
			a.say("Stopped. The data is kept in %s: \"capstan up\" goes on with it, \"capstan down --purge\" removes it.", a.home.Dir)
		}
		return nil
	}
	return command
}
