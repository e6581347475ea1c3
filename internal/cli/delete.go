package cli

import "github.com/spf13/cobra"

func (a *app) deleteCommand() *cobra.Command {
	return parent("delete", "Delete cluster sets, works, or what clusters can join with",
		a.deleteClusterSetCommand(), a.deleteTokenCommand(), a.deleteWorkCommand())
}
