package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/capstan-io/capstan/internal/hub"
	"github.com/capstan-io/capstan/internal/hub/placement/debug"
	"github.com/capstan-io/capstan/internal/hub/placement/debugserver"
	"github.com/capstan-io/capstan/internal/ignoredflags"
	"github.com/capstan-io/capstan/internal/logging"
	"github.com/capstan-io/capstan/internal/placement/report"
	"github.com/capstan-io/capstan/internal/secureserving"
)

type placementDebugFlags struct {
	kubeconfig string
	hub        hubFlags
	port       int
	server     debugserver.Options
	tls        secureserving.TLSFlags
	logs       logging.Options
}

// defaultDebugPort is that of Open Cluster Management.
const defaultDebugPort = 9443

func newPlacementDebugCommand() *cobra.Command {
	flags := placementDebugFlags{hub: newHubFlags(), port: defaultDebugPort, logs: logging.New()}
	command := &cobra.Command{
		Use:   "placement-debug",
		Short: "Serve why placements of an existing Kubernetes API select what they do",
		Long: `Serve why placements of an existing Kubernetes API select what they do.

The placement controllers serve it, too: this is for a process of its own beside them, which
only reads. It reads the fleet for each answer. A standalone hub has it built in.`,
		Example: `  capstan-hub placement-debug --kubeconfig ~/.kube/config --tls-cert-file tls.crt --tls-private-key-file tls.key`,
		Args:    cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			return flags.run(command.Context())
		},
	}
	flags.add(command.Flags())
	return command
}

func (f *placementDebugFlags) add(flags *pflag.FlagSet) {
	flags.StringVar(&f.kubeconfig, "kubeconfig", f.kubeconfig, "File with the access to the API (default: that of the pod this runs in).")
	flags.IntVar(&f.port, "secure-port", f.port,
		"Port at which "+report.Path+" is served over HTTPS, and /healthz, /livez and /readyz to everybody.")
	flags.StringVar(&f.server.CertFile, "tls-cert-file", f.server.CertFile, "File with the serving certificate, which is read again when it "+
		"changes (default: one that is made for the occasion, which nobody can verify).")
	flags.StringVar(&f.server.KeyFile, "tls-private-key-file", f.server.KeyFile, "File with the private key of --tls-cert-file.")
	f.hub.gates.AddFlag(flags)
	f.hub.addPlacement(flags)
	f.hub.accepted.AddLimits(flags, "kube-api-qps", "kube-api-burst")
	f.hub.accepted.Add(flags, "disable-leader-election", ignoredflags.Switch, "there is no election, as it only reads")
	f.tls.Add(flags)
	f.logs.AddFlags(flags)
}

func (f *placementDebugFlags) run(ctx context.Context) error {
	if err := f.logs.Apply(ctx); err != nil {
		return err
	}
	f.hub.log(klog.FromContext(ctx))
	options, server, err := f.options()
	if err != nil {
		return err
	}
	client, err := clientConfig(f.kubeconfig)
	if err != nil {
		return err
	}
	if err := checkAPI(client, options); err != nil {
		return err
	}
	unserved := hub.ManagerOptions(options)
	unserved.Metrics.BindAddress, unserved.HealthProbeBindAddress = secureserving.None, secureserving.None
	manager, err := ctrl.NewManager(client, unserved)
	if err != nil {
		return err
	}
	if err := hub.RegisterPlacementDebug(manager, options); err != nil {
		return err
	}
	if err := debugserver.Add(manager, options.PlacementDebug, server); err != nil {
		return err
	}
	return manager.Start(ctx)
}

// options refuses what makes no sense.
func (f *placementDebugFlags) options() (options hub.Options, server debugserver.Options, err error) {
	options = hub.Options{Groups: []string{hub.GroupPlacement}, Gates: f.hub.gates, PlacementDebug: &debug.Endpoint{}}
	if err := f.hub.setPlacement(&options); err != nil {
		return options, server, err
	}
	server = f.server
	if (server.CertFile == "") != (server.KeyFile == "") {
		return options, server, errors.New("--tls-cert-file, --tls-private-key-file: name both, the certificate and its key, or neither")
	}
	if f.port < 1 || f.port > 65535 {
		return options, server, fmt.Errorf("--secure-port %d: must be from 1 to 65535", f.port)
	}
	server.Address = net.JoinHostPort("", strconv.Itoa(f.port))
	server.TLS, err = f.tls.Apply()
	return options, server, err
}
