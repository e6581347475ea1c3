package options

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"sigs.k8s.io/yaml"

	"github.com/capstan-io/capstan/internal/cli/output"
	"github.com/capstan-io/capstan/internal/machinery/text"
	"github.com/capstan-io/capstan/internal/terminal"
)

// Print shows a view on standard output.
func (g *Global) Print(format output.Format, view output.View) error {
	return output.StyleOf(g.Out).Write(g.Out, format, view)
}

// Say writes a line to standard output.
func (g *Global) Say(format string, args ...any) { fmt.Fprintf(g.Out, format+"\n", args...) }

// Note writes a line that is not the result to standard error. What clusters and users have written in it does nothing to a terminal.
func (g *Global) Note(format string, args ...any) {
	fmt.Fprintln(g.ErrOut, text.Lines(fmt.Sprintf(format, args...)))
}

// Progress shows on standard error what a command waits for.
func (g *Global) Progress() *terminal.Progress { return terminal.NewProgress(g.ErrOut, g.Clock) }

// AnnounceDryRun says that nothing is done.
func (g *Global) AnnounceDryRun(command *cobra.Command) {
	if g.DryRun {
		g.Note("%s is running in dry-run mode", command.CommandPath())
	}
}

// Render shows an object that would be created.
func (g *Global) Render(object any) error {
	content, err := yaml.Marshal(object)
	if err != nil {
		return err
	}
	g.Say("---\n%s", strings.TrimSpace(string(content)))
	return nil
}
