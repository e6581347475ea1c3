package cli

import (
	"github.com/spf13/cobra"

	"github.com/capstan-io/capstan/internal/cli/output"
)

func (a *app) getCommand() *cobra.Command {
	return parent("get", "Show clusters, works, or a token to join with",
		a.getClustersCommand(), a.getWorksCommand(), a.getTokenCommand())
}

// parent is a command that does nothing but hold others.
func parent(use, short string, children ...*cobra.Command) *cobra.Command {
	command := &cobra.Command{
		Use: use, Short: short,
		Args: cobra.NoArgs, // so that a misspelt child is an error
		RunE: func(command *cobra.Command, _ []string) error { return command.Help() },
	}
	command.AddCommand(children...)
	return command
}

// addOutputFlag adds --output to a command; the first format is the default (CA-05).
func addOutputFlag(command *cobra.Command, formats ...output.Format) *output.Choice {
	choice := output.NewChoice(formats...)
	command.Flags().VarP(choice, "output", "o", "format of the output")
	complete(command, "output", cobra.FixedCompletions(choice.Names(), cobra.ShellCompDirectiveNoFileComp))
	return choice
}
