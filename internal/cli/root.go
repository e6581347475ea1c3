// Package cli is the command line: one file a command. Commands read their flags, call hubapi or playground, and hand what
// they found to output.
package cli

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"github.com/spf13/cobra"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/capstan-io/capstan/internal/cli/hubapi"
	"github.com/capstan-io/capstan/internal/cli/output"
	"github.com/capstan-io/capstan/internal/cli/playground"
	"github.com/capstan-io/capstan/internal/program"
	"github.com/capstan-io/capstan/internal/reference"
)

// defaultTimeout is the default of --timeout, in seconds.
const defaultTimeout = 300

// app is what the commands share: where they read and write, and the global flags.
type app struct {
	in          io.Reader
	out, errOut io.Writer
	clock       clock.WithTickerAndDelayedExecution
	withTimeout timeoutFunc
	home        playground.Home

	kubeconfig string
	context    string
	dryRun     bool
	timeout    int
	verbosity  int

	matchServerVersion bool
}

const rootLong = `Capstan manages many Kubernetes clusters from one hub, with the Open Cluster Management API.

"capstan up" starts a hub and two clusters to play with on this machine. The other commands work with any hub.
They find it with the first of these that there is:

  1. the flag --kubeconfig
  2. the environment variable KUBECONFIG
  3. the kubeconfig that "capstan up" writes, $CAPSTAN_HOME/kubeconfig (default ~/.capstan/kubeconfig)
  4. ~/.kube/config

--context chooses a context; the third is passed over when it does not have it. Without the flag it is the current
context, and the context "hub" of the third. Commands that install something in a cluster, or take it out, pass over the third.`

// NewCommand returns the command line.
func NewCommand(in io.Reader, out, errOut io.Writer) *cobra.Command {
	return newApp(in, out, errOut).command()
}

func newApp(in io.Reader, out, errOut io.Writer) *app {
	return &app{in: in, out: out, errOut: errOut, clock: clock.RealClock{}, withTimeout: context.WithTimeoutCause}
}

func (a *app) command() *cobra.Command {
	root := &cobra.Command{
		Use:               "capstan",
		Short:             "Manage many Kubernetes clusters from one hub",
		Long:              rootLong,
		SilenceUsage:      true,
		SilenceErrors:     true,
		Version:           program.Version(),
		Args:              knownCommand,
		RunE:              func(command *cobra.Command, _ []string) error { return command.Help() },
		PersistentPreRunE: func(*cobra.Command, []string) error { return a.start() },
	}
	root.SetIn(a.in)
	root.SetOut(a.out)
	root.SetErr(a.errOut)
	root.CompletionOptions.HiddenDefaultCmd = false
	root.SetFlagErrorFunc(func(command *cobra.Command, err error) error {
		return fmt.Errorf("%w: \"%s --help\" lists the flags", err, command.CommandPath())
	})
	flags := root.PersistentFlags()
	flags.StringVar(&a.kubeconfig, "kubeconfig", "", "kubeconfig that leads to the hub or cluster")
	flags.StringVar(&a.context, "context", "", "context of the kubeconfig to use")
	flags.BoolVar(&a.matchServerVersion, "match-server-version", false, "fail if the server has another minor version of Kubernetes")
	flags.BoolVar(&a.dryRun, "dry-run", false, "show what would be done and do nothing")
	flags.IntVar(&a.timeout, "timeout", defaultTimeout, "seconds to wait at most")
	flags.IntVarP(&a.verbosity, "v", "v", 0, "show what is sent and received, from 6 (requests) to 9 (everything, with secrets)")
	complete(root, "context", a.completeContexts)

	playgroundGroup := &cobra.Group{ID: "playground", Title: "A playground on this machine:"}
	hubGroup := &cobra.Group{ID: "hub", Title: "Work with a hub:"}
	clusterGroup := &cobra.Group{ID: "registration", Title: "Install a hub, and bring clusters to it:"}
	reachGroup := &cobra.Group{ID: "reach", Title: "Reach into clusters through the hub:"}
	root.AddGroup(playgroundGroup, clusterGroup, hubGroup, reachGroup)
	add := func(group *cobra.Group, commands ...*cobra.Command) {
		for _, command := range commands {
			command.GroupID = group.ID
			root.AddCommand(command)
		}
	}
	add(playgroundGroup, a.upCommand(), a.statusCommand(), a.downCommand())
	add(clusterGroup, a.initCommand(), a.joinCommand(), a.acceptCommand(), a.denyCommand(), a.unjoinCommand(), a.cleanCommand(),
		a.upgradeCommand())
	add(hubGroup, a.getCommand(), a.explainCommand(), a.createCommand(), a.diffCommand(), a.deleteCommand(), a.clusterSetCommand(),
		a.addOnCommand(),
		a.installCommand(), a.uninstallCommand())
	add(reachGroup, a.accessCommand(), a.kubeconfigCommand(), a.kubectlCommand(), a.proxyCommand(), a.credentialsCommand())
	add(reachGroup, a.podCommands()...)
	root.AddCommand(a.configCommand(), a.optionsCommand(), a.pluginCommand(), a.versionCommand(), reference.NewCommand())
	return root
}

// start is what every command does first.
func (a *app) start() error {
	if a.timeout <= 0 {
		return fmt.Errorf("--timeout: %d: must be a number of seconds above 0", a.timeout)
	}
	if err := a.setHome(); err != nil {
		return err
	}
	if a.verbosity == 0 {
		silenceLibraries()
		return nil
	}
	flags := flag.NewFlagSet("klog", flag.ContinueOnError)
	klog.InitFlags(flags)
	return flags.Set("v", strconv.Itoa(a.verbosity))
}

// silenceLibraries keeps off the terminal what libraries log: they try again anyway, or return the error.
var silenceLibraries = sync.OnceFunc(func() { klog.SetLogger(logr.Discard()) })

func (a *app) setHome() error {
	home, err := playground.DefaultHome()
	a.home = home
	return err
}

// target is the hub that the flags are about.
func (a *app) target() hubapi.Target {
	return hubapi.Target{Kubeconfig: a.kubeconfig, Context: a.context, Playground: a.home.Kubeconfig(),
		MatchServerVersion: a.matchServerVersion}
}

func (a *app) hub() (*hubapi.Hub, error) { return hubapi.Connect(a.target()) }

// withHub does something with the hub that the flags are about, for --timeout at most.
func (a *app) withHub(command *cobra.Command, do func(ctx context.Context, hub *hubapi.Hub) error) error {
	hub, err := a.hub()
	if err != nil {
		return err
	}
	a.announceDryRun(command)
	ctx, cancel := a.limited(command.Context())
	defer cancel()
	return do(ctx, hub)
}

// limited returns a context that ends when --timeout is over.
func (a *app) limited(ctx context.Context) (context.Context, context.CancelFunc) {
	limit := time.Duration(a.timeout) * time.Second
	return a.withTimeout(ctx, limit, timeoutError{limit})
}

// timeoutFunc is context.WithTimeoutCause, or what a test has in its place.
type timeoutFunc func(ctx context.Context, limit time.Duration, cause error) (context.Context, context.CancelFunc)

// timeoutError is context.DeadlineExceeded in words for a person.
type timeoutError struct{ limit time.Duration }

func (e timeoutError) Error() string        { return fmt.Sprintf("not done after %s (--timeout)", e.limit) }
func (e timeoutError) Is(target error) bool { return target == context.DeadlineExceeded }

// print shows a view on standard output.
func (a *app) print(format output.Format, view output.View) error {
	return output.StyleOf(a.out).Write(a.out, format, view)
}

// say writes a line to standard output.
func (a *app) say(format string, args ...any) { fmt.Fprintf(a.out, format+"\n", args...) }

// note writes a line that is not the result to standard error.
func (a *app) note(format string, args ...any) { fmt.Fprintf(a.errOut, format+"\n", args...) }

func (a *app) progress() *output.Progress { return output.NewProgress(a.errOut, a.clock) }

// announceDryRun says that nothing is done.
func (a *app) announceDryRun(command *cobra.Command) {
	if a.dryRun {
		a.note("%s is running in dry-run mode", command.CommandPath())
	}
}

// interruptedCode is the exit code of a command that was interrupted.
const interruptedCode = 130

// Main runs the command line and returns the exit code: 0, 1 on failure, 130 when interrupted. Commands that compare return 1
// for a difference and 2 on failure.
func Main(ctx context.Context, args []string, in io.Reader, out, errOut io.Writer) int {
	return newApp(in, out, errOut).main(ctx, args)
}

func (a *app) main(ctx context.Context, args []string) int {
	root := a.command() //nolint:contextcheck // commands get the context when they run
	if code, ran := runPlugin(ctx, root, args, a.in, a.out, a.errOut); ran {
		return code
	}
	root.SetArgs(separateKubectl(root, args))
	command, err := root.ExecuteContextC(ctx)
	var ended exitError
	switch {
	case err == nil:
		return 0
	case errors.Is(err, errDiffers):
		return 1
	case errors.As(err, &ended):
		return ended.code
	}
	fmt.Fprintln(a.errOut, output.StyleOf(a.errOut).Error("Error:"), lastOfEach(err.Error()))
	if ctx.Err() != nil {
		return interruptedCode
	}
	if _, compares := command.Annotations[comparesAnnotation]; compares {
		return 2
	}
	return 1
}

// lastOfEach drops lines that come again: what to do next is the same for much that goes wrong at once.
func lastOfEach(text string) string {
	lines := strings.Split(text, "\n")
	var kept []string
	for i, line := range lines {
		if line == "" || !slices.Contains(lines[i+1:], line) {
			kept = append(kept, line)
		}
	}
	return strings.Join(kept, "\n")
}
