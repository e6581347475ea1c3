package klusterlet

import (
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capstan-io/capstan/internal/cloudevents/grpcconfig"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
	"github.com/capstan-io/capstan/internal/operator/klusterlet/hubaccess"
	"github.com/capstan-io/capstan/internal/operator/rights"
	"github.com/capstan-io/capstan/internal/operator/topology"
	"github.com/capstan-io/capstan/internal/operator/urlport"
)

// inputs reads what the plan is made of.
func (c *Controller) inputs(ctx context.Context, l layout) (inputs, error) {
	in := inputs{defaultImage: c.Image, awsCLIImage: c.AWSCLIImage, addOnNamespace: !c.WithoutAddOnNamespace, syncLabels: c.SyncLabels}
	var err error
	if in.pullSecret, err = c.pullSecret(ctx); err != nil {
		return in, err
	}
	if in.tlsProfile, err = c.tlsProfile(ctx); err != nil {
		return in, err
	}
	if in.replicas, err = c.replicas(ctx, l); err != nil {
		return in, err
	}
	credential, err := c.secrets.get(ctx, l.agents, fleet.SecretHubKubeconfig)
	if err != nil {
		return in, err
	}
	if credential != nil {
		in.clusterName = string(credential.Data[fleet.KeyClusterName])
	}
	in.holdWork = credential == nil ||
		!hubaccess.HasCredential(meta.FindStatusCondition(l.klusterlet.Status.Conditions, fleet.ConditionHubConnectionDegraded))
	if in.apiPorts, err = c.apiPorts(ctx); err != nil {
		return in, err
	}
	in.hubPorts, err = c.hubPorts(ctx, l)
	return in, err
}

// pullSecret has the credentials for images; nil if there are none, or they may not be read: many clusters need none.
func (c *Controller) pullSecret(ctx context.Context) (*corev1.Secret, error) {
	secret, err := c.secrets.get(ctx, c.Namespace, fleet.SecretImagePullCredentials)
	if rights.Denied(err) {
		return nil, nil
	}
	return secret, err
}

func (c *Controller) tlsProfile(ctx context.Context) (*corev1.ConfigMap, error) {
	profile := &corev1.ConfigMap{}
	return ignoreNotFound(profile, c.client.Get(ctx, types.NamespacedName{Namespace: c.Namespace, Name: fleet.ConfigMapTLSProfile}, profile))
}

// replicas are those of each agent. There may be many hosted agents on a cluster, so each has one.
func (c *Controller) replicas(ctx context.Context, l layout) (int32, error) {
	if l.hosted {
		return 1, nil
	}
	if c.Replicas > 0 {
		return c.Replicas, nil
	}
	nodes := &corev1.NodeList{}
	if err := c.client.List(ctx, nodes); err != nil {
		return 0, fmt.Errorf("list the nodes to choose the number of replicas: %w", err)
	}
	return topology.Replicas(nodes.Items, l.klusterlet.Spec.NodePlacement, c.Nodes), nil
}

// connection returns what is known about the connection to the hub, nil if nothing is yet, and when it is looked at again.
func (c *Controller) connection(ctx context.Context, l layout) (due time.Duration, condition *metav1.Condition, err error) {
	credentials := hubaccess.Credentials{Namespace: l.agents, SkipBootstrap: l.multipleHubs(), GRPC: l.grpc()}
	if credentials.Hub, err = c.secrets.get(ctx, l.agents, fleet.SecretHubKubeconfig); err != nil {
		return 0, nil, err
	}
	if !credentials.SkipBootstrap {
		if credentials.Bootstrap, err = c.secrets.get(ctx, l.agents, fleet.SecretBootstrapHubKubeconfig); err != nil {
			return 0, nil, err
		}
	}
	condition, due = c.hub.Result(l.klusterlet.Name, credentials) //nolint:contextcheck // a check outlives the reconcile
	return due, condition, nil
}

// usualAPIPorts are those of API servers that cannot be looked up.
var usualAPIPorts = []int32{443, 6443}

// apiPorts are those at which pods reach the API server of the operator's cluster: that of the Service kubernetes, and those of the servers
// behind it.
func (c *Controller) apiPorts(ctx context.Context) ([]int32, error) {
	var ports []int32
	if port := urlport.Of(c.access.Host); port != 0 {
		ports = append(ports, port)
	}
	slices := &discoveryv1.EndpointSliceList{}
	if !c.watched(discoveryv1.SchemeGroupVersion.WithKind("EndpointSlice")) {
		ports = append(ports, usualAPIPorts...)
	}
	if err := c.client.List(ctx, slices, client.InNamespace(metav1.NamespaceDefault),
		client.MatchingLabels{discoveryv1.LabelServiceName: "kubernetes"}); err != nil {
		return nil, fmt.Errorf("list the addresses of the API server: %w", err)
	}
	for i := range slices.Items {
		for _, port := range slices.Items[i].Ports {
			if port.Port != nil {
				ports = append(ports, *port.Port)
			}
		}
	}
	return sorted(ports), nil
}

// hubPorts are those of the hubs, of their proxies, and of the managed cluster if the agent is hosted: all that the Secrets of the agents
// lead to.
func (c *Controller) hubPorts(ctx context.Context, l layout) (ports []int32, err error) {
	names := append(l.bootstrapSecrets(), fleet.SecretHubKubeconfig)
	if l.hosted {
		names = append(names, fleet.SecretExternalManagedKubeconfig)
	}
	for _, name := range names {
		secret, err := c.secrets.get(ctx, l.agents, name)
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
	return sorted(ports), nil
}

// portsOf are the ports of the servers and proxies of a kubeconfig; none of one that cannot be read, which a condition tells about.
func portsOf(kubeconfig []byte) (ports []int32) {
	config, err := clientcmd.Load(kubeconfig)
	if err != nil {
		return nil
	}
	for _, cluster := range config.Clusters {
		for _, address := range []string{cluster.Server, cluster.ProxyURL} {
			if port := urlport.Of(address); port != 0 {
				ports = append(ports, port)
			}
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
	return []int32{urlport.Of("grpc://" + config.URL)}
}

func sorted(ports []int32) []int32 {
	slices.Sort(ports)
	return slices.Compact(ports)
}
