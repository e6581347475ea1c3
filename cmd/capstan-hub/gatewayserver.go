package main

import (
	"context"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"golang.org/x/sync/errgroup"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/client-go/kubernetes"
	"k8s.io/klog/v2"

	gatewayv1alpha1 "github.com/capstan-io/capstan/api/gateway/v1alpha1"
	"github.com/capstan-io/capstan/internal/featuregates"
	"github.com/capstan-io/capstan/internal/logging"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
	"github.com/capstan-io/capstan/internal/program"
	"github.com/capstan-io/capstan/internal/reach/aggregated"
	"github.com/capstan-io/capstan/internal/reach/dialer"
	"github.com/capstan-io/capstan/internal/reach/gateway"
)

// gatewayServerFlags are about a gateway with an API server of its own.
type gatewayServerFlags struct {
	kubeconfig     string
	leaderElect    bool
	leaseNamespace string
	gates          *featuregates.Set
	gateway        gatewayFlags
	tunnels        bool
	apiServer      aggregated.Options
	logs           logging.Options
}

func newGatewayCommand() *cobra.Command {
	flags := gatewayServerFlags{
		leaderElect: true, leaseNamespace: program.Namespace(systemNamespace), gates: featuregates.Gateway(), gateway: newGatewayFlags(),
		apiServer: aggregated.NewOptions(), logs: logging.New(),
	}
	command := &cobra.Command{
		Use:   "gateway",
		Short: "Serve ClusterGateways as an aggregated API of an existing Kubernetes API",
		Long: `Serve ClusterGateways as an aggregated API of an existing Kubernetes API.

An APIService v1alpha1.cluster.core.oam.dev has the API server there pass requests on to
this one. Clusters are those of the Secrets in one namespace, and are dialled from here,
or with --tunnels through their agents.
Without --tls-cert-file, it makes its serving certificate, keeps it in Secret
cluster-gateway-serving-cert in the namespace of the Service, and writes caBundle of
the APIService. Several processes may run; a Lease decides which one asks clusters how they are.`,
		Example: `  capstan-hub gateway --kubeconfig ~/.kube/config --secure-port 9443`,
		Args:    cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			return flags.run(command.Context())
		},
	}
	flags.add(command.Flags())
	return command
}

func (f *gatewayServerFlags) add(flags *pflag.FlagSet) {
	flags.StringVar(&f.kubeconfig, "kubeconfig", f.kubeconfig, "File with the access to the API (default: that of the pod this runs in).")
	flags.BoolVar(&f.leaderElect, "leader-elect", f.leaderElect,
		"Ask clusters how they are only while holding the Lease "+gatewayLease+", so that several processes may run.")
	flags.StringVar(&f.leaseNamespace, "leader-election-namespace", f.leaseNamespace, "Namespace of the Lease; it must exist.")
	f.gates.AddFlag(flags)
	f.gateway.add(flags)
	flags.StringVar(&f.gateway.namespace, flagSecretNamespace, f.gateway.namespace, "The same as --"+flagGatewayNamespace+".")
	flags.BoolVar(&f.tunnels, "tunnels", f.tunnels, "Reach clusters whose Secrets say ClusterProxy through the tunnels of their agents, which "+
		"the process capstan-hub cluster-proxy has.")
	f.apiServer.AddFlags(flags)
	f.logs.AddFlags(flags)
}

func (f *gatewayServerFlags) run(ctx context.Context) error {
	if err := f.logs.Apply(ctx); err != nil {
		return err
	}
	f.gates.Log(klog.FromContext(ctx))
	options, err := f.gateway.options(f.gates.Enabled(featuregates.ClientIdentityPenetration))
	if err != nil {
		return err
	}
	config, err := clientConfig(f.kubeconfig)
	if err != nil {
		return err
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	if f.tunnels {
		if options.Tunnel, err = dialer.New(config); err != nil {
			return err
		}
	}
	g := gateway.New(options)
	f.apiServer.UseKubeconfig(f.kubeconfig)
	all, ctx := errgroup.WithContext(ctx)
	all.Go(func() error { return runGateway(ctx, g, client, f.leaderElect, f.leaseNamespace) })
	all.Go(func() error { return aggregated.Run(ctx, gatewayAPI(g), f.apiServer, config) })
	return all.Wait()
}

// gatewayAPI is the group that a gateway with an API server of its own serves.
func gatewayAPI(g *gateway.Gateway) aggregated.API {
	scheme := gateway.NewScheme()
	return aggregated.API{
		Name: "capstan-gateway", Version: gatewayv1alpha1.GroupVersion, Scheme: scheme, Definitions: gateway.Definitions,
		Install: func(server *genericapiserver.GenericAPIServer, rights authorizer.Authorizer) error {
			return server.InstallAPIGroup(g.APIGroup(scheme, rights))
		},
		Handler: g.Handler, LongRunning: []string{fleet.SubresourceProxy}, Ready: g.Ready, ServingSecret: "cluster-gateway-serving-cert",
	}
}
