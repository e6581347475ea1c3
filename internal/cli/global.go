package cli

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"github.com/spf13/cobra"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/util/homedir"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
	"sigs.k8s.io/yaml"

	"github.com/capstan-io/capstan/internal/cli/hubapi"
	"github.com/capstan-io/capstan/internal/cli/output"
	"github.com/capstan-io/capstan/internal/cli/playground"
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

// newApp has the streams, and the flags once they are parsed.
func newApp(in io.Reader, out, errOut io.Writer) *app {
	return &app{in: in, out: out, errOut: errOut, clock: clock.RealClock{}, withTimeout: context.WithTimeoutCause}
}

// addFlags adds the flags that all commands have.
func (a *app) addFlags(root *cobra.Command) {
	flags := root.PersistentFlags()
	flags.StringVar(&a.kubeconfig, "kubeconfig", "", "kubeconfig that leads to the hub or cluster")
	flags.StringVar(&a.context, "context", "", "context of the kubeconfig to use")
	flags.BoolVar(&a.matchServerVersion, "match-server-version", false, "fail if the server has another minor version of Kubernetes")
	flags.BoolVar(&a.dryRun, "dry-run", false, "show what would be done and do nothing")
	flags.IntVar(&a.timeout, "timeout", defaultTimeout, "seconds to wait at most")
	flags.IntVarP(&a.verbosity, "v", "v", 0, "show what is sent and received, from 6 (requests) to 9 (everything, with secrets)")
	complete(root, "context", a.completeContexts)
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

// installTarget is the cluster that the flags are about. The hub of a playground runs no pods, so it is none by default.
func (a *app) installTarget() hubapi.Target {
	return hubapi.Target{Kubeconfig: a.kubeconfig, Context: a.context, Cluster: true, MatchServerVersion: a.matchServerVersion}
}

// configAccess is the kubeconfig as client-go reads and writes it.
func (a *app) configAccess() clientcmd.ConfigAccess {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = a.kubeconfig
	if a.kubeconfig == "" && os.Getenv(clientcmd.RecommendedConfigPathEnvVar) == "" {
		rules.Precedence = []string{filepath.Join(homedir.HomeDir(), clientcmd.RecommendedHomeDir, clientcmd.RecommendedFileName)}
	}
	return rules
}

// hub is a client of it.
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
	return a.limitedTo(ctx, time.Duration(a.timeout)*time.Second)
}

// limitedTo returns a context that ends after a time that is not --timeout, and says so in the same words.
func (a *app) limitedTo(ctx context.Context, limit time.Duration) (context.Context, context.CancelFunc) {
	return a.withTimeout(ctx, limit, timeoutError{limit})
}

// timeoutOr is --timeout if it is given, or else another time.
func (a *app) timeoutOr(command *cobra.Command, otherwise time.Duration) time.Duration {
	if command.Flags().Changed("timeout") {
		return time.Duration(a.timeout) * time.Second
	}
	return otherwise
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

// progress shows on standard error what a command waits for.
func (a *app) progress() *output.Progress { return output.NewProgress(a.errOut, a.clock) }

// announceDryRun says that nothing is done.
func (a *app) announceDryRun(command *cobra.Command) {
	if a.dryRun {
		a.note("%s is running in dry-run mode", command.CommandPath())
	}
}

// render shows an object that would be created.
func (a *app) render(object any) error {
	content, err := yaml.Marshal(object)
	if err != nil {
		return err
	}
	a.say("---\n%s", strings.TrimSpace(string(content)))
	return nil
}
