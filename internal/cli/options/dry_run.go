package options

import (
	"fmt"

	"github.com/spf13/cobra"
)

// The values of --dry-run where the clusters can try what would happen.
const (
	dryRunNone   = "none"
	dryRunClient = "client"
	dryRunServer = "server"
)

// DryRunFlag is --dry-run of commands that have two kinds of it. It takes the place of the global flag, whose values mean the
// same as client and none. It implements pflag.Value.
type DryRunFlag struct {
	value  string
	global *bool
}

// AddDryRunFlag adds --dry-run to a command.
func AddDryRunFlag(global *Global, command *cobra.Command) *DryRunFlag {
	f := &DryRunFlag{value: dryRunNone, global: &global.DryRun}
	command.Flags().Var(f, "dry-run", "do nothing but show what would be created (client), or what would change on the clusters (server)")
	command.Flags().Lookup("dry-run").NoOptDefVal = dryRunClient
	Complete(command, "dry-run", cobra.FixedCompletions([]string{dryRunClient, dryRunServer}, cobra.ShellCompDirectiveNoFileComp))
	return f
}

// OnClusters reports whether the clusters are to try it.
func (f *DryRunFlag) OnClusters() bool { return f.value == dryRunServer }

// String is the chosen kind.
func (f *DryRunFlag) String() string { return f.value }

// Type names the flag's values in the help.
func (f *DryRunFlag) Type() string { return dryRunClient + "|" + dryRunServer }

// Set chooses a kind.
func (f *DryRunFlag) Set(value string) error {
	switch value {
	case dryRunClient, "true":
		f.value = dryRunClient
	case dryRunServer:
		f.value = dryRunServer
	case dryRunNone, "false":
		f.value = dryRunNone
	default:
		return fmt.Errorf("%q is none of %s, %s, %s", value, dryRunNone, dryRunClient, dryRunServer)
	}
	*f.global = f.value != dryRunNone
	return nil
}
