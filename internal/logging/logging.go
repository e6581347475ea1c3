// Package logging is the log of a program on standard error, in the format of klog: of its own code, and of the libraries of Kubernetes.
package logging

import (
	"context"
	"fmt"

	"github.com/spf13/pflag"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/component-base/logs"
	logsapi "k8s.io/component-base/logs/api/v1"
	_ "k8s.io/component-base/logs/json/register" // makes --logging-format json known
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
)

// stopVerbosity is that of what libraries report as errors while the program stops.
const stopVerbosity = 4

// Options are what is logged, and how.
type Options struct{ *logs.Options }

// New returns the defaults.
func New() Options { return Options{logs.NewOptions()} }

// AddFlags adds the flags that set the options.
func (o Options) AddFlags(flags *pflag.FlagSet) {
	all := pflag.NewFlagSet("", pflag.ContinueOnError)
	logsapi.AddFlags(o.Options, all)
	for _, name := range []string{"v", "vmodule", "logging-format"} {
		flags.AddFlag(all.Lookup(name))
	}
}

// Apply is done once, before anything logs. ctx is the program's.
func (o Options) Apply(ctx context.Context) error {
	if err := logsapi.ValidateAndApply(o.Options, nil); err != nil {
		return fmt.Errorf("--logging-format %s: %w; use text or json", o.Format, err)
	}
	ctrl.SetLogger(klog.Background())
	muteOnStop(ctx)
	return nil
}

// muteOnStop keeps out of the log what stopping brings about: every watch and every request in flight ends in an error,
// and the libraries report each.
func muteOnStop(program context.Context) {
	report := utilruntime.ErrorHandlers[0]
	utilruntime.ErrorHandlers[0] = func(ctx context.Context, err error, message string, keysAndValues ...any) {
		logger := klog.FromContext(ctx).WithCallDepth(1)
		if program.Err() != nil {
			logger.V(stopVerbosity).Info(message, append(keysAndValues, "err", err)...)
			return
		}
		report(klog.NewContext(ctx, logger), err, message, keysAndValues...)
	}
}
