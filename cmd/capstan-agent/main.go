// Command capstan-agent runs in a managed cluster, or outside of it: it registers the cluster with a hub and applies the hub's
// ManifestWorks to it.
package main

import (
	"fmt"
	"log/slog"
	"os"

	"github.com/go-logr/logr"
	"github.com/spf13/cobra"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/capstan-io/capstan/internal/agent"
	"github.com/capstan-io/capstan/internal/ocmcommands"
	"github.com/capstan-io/capstan/internal/program"
	"github.com/capstan-io/capstan/internal/reference"
)

func main() {
	program.TuneGC(100)
	program.CheckConnections()
	command, err := parseCommand(os.Args)
	if err == nil {
		err = command.ExecuteContext(program.Context())
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "capstan-agent:", err)
		os.Exit(1)
	}
}

// parseCommand returns the command for a command line, which may be one of Open Cluster Management.
func parseCommand(argv []string) (*cobra.Command, error) {
	args, err := ocmcommands.Arguments(ocmcommands.Agent, argv)
	if err != nil {
		return nil, err
	}
	command := newCommand()
	command.SetArgs(args)
	return command, nil
}

func newCommand() *cobra.Command {
	root := &cobra.Command{
		Use:           "capstan-agent",
		Short:         "The agent of a managed cluster",
		Version:       program.Version(),
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	logs := logging{format: "text"}
	root.PersistentFlags().IntVarP(&logs.verbosity, "v", "v", 0, "verbosity of the log; 4 shows every request")
	root.PersistentFlags().StringVar(&logs.format, "logging-format", logs.format, "text or json")
	root.PersistentPreRunE = func(*cobra.Command, []string) error { return logs.set() }
	root.AddCommand(
		newRunCommand("run", "Run registration and work in one process", agent.Parts{Registration: true, Work: true}),
		newRunCommand("registration", "Run registration alone: join the hub, heartbeat, health, version, resources and claims",
			agent.Parts{Registration: true}),
		newOperatorCommand(),
		newEKSTokenCommand(),
		newRunCommand("work", "Run the work agent alone, with the credential that registration obtains", agent.Parts{Work: true}),
		reference.NewCommand(),
	)
	return root
}

func newRunCommand(name, short string, parts agent.Parts) *cobra.Command {
	options := agent.NewOptions()
	command := &cobra.Command{
		Use: name, Short: short, Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return agent.Run(cmd.Context(), options, parts) },
	}
	options.AddCommonFlags(command.Flags())
	if parts.Registration {
		options.AddRegistrationFlags(command.Flags())
	}
	if parts.Work {
		options.AddWorkFlags(command.Flags())
	}
	return command
}

// logging is how the agent logs, to standard error.
type logging struct {
	format    string
	verbosity int
}

func (l *logging) set() error {
	// Level 0 of logr is slog's Info; each further one is one lower.
	options := &slog.HandlerOptions{Level: slog.Level(-l.verbosity)}
	var handler slog.Handler
	switch l.format {
	case "text":
		handler = slog.NewTextHandler(os.Stderr, options)
	case "json":
		handler = slog.NewJSONHandler(os.Stderr, options)
	default:
		return fmt.Errorf("--logging-format is %q; it must be text or json", l.format)
	}
	logger := logr.FromSlogHandler(handler)
	ctrl.SetLogger(logger)
	klog.SetLogger(logger)
	return nil
}
