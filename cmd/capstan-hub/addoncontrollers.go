package main

import (
	"context"

	"github.com/spf13/pflag"
	"k8s.io/klog/v2"

	"github.com/capstan-io/capstan/internal/hub"
	"github.com/capstan-io/capstan/internal/ignoredflags"
	"github.com/capstan-io/capstan/internal/leaderelection"
	"github.com/capstan-io/capstan/internal/logging"
	"github.com/capstan-io/capstan/internal/program"
	"github.com/capstan-io/capstan/internal/secureserving"
)

// addOnControllersFlags are those of a process with the controllers of one add-on, which the standalone hub has built in.
type addOnControllersFlags struct {
	group          string
	kubeconfig     string
	leaderElect    bool
	leaseNamespace string
	metricsAddress string
	healthAddress  string
	accepted       ignoredflags.Flags
	tls            secureserving.TLSFlags
	logs           logging.Options
}

// newAddOnControllersFlags are the flags for a group of controllers that is for a process of its own.
func newAddOnControllersFlags(group string) addOnControllersFlags {
	return addOnControllersFlags{
		group: group, leaderElect: true, leaseNamespace: program.Namespace(systemNamespace),
		metricsAddress: secureserving.LocalMetrics, healthAddress: ":8081", logs: logging.New(),
	}
}

func (f *addOnControllersFlags) add(flags *pflag.FlagSet) {
	flags.StringVar(&f.kubeconfig, "kubeconfig", f.kubeconfig, "File with the access to the API (default: that of the pod this runs in).")
	flags.BoolVar(&f.leaderElect, "leader-elect", f.leaderElect, "Act only while holding the Lease "+
		leaseOf([]string{f.group})+", so that several processes may run.")
	flags.StringVar(&f.leaseNamespace, "leader-election-namespace", f.leaseNamespace, "Namespace of the Lease; it must exist.")
	secureserving.AddMetricsFlag(flags, &f.metricsAddress)
	flags.StringVar(&f.healthAddress, "health-probe-bind-address", f.healthAddress,
		"Address at which /healthz and /readyz are served; 0 serves none.")
	f.accepted.AddLimits(flags, "kube-api-qps", "kube-api-burst")
	f.tls.Add(flags)
	f.logs.AddFlags(flags)
}

// run runs the controllers until the context ends. The options need not name the group.
func (f *addOnControllersFlags) run(ctx context.Context, controllers hub.Options) error {
	f.accepted.Log(klog.FromContext(ctx))
	controllers.Groups = []string{f.group}
	client, err := clientConfig(f.kubeconfig)
	if err != nil {
		return err
	}
	if err := checkAPI(client, controllers); err != nil {
		return err
	}
	options := hub.ManagerOptions(controllers)
	options.HealthProbeBindAddress = f.healthAddress
	if f.leaderElect {
		if err := leaderelection.ForManager(&options, client, f.leaseNamespace, leaseOf(controllers.Groups)); err != nil {
			return err
		}
	}
	bounds, err := f.tls.Apply()
	if err != nil {
		return err
	}
	if options.Metrics, err = secureserving.MetricsOptions(f.metricsAddress, bounds); err != nil {
		return err
	}
	manager, err := newManager(client, options, controllers)
	if err != nil {
		return err
	}
	if err := secureserving.AddHealth(manager, secureserving.None, bounds, nil); err != nil {
		return err
	}
	return manager.Start(ctx)
}
