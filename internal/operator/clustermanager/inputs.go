package clustermanager

import (
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	operatorv1 "github.com/capstan-io/capstan/api/operator/v1"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
	"github.com/capstan-io/capstan/internal/operator/accountkubeconfig"
	"github.com/capstan-io/capstan/internal/operator/apply"
	"github.com/capstan-io/capstan/internal/operator/rights"
	"github.com/capstan-io/capstan/internal/operator/servingcerts"
	"github.com/capstan-io/capstan/internal/operator/tlsprofile"
	"github.com/capstan-io/capstan/internal/operator/topology"
	"github.com/capstan-io/capstan/internal/operator/urlport"
)

// authorityName is the prefix of the common name of a hub's certificate authority.
const authorityName = "cluster-manager-webhook"

// inputs reads what the plan depends on.
func (c *Controller) inputs(ctx context.Context, cm *operatorv1.ClusterManager) (inputs, error) {
	in := inputs{namespace: namespaceOf(cm), image: c.Image, syncLabels: c.SyncLabels}
	var err error
	if in.replicas, err = c.replicas(ctx, cm); err != nil {
		return in, err
	}
	pull, profile := &corev1.Secret{}, &corev1.ConfigMap{}
	if found, err := c.find(ctx, c.PullSecret, pull); err != nil {
		return in, err
	} else if found {
		in.pullSecret = pull
	}
	if found, err := c.find(ctx, fleet.ConfigMapTLSProfile, profile); err != nil {
		return in, err
	} else if found {
		in.tlsFlags = tlsprofile.Flags(profile)
	}
	if in.grpc, err = c.grpcInputs(ctx, cm); err != nil {
		return in, err
	}
	if in.workDriver, err = c.workDriverConfig(ctx, cm); err != nil {
		return in, err
	}
	if in.formerServices, err = c.formerServices(ctx, cm); err != nil {
		return in, err
	}
	in.apiServerPorts, err = c.apiServerPorts(ctx)
	return in, err
}

// formerServices tells whether there are still all Services of webhooks that an earlier version has named after the ClusterManager: they
// go when the API server of the hub asks at the others.
func (c *Controller) formerServices(ctx context.Context, cm *operatorv1.ClusterManager) (bool, error) {
	if cm.Name+"-" == servicePrefix {
		return false, nil
	}
	for _, webhook := range []string{registrationWebhook, workWebhook, addOnWebhook} {
		service := &corev1.Service{}
		found, err := c.stored(ctx, namespaceOf(cm), cm.Name+"-"+webhook, service)
		if err != nil {
			return false, err
		}
		if !found || !service.DeletionTimestamp.IsZero() || service.Labels[fleet.LabelCreatedByClusterManager] != cm.Name {
			return false, nil
		}
	}
	return true, nil
}

// replicas are those of each component. A hosted hub has one of each.
func (c *Controller) replicas(ctx context.Context, cm *operatorv1.ClusterManager) (int32, error) {
	if hosted(cm) {
		return 1, nil
	}
	if c.Replicas > 0 {
		return c.Replicas, nil
	}
	nodes := &corev1.NodeList{}
	if err := c.client.List(ctx, nodes); err != nil {
		return 0, fmt.Errorf("list the nodes to choose the number of replicas: %w", err)
	}
	return topology.Replicas(nodes.Items, cm.Spec.NodePlacement, c.Nodes), nil
}

// find reads an object of the operator's namespace, and tells whether it exists.
func (c *Controller) find(ctx context.Context, name string, into client.Object) (bool, error) {
	if name == "" {
		return false, nil
	}
	err := c.client.Get(ctx, types.NamespacedName{Namespace: c.Namespace, Name: name}, into)
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	return err == nil, err
}

// apiServerPorts are those at which pods reach API servers: of the Service kubernetes, of what is behind it, and the usual ones.
func (c *Controller) apiServerPorts(ctx context.Context) ([]int32, error) {
	ports := []int32{443, 6443}
	endpoints := &discoveryv1.EndpointSliceList{}
	err := c.management.Client.List(ctx, endpoints, client.InNamespace(metav1.NamespaceDefault),
		client.MatchingLabels{discoveryv1.LabelServiceName: "kubernetes"})
	if rights.Denied(err) {
		return ports, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list the endpoints of the API server: %w", err)
	}
	for i := range endpoints.Items {
		for _, port := range endpoints.Items[i].Ports {
			ports = append(ports, ptr.Deref(port.Port, ports[0]))
		}
	}
	return distinctPorts(ports), nil
}

// portsOf are the ports at which a cluster elsewhere is reached, and its proxy.
func portsOf(access *rest.Config) []int32 {
	found := []int32{urlport.Of(access.Host)}
	if access.Proxy != nil {
		if proxy, err := access.Proxy(nil); err == nil && proxy != nil {
			found = append(found, urlport.Of(proxy.String()))
		}
	}
	return slices.DeleteFunc(found, func(port int32) bool { return port == 0 })
}

func distinctPorts(ports []int32) []int32 {
	slices.Sort(ports)
	return slices.Compact(ports)
}

// certificates are those that the hub should have now.
func (c *Controller) certificates(ctx context.Context, p planned) (*servingcerts.Certificates, error) {
	stored := servingcerts.Stored{Serving: map[string]*corev1.Secret{}, Own: func(s *corev1.Secret) bool {
		return s.Labels[fleet.LabelCreatedByClusterManager] == p.Name
	}}
	authority, bundle := &corev1.Secret{}, &corev1.ConfigMap{}
	if found, err := c.stored(ctx, p.namespace, fleet.SecretSigner, authority); err != nil {
		return nil, err
	} else if found {
		stored.Authority = authority
	}
	if found, err := c.stored(ctx, p.namespace, fleet.ConfigMapCABundle, bundle); err != nil {
		return nil, err
	} else if found {
		stored.Bundle = bundle
	}
	for _, server := range p.servers() {
		secret := &corev1.Secret{}
		if found, err := c.stored(ctx, p.namespace, server.Secret, secret); err != nil {
			return nil, err
		} else if found {
			stored.Serving[server.Secret] = secret
		}
	}
	return servingcerts.Renew(c.Clock.Now(), p.namespace, authorityName, p.servers(), stored)
}

// stored reads an object from the management cluster, and tells whether it exists.
func (c *Controller) stored(ctx context.Context, namespace, name string, into client.Object) (bool, error) {
	err := c.management.Client.Get(ctx, types.NamespacedName{Namespace: namespace, Name: name}, into)
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	return err == nil, err
}

// hostedAccounts gives the plan the kubeconfigs of the hub's service accounts, and returns when the first has to be renewed.
func (c *Controller) hostedAccounts(ctx context.Context, p *planned, hub *apply.Cluster, access *rest.Config) (time.Time, error) {
	due := c.Clock.Now().Add(safetyNet)
	for _, name := range p.accountNames() {
		existing := &corev1.Secret{}
		found, err := c.stored(ctx, p.namespace, accountSecret(name), existing)
		if err != nil {
			return due, err
		}
		if !found {
			existing = nil
		}
		account := accountkubeconfig.Account{Cluster: hub.Client, Access: access, Name: types.NamespacedName{Namespace: p.namespace, Name: name}}
		secret, refresh, err := accountkubeconfig.Renew(ctx, c.Clock.Now(), account,
			types.NamespacedName{Namespace: p.namespace, Name: accountSecret(name)}, existing)
		if err != nil {
			return due, err
		}
		p.accounts, due = append(p.accounts, secret), earliest(due, refresh)
	}
	return due, nil
}
