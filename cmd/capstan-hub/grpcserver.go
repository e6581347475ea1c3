package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"time"

	grpcprom "github.com/grpc-ecosystem/go-grpc-middleware/providers/prometheus"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	authenticationclient "k8s.io/client-go/kubernetes/typed/authentication/v1"
	authorizationclient "k8s.io/client-go/kubernetes/typed/authorization/v1"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	registry "sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/capstan-io/capstan/internal/broker"
	"github.com/capstan-io/capstan/internal/broker/access"
	"github.com/capstan-io/capstan/internal/broker/resources"
	"github.com/capstan-io/capstan/internal/broker/serverconfig"
	"github.com/capstan-io/capstan/internal/cloudevents/pb"
	"github.com/capstan-io/capstan/internal/ignoredflags"
	"github.com/capstan-io/capstan/internal/logging"
	"github.com/capstan-io/capstan/internal/secureserving"
)

const (
	flagServerConfig      = "server-config"
	flagHeartbeatInterval = "broker-heartbeat-interval"
	flagTLSMinVersion     = "tls-min-version"
	flagTLSCipherSuites   = "tls-cipher-suites"
)

// leastHeartbeatInterval bounds the events that nobody needs.
const leastHeartbeatInterval = 10 * time.Second

// grpcShutdownTimeout is how long calls may go on once the server ends.
const grpcShutdownTimeout = 5 * time.Second

type grpcServerFlags struct {
	kubeconfig        string
	configFile        string
	heartbeatDisabled bool
	heartbeatInterval time.Duration
	metricsAddress    string
	healthAddress     string
	listenAddress     string
	accepted          ignoredflags.Flags
	tls               secureserving.TLSFlags
	logs              logging.Options
}

func newGRPCServerCommand() *cobra.Command {
	flags := grpcServerFlags{heartbeatInterval: leastHeartbeatInterval, metricsAddress: secureserving.LocalMetrics, healthAddress: ":8081",
		listenAddress: secureserving.None, logs: logging.New()}
	command := &cobra.Command{
		Use:   "grpc-server",
		Short: "Serve agents that exchange resources with the hub by gRPC",
		Long: `Serve agents that exchange resources with the hub by gRPC.

Agents with the registration driver grpc need no access to the API of the hub: they
register, get their works and report by CloudEvents through this server, which asks the API
for each of them what they may. Several processes may run; each serves the agents that are
connected to it.`,
		Example: `  capstan-hub grpc-server --kubeconfig ~/.kube/config --server-config config.yaml`,
		Args:    cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			return flags.run(command.Context(), command.Flags())
		},
	}
	flags.add(command.Flags())
	return command
}

func (f *grpcServerFlags) add(flags *pflag.FlagSet) {
	flags.StringVar(&f.kubeconfig, "kubeconfig", f.kubeconfig, "File with the access to the API (default: that of the pod this runs in).")
	flags.StringVar(&f.configFile, flagServerConfig, f.configFile,
		"File with the port, the certificates and the limits of the server, in YAML; without the file, there are defaults.")
	flags.BoolVar(&f.heartbeatDisabled, "broker-heartbeat-disabled", f.heartbeatDisabled,
		"Send no heartbeats, by which agents know that the server is there.")
	flags.DurationVar(&f.heartbeatInterval, flagHeartbeatInterval, f.heartbeatInterval,
		"How often each subscriber gets a heartbeat, at least "+leastHeartbeatInterval.String()+".")
	secureserving.AddMetricsFlag(flags, &f.metricsAddress)
	flags.StringVar(&f.healthAddress, "health-probe-bind-address", f.healthAddress,
		"Address at which /healthz and /readyz are served; 0 serves none.")
	secureserving.AddFlag(flags, &f.listenAddress)
	f.accepted.AddLimits(flags, "kube-api-qps", "kube-api-burst")
	f.tls.Add(flags)
	f.logs.AddFlags(flags)
}

func (f *grpcServerFlags) run(ctx context.Context, flags *pflag.FlagSet) error {
	if err := f.logs.Apply(ctx); err != nil {
		return err
	}
	f.accepted.Log(klog.FromContext(ctx))
	config, err := f.config(flags)
	if err != nil {
		return err
	}
	certificates, err := config.Certificates()
	if err != nil {
		return fmt.Errorf("--%s %s: %w", flagServerConfig, f.configFile, err)
	}
	api, err := clientConfig(f.kubeconfig)
	if err != nil {
		return err
	}
	bounds, err := f.tls.Apply()
	if err != nil {
		return err
	}
	starting := &grpcStart{}
	options := ctrl.Options{Scheme: resources.NewScheme(), Cache: resources.CacheOptions(), HealthProbeBindAddress: f.healthAddress}
	options.Cache.DefaultWatchErrorHandler = starting.watchFailed
	if options.Metrics, err = secureserving.MetricsOptions(f.metricsAddress, bounds); err != nil {
		return err
	}
	manager, err := ctrl.NewManager(api, options)
	if err != nil {
		return fmt.Errorf("prepare the gRPC server: %w", err)
	}
	if err := secureserving.AddHealth(manager, f.listenAddress, bounds, map[string]healthz.Checker{"grpc": starting.ready}); err != nil {
		return err
	}
	if err := manager.Add(certificates); err != nil {
		return err
	}
	server, err := newGRPCServer(ctx, manager, config, certificates, f.heartbeat())
	if err != nil {
		return err
	}
	server.starting = starting
	if err := manager.Add(server); err != nil {
		return err
	}
	return starting.bound(ctx, manager.Start)
}

func (f *grpcServerFlags) heartbeat() time.Duration {
	if f.heartbeatDisabled {
		return 0
	}
	return f.heartbeatInterval
}

// config returns what the file says; flags for TLS go before it.
func (f *grpcServerFlags) config(flags *pflag.FlagSet) (serverconfig.Config, error) {
	if f.heartbeatInterval < leastHeartbeatInterval {
		return serverconfig.Config{}, fmt.Errorf("--%s is %s, want at least %s", flagHeartbeatInterval, f.heartbeatInterval,
			leastHeartbeatInterval)
	}
	config, err := serverconfig.Read(f.configFile)
	if err != nil {
		return config, fmt.Errorf("--%s: %w", flagServerConfig, err)
	}
	if flag := flags.Lookup(flagTLSMinVersion); flag.Changed {
		config.TLSMinVersion = flag.Value.String()
	}
	if flags.Changed(flagTLSCipherSuites) {
		suites, err := flags.GetStringSlice(flagTLSCipherSuites)
		if err != nil {
			return config, err
		}
		config.CipherSuites = strings.Join(suites, ",")
	}
	if err := config.Validate(); err != nil {
		return config, fmt.Errorf("--%s %s: %w", flagServerConfig, f.configFile, err)
	}
	return config, nil
}

// grpcServer serves calls until its context ends.
type grpcServer struct {
	listener net.Listener
	server   *grpc.Server
	broker   *broker.Broker
	clusters broker.Source
	starting *grpcStart
}

func newGRPCServer(ctx context.Context, manager ctrl.Manager, config serverconfig.Config, certificates *serverconfig.Certificates,
	heartbeat time.Duration) (*grpcServer, error) {
	tokens, err := authenticationclient.NewForConfig(manager.GetConfig())
	if err != nil {
		return nil, err
	}
	reviews, err := authorizationclient.NewForConfig(manager.GetConfig())
	if err != nil {
		return nil, err
	}
	if err := resources.AddIndexes(ctx, manager.GetFieldIndexer()); err != nil {
		return nil, err
	}
	events := broker.New(broker.Options{Heartbeat: heartbeat, Clock: clock.RealClock{}, Access: access.New(access.Options{
		Tokens: tokens.TokenReviews(), Access: reviews.SubjectAccessReviews(), ClientCAs: certificates.ClientCAs,
		NotBefore: resources.NotBefore(manager.GetClient()), Clock: clock.RealClock{},
	})})
	clusters, services := resources.All(resources.Options{Cache: manager.GetCache(), Client: manager.GetClient(),
		Reader: manager.GetAPIReader(),
		Notify: events.Notify, Review: events.Review})
	events.Serve(services...)
	metrics := grpcprom.NewServerMetrics()
	if err := registry.Registry.Register(metrics); err != nil {
		return nil, fmt.Errorf("register the metrics of gRPC: %w", err)
	}
	listener, err := net.Listen("tcp", config.Address())
	if err != nil {
		return nil, fmt.Errorf("server_bind_port %s: %w", config.ServerBindPort, err)
	}
	server := grpc.NewServer(append(config.ServerOptions(), grpc.Creds(credentials.NewTLS(certificates.TLS())),
		grpc.UnaryInterceptor(metrics.UnaryServerInterceptor()), grpc.StreamInterceptor(metrics.StreamServerInterceptor()))...)
	pb.RegisterCloudEventServiceServer(server, events)
	metrics.InitializeMetrics(server)
	return &grpcServer{listener: listener, server: server, broker: events, clusters: clusters}, nil
}

// Start implements manager.Runnable.
func (s *grpcServer) Start(ctx context.Context) error {
	if err := s.clusters.Start(ctx); err != nil {
		return err
	}
	klog.FromContext(ctx).Info("Agents are served by gRPC", "address", s.listener.Addr().String())
	ended := context.AfterFunc(ctx, func() {
		s.broker.Stop()
		timer := time.AfterFunc(grpcShutdownTimeout, s.server.Stop)
		defer timer.Stop()
		s.server.GracefulStop()
	})
	defer ended()
	s.starting.over.Store(true)
	if err := s.server.Serve(s.listener); err != nil && !errors.Is(err, grpc.ErrServerStopped) {
		return fmt.Errorf("serve gRPC: %w", err)
	}
	return nil
}

// NeedLeaderElection implements manager.LeaderElectionRunnable: all replicas serve.
func (s *grpcServer) NeedLeaderElection() bool { return false }
