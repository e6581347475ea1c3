package cli

import "github.com/spf13/cobra"

func (a *app) createCommand() *cobra.Command {
	return parent("create", "Create cluster sets, a placement, or a work on clusters",
		a.createClusterSetCommand(), a.createPlacementCommand(), a.createWorkCommand())
}
