package klusterlet

import (
	"context"
	"errors"
	"fmt"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/capstan-io/capstan/internal/apply"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
	"github.com/capstan-io/capstan/internal/operator/frame"
)

// managedCluster is the cluster that an agent manages, and how it is reached.
type managedCluster struct {
	*apply.Cluster
	access *rest.Config
	// here reports whether it is the cluster of the operator. That of a hosted Klusterlet says so itself: it decides what is left there,
	// and never where something is granted, or whose credential is used.
	here bool
}

// managedCluster is the cluster that the agent manages. If the agent is hosted, it reports whether that cluster can be reached.
func (c *Controller) managedCluster(ctx context.Context, r *report, l layout) (managedCluster, error) {
	if !l.hosted {
		r.notHosted()
		return managedCluster{Cluster: c.Management, access: c.Access, here: true}, nil
	}
	managed, err := c.connect(ctx, l)
	r.prepared(err)
	if err != nil {
		return managed, err
	}
	if err := c.clearUnreachable(ctx, l.klusterlet); err != nil { // of a removal that was taken back
		return managed, err
	}
	return managed, frame.AddFinalizer(ctx, c.Client, l.klusterlet, fleet.FinalizerKlusterletHostedCleanup)
}

// connect connects to the managed cluster of a hosted Klusterlet, by the kubeconfig in the Secret external-managed-kubeconfig.
func (c *Controller) connect(ctx context.Context, l layout) (managedCluster, error) {
	name := types.NamespacedName{Namespace: l.klusterlet.Name, Name: fleet.SecretExternalManagedKubeconfig}
	secret, err := c.Secrets.Get(ctx, name.Namespace, name.Name)
	if err != nil {
		return managedCluster{}, err
	}
	if secret == nil {
		return managedCluster{}, fmt.Errorf("there is no Secret %s: %w; store a kubeconfig of the managed cluster there, under the key %s", name,
			errNoKubeconfig, fleet.KeyKubeconfig)
	}
	cluster, access, err := c.Elsewhere.Connect(ctx, l.klusterlet.Name, secret)
	if err != nil {
		return managedCluster{}, err
	}
	return c.reached(ctx, cluster, access)
}

// reached is the managed cluster once it is reached. Whatever it says that it is, the rights of the agents are given by its kubeconfig, and
// their tokens are its own: who answers at its address gets no more than the owner of the kubeconfig has.
func (c *Controller) reached(ctx context.Context, cluster *apply.Cluster, access *rest.Config) (managedCluster, error) {
	here, err := c.IsOwn(ctx, cluster, fleet.SecretExternalManagedKubeconfig)
	return managedCluster{Cluster: cluster, access: access, here: here}, err
}

// errNoKubeconfig says that it is not known where the managed cluster is.
var errNoKubeconfig = errors.New("it is not known how to reach the managed cluster")
