package cli

import "github.com/spf13/cobra"

// proxyCommand is "capstan proxy".
func (a *app) proxyCommand() *cobra.Command {
	return parent("proxy", "See which clusters can be reached through the hub, and run kubectl there",
		a.proxyHealthCommand(), a.proxyKubectlCommand())
}
