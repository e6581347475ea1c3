package cli

import "github.com/spf13/cobra"

func (a *app) createCommand() *cobra.Command {
	return parent("create", "Create cluster sets, a placement, a work on clusters, or an example",
		a.createClusterSetCommand(), a.createPlacementCommand(), a.createSampleAppCommand(), a.createWorkCommand())
}
