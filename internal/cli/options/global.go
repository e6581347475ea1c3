// Package options is what commands share: the global flags, which "capstan options" lists, with the streams, the clock and the
// hub that they lead to; the flags that several commands have; and how commands end.
package options

import (
	"context"
	"flag"
	"fmt"
	"io"
	"strconv"
	"sync"

	"github.com/go-logr/logr"
	"github.com/spf13/cobra"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
)

// defaultTimeout is the default of --timeout, in seconds.
const defaultTimeout = 300

// Global is what commands share: where they read and write, and the flags that all of them have. A command is a struct that has it, and the
// flags and state of its own.
type Global struct {
	In          io.Reader
	Out, ErrOut io.Writer
	Clock       clock.WithTickerAndDelayedExecution
	WithTimeout TimeoutFunc

	// The values of --kubeconfig, --context and --dry-run. Target is the hub that the first two lead to.
	Kubeconfig string
	Context    string
	DryRun     bool

	timeout            int // in seconds
	verbosity          int
	matchServerVersion bool
}

// New returns what commands share that read and write these streams. AddFlags lets a command line set the flags.
func New(in io.Reader, out, errOut io.Writer) *Global {
	return &Global{In: in, Out: out, ErrOut: errOut, Clock: clock.RealClock{}, WithTimeout: context.WithTimeoutCause}
}

// AddFlags adds the flags that all commands have.
func (g *Global) AddFlags(root *cobra.Command) {
	flags := root.PersistentFlags()
	flags.StringVar(&g.Kubeconfig, "kubeconfig", "", "kubeconfig that leads to the hub or cluster")
	flags.StringVar(&g.Context, "context", "", "context of the kubeconfig to use")
	flags.BoolVar(&g.matchServerVersion, "match-server-version", false, "fail if the server has another minor version of Kubernetes")
	flags.BoolVar(&g.DryRun, "dry-run", false, "show what would be done and do nothing")
	flags.IntVar(&g.timeout, "timeout", defaultTimeout, "seconds to wait at most")
	flags.IntVarP(&g.verbosity, "v", "v", 0, "show what is sent and received, from 6 (requests) to 9 (everything, with secrets)")
	Complete(root, "context", g.CompleteContexts)
}

// Start is what every command does first.
func (g *Global) Start() error {
	if g.timeout <= 0 {
		return fmt.Errorf("--timeout: %d: must be a number of seconds above 0", g.timeout)
	}
	if g.verbosity == 0 {
		silenceLibraries()
		return nil
	}
	flags := flag.NewFlagSet("klog", flag.ContinueOnError)
	klog.InitFlags(flags)
	return flags.Set("v", strconv.Itoa(g.verbosity))
}

// silenceLibraries discards what libraries log: they retry anyway, or return the error.
var silenceLibraries = sync.OnceFunc(func() { klog.SetLogger(logr.Discard()) })
