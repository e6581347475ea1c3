package main

import (
	"context"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/pflag"
	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"

	gatewayv1alpha1 "github.com/capstan-io/capstan/api/gateway/v1alpha1"
	"github.com/capstan-io/capstan/internal/controlplane"
	"github.com/capstan-io/capstan/internal/leaderelection"
	"github.com/capstan-io/capstan/internal/reach/gateway"
	"github.com/capstan-io/capstan/internal/reach/gateway/identity"
)

const (
	flagGatewayNamespace = "gateway-secret-namespace"
	flagGatewayRules     = "cluster-gateway-proxy-config"
	// flagSecretNamespace is flagGatewayNamespace of the programs that are about gateways alone.
	flagSecretNamespace = "secret-namespace"

	// gatewayLease is by which one of several replicas probes clusters.
	gatewayLease = "capstan-cluster-gateway"
)

// gatewayFlags are about ClusterGateways.
type gatewayFlags struct {
	namespace        string
	rules            string
	authorizeSubpath bool
	execCommands     []string
	withControlPlane bool
}

func newGatewayFlags() gatewayFlags {
	return gatewayFlags{namespace: gateway.DefaultNamespace, withControlPlane: true}
}

func (f *gatewayFlags) add(flags *pflag.FlagSet) {
	flags.StringVar(&f.namespace, flagGatewayNamespace, f.namespace,
		"Namespace of the Secrets that ClusterGateways are made of: how clusters are reached, and as whom.")
	flags.StringVar(&f.rules, flagGatewayRules, f.rules,
		"File with a ClusterGatewayProxyConfiguration: who callers of ClusterGateways are on clusters, if requests are to impersonate them.")
	flags.BoolVar(&f.authorizeSubpath, "authorize-proxy-subpath", f.authorizeSubpath,
		"Let callers of ClusterGateways do on clusters only what they may do on this hub, too.")
	flags.BoolVar(&f.withControlPlane, "virtual-clutser-with-control-plane", f.withControlPlane,
		"Show this hub among the VirtualClusters, as "+gatewayv1alpha1.ControlPlaneName+".")
	flags.StringSliceVar(&f.execCommands, "gateway-exec-commands", f.execCommands,
		"Commands that Secrets of ClusterGateways may name to tell a credential, as they are written there. They run with the rights of the hub.")
}

// options are those of the gateway, for a hub with these gates.
func (f *gatewayFlags) options(penetrate bool) (gateway.Options, error) {
	o := gateway.Options{Namespace: f.namespace, AuthorizeSubpath: f.authorizeSubpath, ExecCommands: f.execCommands,
		PenetrateIdentity: penetrate, WithoutControlPlane: !f.withControlPlane}
	if problems := validation.IsDNS1123Label(f.namespace); len(problems) > 0 {
		return o, fmt.Errorf("--%s=%q cannot be the name of a namespace: %s", flagGatewayNamespace, f.namespace, strings.Join(problems, "; "))
	}
	if f.rules == "" {
		return o, nil
	}
	text, err := os.ReadFile(f.rules)
	if err != nil {
		return o, fmt.Errorf("--%s: %w", flagGatewayRules, err)
	}
	if o.Rules, err = identity.Parse(text); err != nil {
		return o, fmt.Errorf("--%s %s: %w", flagGatewayRules, f.rules, err)
	}
	return o, nil
}

// gatewayGroup is the part of the API that a gateway answers for.
func gatewayGroup(g *gateway.Gateway) controlplane.APIGroup {
	return controlplane.APIGroup{
		Version: gatewayv1alpha1.GroupVersion, Scheme: gateway.NewScheme(), Definitions: gateway.Definitions,
		Group: g.APIGroup, Handler: g.Handler,
	}
}

// withGateway also runs a gateway.
func withGateway(controllers controlplane.ControllersFunc, g *gateway.Gateway, withoutElection bool) controlplane.ControllersFunc {
	return func(ctx context.Context, config *rest.Config, elect bool, started func()) error {
		client, err := kubernetes.NewForConfig(config)
		if err != nil {
			return err
		}
		all, ctx := errgroup.WithContext(ctx)
		all.Go(func() error { return controllers(ctx, config, elect, started) })
		all.Go(func() error { return runGateway(ctx, g, client, elect && !withoutElection, systemNamespace) })
		return all.Wait()
	}
}

// runGateway follows the Secrets of a gateway, and probes clusters. If there are several on the same Secrets, the holder of a
// Lease does that.
func runGateway(ctx context.Context, g *gateway.Gateway, client kubernetes.Interface, elect bool, leaseNamespace string) error {
	all, ctx := errgroup.WithContext(ctx)
	all.Go(func() error { return g.Run(ctx, client) })
	all.Go(func() error {
		ctx := klog.NewContext(ctx, klog.FromContext(ctx).WithName("cluster-gateway"))
		if !elect {
			return g.Probe(ctx)
		}
		lock, err := leaderelection.Lock(client.CoordinationV1(), leaseNamespace, gatewayLease)
		if err != nil {
			return err
		}
		return leaderelection.Lead(ctx, lock, g.Probe)
	})
	return all.Wait()
}
