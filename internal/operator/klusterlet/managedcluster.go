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
}

// managedCluster is the cluster that the agent manages. If the agent is hosted, it reports whether that cluster can be reached.
func (c *Controller) managedCluster(ctx context.Context, r *report, l layout) (managedCluster, error) {
	if !l.hosted {
		r.notHosted()
		return managedCluster{c.Management, c.Access}, nil
	}
	managed, err := c.connect(ctx, l)
	r.prepared(err)
	if err != nil {
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
	same, err := c.IsOwn(ctx, cluster, fleet.SecretExternalManagedKubeconfig)
	if err != nil {
		return managedCluster{}, err
	}
	if same {
		// One that prunes what the other has applied would undo it.
		cluster = c.Management
	}
	return managedCluster{cluster, access}, nil
}

// errNoKubeconfig says that it is not known where the managed cluster is.
var errNoKubeconfig = errors.New("it is not known how to reach the managed cluster")
