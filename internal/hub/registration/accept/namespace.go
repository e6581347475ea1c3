package accept

import (
	"context"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capstan-io/capstan/internal/machinery/fleet"
)

// ensureNamespace returns when the cache has the namespace. The API server reads the namespace of each new object, and does so in the
// storage as long as its own cache lacks it.
func (c *Controller) ensureNamespace(ctx context.Context, cluster string) error {
	key := client.ObjectKey{Name: cluster}
	if err := ensure(ctx, c, key, func(ns *corev1.Namespace) { c.label(ns, cluster) }); err != nil {
		return err
	}
	return client.IgnoreNotFound(c.client.Get(ctx, key, &corev1.Namespace{}))
}

// ensureLease creates the Lease of the cluster, which the agent renews.
func (c *Controller) ensureLease(ctx context.Context, cluster string) error {
	return ensure(ctx, c, client.ObjectKey{Namespace: cluster, Name: fleet.ClusterNamespaceLease}, func(lease *coordinationv1.Lease) {
		c.label(lease, cluster)
		if lease.Spec.HolderIdentity == nil {
			lease.Spec.HolderIdentity = ptr.To(fleet.ClusterNamespaceLease)
			lease.Spec.RenewTime = ptr.To(metav1.NewMicroTime(c.Clock.Now()))
		}
	})
}
