package klusterlet

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/capstan-io/capstan/internal/cloudevents/grpcconfig"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
	"github.com/capstan-io/capstan/internal/operator/frame"
	"github.com/capstan-io/capstan/internal/operator/klusterlet/hubaccess"
)

// inputs reads what the plan is made of.
func (c *Controller) inputs(ctx context.Context, l layout) (inputs, error) {
	in := inputs{defaultImage: c.Image, awsCLIImage: c.options.AWSCLIImage, addOnNamespace: !c.options.WithoutAddOnNamespace,
		syncLabels: c.SyncLabels}
	var err error
	if in.pullSecret, err = c.OwnSecret(ctx, c.PullSecret); err != nil {
		return in, err
	}
	if in.tlsProfile, err = c.TLSProfile(ctx); err != nil {
		return in, err
	}
	if in.replicas, err = c.ReplicasFor(ctx, l.hosted, l.klusterlet.Spec.NodePlacement); err != nil {
		return in, err
	}
	credential, err := c.Secrets.Get(ctx, l.agents, fleet.SecretHubKubeconfig)
	if err != nil {
		return in, err
	}
	if credential != nil {
		in.clusterName = string(credential.Data[fleet.KeyClusterName])
	}
	in.holdWork = credential == nil ||
		!hubaccess.HasCredential(meta.FindStatusCondition(l.klusterlet.Status.Conditions, fleet.ConditionHubConnectionDegraded))
	if in.apiPorts, err = c.APIPorts(ctx, frame.PortOf(c.Access.Host)); err != nil {
		return in, err
	}
	in.hubPorts, err = c.hubPorts(ctx, l)
	return in, err
}

// connection returns what is known about the connection to the hub, nil if nothing is yet, and when it is looked at again.
func (c *Controller) connection(ctx context.Context, l layout) (due time.Duration, condition *metav1.Condition, err error) {
	credentials := hubaccess.Credentials{Namespace: l.agents, SkipBootstrap: l.multipleHubs(), GRPC: l.grpc()}
	if credentials.Hub, err = c.Secrets.Get(ctx, l.agents, fleet.SecretHubKubeconfig); err != nil {
		return 0, nil, err
	}
	if !credentials.SkipBootstrap {
		if credentials.Bootstrap, err = c.Secrets.Get(ctx, l.agents, fleet.SecretBootstrapHubKubeconfig); err != nil {
			return 0, nil, err
		}
	}
	condition, due = c.hub.Result(l.klusterlet.Name, credentials) //nolint:contextcheck // a check outlives the reconcile
	return due, condition, nil
}

// hubPorts are those of the hubs, of their proxies, and of the managed cluster if the agent is hosted: all that the Secrets of the agents
// lead to.
func (c *Controller) hubPorts(ctx context.Context, l layout) (ports []int32, err error) {
	names := append(l.bootstrapSecrets(), fleet.SecretHubKubeconfig)
	if l.hosted {
		names = append(names, fleet.SecretExternalManagedKubeconfig)
	}
	for _, name := range names {
		secret, err := c.Secrets.Get(ctx, l.agents, name)
		if err != nil {
			return nil, err
		}
		if secret != nil {
			ports = append(ports, portsOf(secret.Data[fleet.KeyKubeconfig])...)
			if l.grpc() {
				ports = append(ports, grpcPortOf(secret.Data[fleet.KeyConfig])...)
			}
		}
	}
	return frame.Distinct(ports), nil
}

// portsOf are the ports of the servers and proxies of a kubeconfig; none of one that cannot be read, which a condition tells about.
func portsOf(kubeconfig []byte) (ports []int32) {
	config, err := clientcmd.Load(kubeconfig)
	if err != nil {
		return nil
	}
	for _, cluster := range config.Clusters {
		for _, address := range []string{cluster.Server, cluster.ProxyURL} {
			ports = append(ports, frame.PortOf(address))
		}
	}
	return ports
}

// grpcPortOf is the port of the server in the configuration of a gRPC client; none of one that cannot be read.
func grpcPortOf(content []byte) []int32 {
	config, err := grpcconfig.Parse(content)
	if err != nil {
		return nil
	}
	return []int32{frame.PortOf("grpc://" + config.URL)}
}
