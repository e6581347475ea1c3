package options

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/capstan-io/capstan/internal/cli/output"
)

// Parent returns a command that has subcommands and does nothing itself.
func Parent(use, short string, children ...*cobra.Command) *cobra.Command {
	command := &cobra.Command{
		Use: use, Short: short,
		Args: KnownCommand,
		RunE: func(command *cobra.Command, _ []string) error { return command.Help() },
	}
	command.AddCommand(children...)
	return command
}

// KnownCommand is for commands with subcommands: an argument is a misspelt one.
func KnownCommand(command *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	command.SuggestionsMinimumDistance = max(command.SuggestionsMinimumDistance, 2)
	suggestion := ""
	if found := command.SuggestionsFor(args[0]); len(found) > 0 {
		at := max(0, slices.IndexFunc(found, func(name string) bool { return strings.HasPrefix(name, args[0]) }))
		suggestion = fmt.Sprintf(" Did you mean %q?", found[at])
	}
	return fmt.Errorf("unknown command %q for %q.%s \"%s --help\" lists the commands", args[0], command.CommandPath(), suggestion,
		command.CommandPath())
}

// FlagsOnly is for commands without arguments.
func FlagsOnly(command *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	return fmt.Errorf("unexpected argument %q, want flags only: %s", args[0], command.UseLine())
}

// AddOutputFlag adds --output to a command; the first format is the default.
func AddOutputFlag(command *cobra.Command, formats ...output.Format) *output.Choice {
	choice := output.NewChoice(formats...)
	command.Flags().VarP(choice, "output", "o", "format of the output")
	Complete(command, "output", cobra.FixedCompletions(choice.Names(), cobra.ShellCompDirectiveNoFileComp))
	return choice
}
