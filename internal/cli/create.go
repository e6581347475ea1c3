package cli

import "github.com/spf13/cobra"

func (a *app) createCommand() *cobra.Command {
	return parent("create", "Create a work on clusters", a.createWorkCommand())
}
