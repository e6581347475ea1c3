package main

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/go-logr/logr"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"

	"github.com/capstan-io/capstan/deploy/crds"
	"github.com/capstan-io/capstan/internal/admission/conversion"
	"github.com/capstan-io/capstan/internal/admission/inprocess"
	"github.com/capstan-io/capstan/internal/controlplane"
	"github.com/capstan-io/capstan/internal/controlplane/ocmconfig"
	"github.com/capstan-io/capstan/internal/featuregates"
	"github.com/capstan-io/capstan/internal/hub"
	"github.com/capstan-io/capstan/internal/hub/placement/debug"
	"github.com/capstan-io/capstan/internal/ignoredflags"
	"github.com/capstan-io/capstan/internal/logging"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
	"github.com/capstan-io/capstan/internal/placement/report"
	"github.com/capstan-io/capstan/internal/program"
	"github.com/capstan-io/capstan/internal/reach/accessprovider"
	"github.com/capstan-io/capstan/internal/reach/api"
	"github.com/capstan-io/capstan/internal/reach/gateway"
	"github.com/capstan-io/capstan/internal/reach/peers"
	"github.com/capstan-io/capstan/internal/reach/server"
	"github.com/capstan-io/capstan/internal/reach/userserver"
)

// Environment variables of the embedded etcd.
const (
	envSnapshotCount = "ETCD_SNAPSHOT_COUNT"
	envNoFsync       = "UNSAFE_E2E_HACK_DISABLE_ETCD_FSYNC"
)

// By how much the heap grows between two garbage collections, in percent. A hub keeps much of what it allocates at its start, which takes a
// third longer with the value for later. Then what a collection finds is garbage of requests, and memory counts.
const (
	gcPercent        = 100
	gcPercentAtStart = 200
)

const flagEmbeddedEtcd = "enable-embedded-etcd"

// conversionWebhook is the service that the CRDs of add-ons name for their conversion; the hub serves it itself.
var conversionWebhook = types.NamespacedName{Namespace: "open-cluster-management-hub", Name: "cluster-manager-addon-webhook"}

// serverFlags are those that the program, not the control plane, gives a meaning.
type serverFlags struct {
	configDir      string
	embeddedEtcd   bool
	selfManagement selfManagementFlags
	hub            hubFlags
	admission      admissionFlags
	gateway        gatewayFlags
	logs           logging.Options
}

func newServerCommand() *cobra.Command {
	options := controlplane.NewOptions()
	flags := serverFlags{configDir: ocmconfig.DefaultDir, hub: newHubFlags(), admission: newAdmissionFlags(),
		gateway: newGatewayFlags(), logs: logging.New()}
	flags.hub.builtInAddOns = []string{fleet.AddOnClusterGateway, fleet.AddOnClusterProxy, fleet.AddOnManagedServiceAccount}
	command := &cobra.Command{
		Use:   "server",
		Short: "Run a standalone hub: API server, storage and controllers in one process",
		Long: `Run a standalone hub: API server, storage and controllers in one process.

The hub reads ` + ocmconfig.FileName + ` from the folder of --controlplane-config-dir and keeps what it
has in the dataDirectory named there. /readyz answers 200 when clusters can join; the
admin's kubeconfig is then in cert/kube-aggregator.kubeconfig of the data directory.

Environment: ` + envSnapshotCount + ` is the number of writes between two snapshots of the
embedded etcd (default 5000).`,
		Example: `  # A hub on this machine
  mkdir -p hub/config && echo "dataDirectory: $PWD/hub/data" > hub/config/` + ocmconfig.FileName + `
  capstan-hub server --controlplane-config-dir hub/config
  kubectl --kubeconfig hub/data/cert/kube-aggregator.kubeconfig get managedclusters`,
		Args: cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			program.SetGCPercent(gcPercentAtStart)
			if err := flags.complete(command.Context(), command.Flags(), options); err != nil {
				return err
			}
			return controlplane.Run(command.Context(), options)
		},
	}
	flags.add(command.Flags())
	options.AddFlags(command.Flags())
	return command
}

func (f *serverFlags) add(flags *pflag.FlagSet) {
	flags.StringVar(&f.configDir, "controlplane-config-dir", f.configDir, "Folder with "+ocmconfig.FileName+".")
	flags.BoolVar(&f.embeddedEtcd, flagEmbeddedEtcd, f.embeddedEtcd,
		"Insist on the embedded etcd, or with =false on an external one: the hub refuses to start when "+ocmconfig.FileName+" says otherwise.")
	f.hub.add(flags)
	f.selfManagement.add(flags)
	f.admission.add(flags)
	f.admission.addCounting(flags)
	f.gateway.add(flags)
	f.logs.AddFlags(flags)
}

// complete turns flags, environment and configuration file into the options of the hub.
func (f *serverFlags) complete(ctx context.Context, flags *pflag.FlagSet, o *controlplane.Options) error {
	if err := f.logs.Apply(ctx); err != nil {
		return err
	}
	controllers, err := f.hub.options()
	if err != nil {
		return err
	}
	if controllers.AWS != nil {
		return fmt.Errorf("--%s: %s is for a hub that is an EKS cluster, whose API server knows identities of AWS; run capstan-hub controllers there",
			flagDrivers, driverAWS)
	}
	f.hub.log(klog.FromContext(ctx))
	if o.Hosting, err = controlplane.DetectHosting(); err != nil {
		return err
	}
	o.Config, err = ocmconfig.Load(ocmconfig.Options{
		Dir: f.configDir, Explicit: flags.Changed("controlplane-config-dir"), InCluster: o.Hosting != nil,
	})
	if err != nil {
		return err
	}
	if err := f.checkEtcd(flags, o); err != nil {
		return err
	}
	f.logConfiguration(klog.FromContext(ctx), flags, o.Config)
	o.CRDs = crds.Hub()
	o.Webhooks = map[types.NamespacedName]http.Handler{conversionWebhook: conversion.Handler()}
	admissionOptions, err := f.admission.options(f.hub.gates)
	if err != nil {
		return err
	}
	admissionOptions.HubNamespace = f.hub.grpc.namespace
	admissionOptions.BindCredentials = true // the API server of this process refuses those that are not valid
	if slices.Contains(controllers.Groups, hub.GroupRegistration) {
		admissionOptions.Taint = true
		if f.hub.gates.Enabled(featuregates.ResourceCleanup) {
			admissionOptions.Finalizer = fleet.FinalizerResourceCleanup
		}
	}
	for _, plugin := range inprocess.Plugins(admissionOptions) {
		o.Admission = append(o.Admission, controlplane.AdmissionPlugin{Name: plugin.Name, Plugin: plugin.Plugin})
	}
	if slices.Contains(controllers.Groups, hub.GroupPlacement) && f.hub.gates.Enabled(featuregates.PlacementDebugServer) {
		controllers.PlacementDebug = &debug.Endpoint{}
		o.Endpoints = map[string]http.Handler{report.Path: controllers.PlacementDebug}
	}
	tunnels := server.New(server.Options{Version: api.Standalone, Peers: replicas(o),
		ExposedServices: types.NamespacedName{Namespace: fleet.NamespaceAddOn, Name: fleet.ConfigMapExposedServices}})
	o.Extensions = append(o.Extensions, controlplane.Extension{
		Authorizer: authorizer.AuthorizerFunc(tunnels.Authorize), Handler: tunnels.Handler, Run: tunnels.Run})
	if f.hub.gates.Enabled(featuregates.ClusterProfile) || f.hub.gates.Enabled(featuregates.GitOpsCluster) {
		controllers.Access = presentAccess(o)
	}
	self, err := f.selfManagement.options(ctx, o)
	if err != nil {
		return err
	}
	gatewayOptions, err := f.gateway.options(f.hub.gates.Enabled(featuregates.ClientIdentityPenetration))
	if err != nil {
		return err
	}
	gatewayOptions.Tunnel = tunnels
	controllers.GatewayNamespace = gatewayOptions.Namespace
	clusterGateway := gateway.New(gatewayOptions)
	tunnels.Changed = clusterGateway.TunnelChanged
	o.APIGroups = append(o.APIGroups, gatewayGroup(clusterGateway))
	o.Controllers = withSelfManagement(inProcess(controllers, f.hub.withoutElection), self, f.hub.withoutElection)
	o.Controllers = withGateway(o.Controllers, clusterGateway, f.hub.withoutElection)
	o.Controllers = beforeReady(o.Controllers, func() { program.SetGCPercent(gcPercent) })
	o.Info = f.hub.info(controllers)
	return nil
}

// logConfiguration tells of a configuration without effect on the hub: a file that is not there, and flags that others switch off.
func (f *serverFlags) logConfiguration(logger logr.Logger, flags *pflag.FlagSet, config *ocmconfig.Config) {
	if config.NotFound {
		logger.Info("There is no configuration file; the defaults apply", "file", config.File, "dataDirectory", config.DataDirectory)
	}
	flags.Visit(func(flag *pflag.Flag) {
		switch {
		case strings.HasPrefix(flag.Name, "embedded-etcd-") && config.Etcd.Mode != ocmconfig.EtcdEmbed:
			ignoredflags.LogOne(logger, flag.Name, fmt.Sprintf("etcd.mode in %s is %s", config.File, config.Etcd.Mode))
		case strings.HasPrefix(flag.Name, flagSelfManagement+"-") && !f.selfManagement.on:
			ignoredflags.LogOne(logger, flag.Name, "--"+flagSelfManagement+" is not set")
		}
	})
}

// beforeReady also calls f when the controllers run, before the hub is ready.
func beforeReady(controllers controlplane.ControllersFunc, f func()) controlplane.ControllersFunc {
	return func(ctx context.Context, client *rest.Config, elect bool, started func()) error {
		return controllers(ctx, client, elect, func() {
			f()
			started()
		})
	}
}

// presentAccess has ClusterProfiles and the Secrets of Argo CDs name the API of the hub, which leaves tokens of clusters to these.
func presentAccess(o *controlplane.Options) *accessprovider.Options {
	address := accessprovider.NewAddress()
	o.Published = address.Publish
	tokens := userserver.ClusterTokens{Version: api.Standalone}
	o.Extensions = append(o.Extensions, controlplane.Extension{
		Authenticator: tokens.Authenticator, Authorizer: authorizer.AuthorizerFunc(tokens.Authorize)})
	return &accessprovider.Options{Address: address, Server: func(url, cluster string) string {
		return url + api.Path(api.Standalone, cluster, fleet.SubresourceProxy)
	}}
}

// replicas are the other hubs on an external etcd, which have the keys and so the administrator of this one; nil if there can be none.
func replicas(o *controlplane.Options) *peers.Peers {
	if o.Config.Etcd.Mode == ocmconfig.EtcdEmbed {
		return nil
	}
	return peers.New(peers.Options{
		Version: api.Standalone, Address: o.PeerAddress(), Namespace: systemNamespace, User: controlplane.Administrator,
		Access: func(context.Context) (*rest.Config, error) {
			return clientcmd.BuildConfigFromFlags("", controlplane.AdminKubeconfig(o.Config.DataDirectory))
		},
	})
}

// checkEtcd reads the environment and refuses settings that contradict each other.
func (f *serverFlags) checkEtcd(flags *pflag.FlagSet, o *controlplane.Options) (err error) {
	embedded := o.Config.Etcd.Mode == ocmconfig.EtcdEmbed
	if flags.Changed(flagEmbeddedEtcd) && f.embeddedEtcd != embedded {
		return fmt.Errorf("--%s=%t, but etcd.mode in %s is %s; change one of them", flagEmbeddedEtcd, f.embeddedEtcd, o.Config.File,
			o.Config.Etcd.Mode)
	}
	if count := os.Getenv(envSnapshotCount); count != "" {
		if o.Etcd.SnapshotCount, err = strconv.ParseUint(count, 10, 64); err != nil {
			return fmt.Errorf("%s=%q is no number of writes; use one such as 5000", envSnapshotCount, count)
		}
	}
	if set := os.Getenv(envNoFsync); set != "" {
		if o.Etcd.NoFsync, err = strconv.ParseBool(set); err != nil {
			return fmt.Errorf("%s=%q is neither true nor false", envNoFsync, set)
		}
	}
	return nil
}
