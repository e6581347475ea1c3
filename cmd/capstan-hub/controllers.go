package main

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/client-go/discovery"
	authorizationv1client "k8s.io/client-go/kubernetes/typed/authorization/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"

	"github.com/capstan-io/capstan/internal/featuregates"
	"github.com/capstan-io/capstan/internal/hub"
	"github.com/capstan-io/capstan/internal/hub/placement/debug"
	"github.com/capstan-io/capstan/internal/hub/placement/debugserver"
	"github.com/capstan-io/capstan/internal/leaderelection"
	"github.com/capstan-io/capstan/internal/logging"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
	"github.com/capstan-io/capstan/internal/placement/report"
	"github.com/capstan-io/capstan/internal/program"
	"github.com/capstan-io/capstan/internal/rights"
	"github.com/capstan-io/capstan/internal/secureserving"
)

type controllersFlags struct {
	kubeconfig     string
	hub            hubFlags
	leaderElect    bool
	leaseNamespace string
	metricsAddress string
	healthAddress  string
	listenAddress  string
	debug          debugserver.Options
	tls            secureserving.TLSFlags
	logs           logging.Options
}

func newControllersCommand() *cobra.Command {
	flags := controllersFlags{
		hub: newHubFlags(), leaderElect: true, leaseNamespace: program.Namespace(systemNamespace),
		metricsAddress: secureserving.LocalMetrics, healthAddress: ":8081", listenAddress: secureserving.None,
		debug: debugserver.Options{Address: ":9443"}, logs: logging.New(),
	}
	command := &cobra.Command{
		Use:   "controllers",
		Short: "Run the hub's controllers against an existing Kubernetes API",
		Long: `Run the hub's controllers against an existing Kubernetes API.

The CRDs of what the chosen controllers read must be installed there. Several processes
may run; a Lease decides which one acts.`,
		Example: `  capstan-hub controllers --kubeconfig ~/.kube/config
  capstan-hub controllers --kubeconfig ~/.kube/config --controllers registration,work`,
		Args: cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			return flags.run(command.Context())
		},
	}
	flags.add(command.Flags())
	return command
}

func (f *controllersFlags) add(flags *pflag.FlagSet) {
	flags.StringVar(&f.kubeconfig, "kubeconfig", f.kubeconfig, "File with the access to the API (default: that of the pod this runs in).")
	f.hub.add(flags)
	flags.BoolVar(&f.leaderElect, "leader-elect", f.leaderElect, "Act only while holding the Lease "+leaderLease+
		", or one of its own for some groups of controllers, so that several processes may run.")
	flags.StringVar(&f.leaseNamespace, "leader-election-namespace", f.leaseNamespace, "Namespace of the Lease; it must exist.")
	flags.StringVar(&f.leaseNamespace, "namespace", f.leaseNamespace, "The same as --leader-election-namespace.")
	secureserving.AddMetricsFlag(flags, &f.metricsAddress)
	flags.StringVar(&f.healthAddress, "health-probe-bind-address", f.healthAddress,
		"Address at which /healthz and /readyz are served; 0 serves none.")
	secureserving.AddFlag(flags, &f.listenAddress)
	flags.StringVar(&f.debug.Address, "placement-debug-bind-address", f.debug.Address,
		"Address at which the placement controllers serve "+report.Path+" over HTTPS, which says why placements select what they do; "+secureserving.None+
			" serves none.")
	flags.StringVar(&f.debug.CertDir, "placement-debug-cert-dir", f.debug.CertDir,
		"Folder with the serving certificate of "+report.Path+
			", tls.crt and tls.key (default: one that is made for the occasion, which nobody can verify).")
	f.tls.Add(flags)
	f.logs.AddFlags(flags)
}

func (f *controllersFlags) run(ctx context.Context) error {
	if err := f.logs.Apply(ctx); err != nil {
		return err
	}
	controllers, err := f.hub.options()
	if err != nil {
		return err
	}
	controllers.LeaseNamespace = f.leaseNamespace
	controllers.ServiceAccountsElsewhere = !slices.Contains(controllers.BuiltInAddOns, fleet.AddOnManagedServiceAccount)
	f.hub.log(klog.FromContext(ctx))
	if len(controllers.Groups) == 0 {
		return fmt.Errorf("--controllers %s leaves nothing to run; name some of %s", noGroups, strings.Join(hub.Groups(), ", "))
	}
	client, err := clientConfig(f.kubeconfig)
	if err != nil {
		return err
	}
	if err := checkAPI(client, controllers); err != nil {
		return err
	}
	recheck, err := switchOffDenied(ctx, client, controllers)
	if err != nil {
		return err
	}
	options := hub.ManagerOptions(controllers)
	options.HealthProbeBindAddress = f.healthAddress
	if f.leaderElect && !f.hub.withoutElection {
		if err := leaderelection.ForManager(&options, client, f.leaseNamespace, leaseOf(controllers.Groups)); err != nil {
			return err
		}
	}
	if f.debug.TLS, err = f.tls.Apply(); err != nil {
		return err
	}
	if options.Metrics, err = secureserving.MetricsOptions(f.metricsAddress, f.debug.TLS); err != nil {
		return err
	}
	if f.debug.Address != secureserving.None && f.hub.gates.Enabled(featuregates.PlacementDebugServer) &&
		slices.Contains(controllers.Groups, hub.GroupPlacement) {
		controllers.PlacementDebug = &debug.Endpoint{}
	}
	manager, err := newManager(client, options, controllers)
	if err != nil {
		return err
	}
	if err := manager.Add(recheck); err != nil {
		return err
	}
	if controllers.PlacementDebug != nil {
		if err := debugserver.Add(manager, controllers.PlacementDebug, f.debug); err != nil {
			return fmt.Errorf("%w; --placement-debug-bind-address %s serves it nowhere", err, secureserving.None)
		}
	}
	if err := secureserving.AddHealth(manager, f.listenAddress, f.debug.TLS, nil); err != nil {
		return err
	}
	return manager.Start(ctx)
}

// clientConfig is that of the file; of the pod, if there is none.
func clientConfig(kubeconfig string) (*rest.Config, error) {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("--kubeconfig %q: %w; name a kubeconfig file", kubeconfig, err)
	}
	// The API server's priority and fairness is the throttle.
	config.QPS = -1
	return config, nil
}

// checkAPI fails at once where otherwise a controller would wait forever.
func checkAPI(config *rest.Config, controllers hub.Options) error {
	client, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		return err
	}
	if err := hub.CheckServed(client, controllers); err != nil {
		return fmt.Errorf("%s: %w", config.Host, err)
	}
	return nil
}

// switchOffDenied leaves out the controllers that may not watch what they are for, and returns what ends the process once they may.
func switchOffDenied(ctx context.Context, config *rest.Config, controllers hub.Options) (recheck rights.Recheck, err error) {
	reviews, err := authorizationv1client.NewForConfig(config)
	if err != nil {
		return recheck, err
	}
	recheck.Reviewer = reviews.SelfSubjectAccessReviews()
	if recheck.Watches, err = controllers.SwitchOffDenied(ctx, recheck.Reviewer); err != nil {
		return recheck, fmt.Errorf("%s: %w", config.Host, err)
	}
	if len(recheck.Watches) > 0 {
		klog.FromContext(ctx).Info("Controllers are left out that may not watch what they are for. The rules permit them to start; what they "+
			"write takes more: see deploy/hub, or OperatorPermitted of the ClusterManager", "rules", rights.Rules(recheck.Watches))
	}
	return recheck, nil
}
