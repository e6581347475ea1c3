package playground

import (
	"context"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/apimachinery/pkg/types"

	clusterv1 "github.com/capstan-io/capstan/api/cluster/v1"
	"github.com/capstan-io/capstan/internal/cli/hubapi"
	"github.com/capstan-io/capstan/internal/cli/managedclusters"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
)

// awaitNoCluster returns once a cluster that is being deleted is gone.
func awaitNoCluster(ctx context.Context, hub *hubapi.Hub, name string, uid types.UID) error {
	err := hubapi.UntilNone(ctx, hub.Client(managedclusters.Resource), hubapi.Named(name),
		func(cluster *clusterv1.ManagedCluster) bool { return cluster.UID == uid })
	return hub.Explain("wait for the deletion of cluster "+name, err)
}

// awaitHeartbeat returns once the agent of a cluster has renewed its lease after a point in time.
func awaitHeartbeat(ctx context.Context, hub *hubapi.Hub, cluster string, after time.Time) error {
	leases := hub.Client(coordinationv1.SchemeGroupVersion.WithResource("leases")).Namespace(cluster)
	err := hubapi.Until(ctx, leases, hubapi.Named(fleet.ClusterNamespaceLease), func(lease *coordinationv1.Lease) bool {
		return lease.Spec.RenewTime != nil && lease.Spec.RenewTime.After(after)
	})
	return hub.Explain("wait for the agent of cluster "+cluster, err)
}
