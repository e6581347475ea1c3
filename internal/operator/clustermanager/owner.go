package clustermanager

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	operatorv1 "github.com/capstan-io/capstan/api/operator/v1"
	"github.com/capstan-io/capstan/internal/apiclient"
	"github.com/capstan-io/capstan/internal/apply"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
)

// crdManagedClusters is a definition that each hub has: the ClusterManager that it is part of has the hub.
const crdManagedClusters = "managedclusters.cluster.open-cluster-management.io"

// checkOwner is an error if a hosted hub is on the cluster of the operator, where the objects of both clusters would be the same, or is
// that of another ClusterManager: one that is installed in the cluster of the hub, or one of this operator.
func (c *Controller) checkOwner(ctx context.Context, cm *operatorv1.ClusterManager, hub *apply.Cluster) error {
	if !hosted(cm) {
		return nil
	}
	same, err := c.IsOwn(ctx, hub, fleet.SecretExternalHubKubeconfig)
	if err != nil {
		return err
	}
	if same {
		return fmt.Errorf("the kubeconfig in Secret %s/%s leads to the cluster of the operator: store one of another cluster, or delete the "+
			"ClusterManager and create it in the mode %s", cm.Name, fleet.SecretExternalHubKubeconfig, operatorv1.InstallModeDefault)
	}
	resident, err := residentOf(ctx, hub)
	if err != nil {
		return err
	}
	if resident != "" {
		return fmt.Errorf("the hub that the kubeconfig in Secret %s/%s leads to is that of ClusterManager %s in the cluster of the hub: store a "+
			"kubeconfig of another cluster, or delete that ClusterManager, with all that is stored in the hub; if no operator runs there, take its "+
			"finalizers off and delete it", cm.Name, fleet.SecretExternalHubKubeconfig, resident)
	}
	other, err := c.otherOwner(ctx, cm, hub)
	if err != nil {
		return err
	}
	if other != "" {
		return fmt.Errorf("the hub that the kubeconfig in Secret %s/%s leads to is that of ClusterManager %s: change that one, or store a kubeconfig "+
			"of another cluster", cm.Name, fleet.SecretExternalHubKubeconfig, other)
	}
	return nil
}

// unlessResident is the hub, of which a removal deletes what has the name of the ClusterManager; nil if a ClusterManager in the cluster of
// the hub has it, which may have the same name.
func (c *Controller) unlessResident(ctx context.Context, cm *operatorv1.ClusterManager, hub *apply.Cluster) (*apply.Cluster, error) {
	if !hosted(cm) {
		return hub, nil
	}
	same, err := c.IsOwn(ctx, hub, fleet.SecretExternalHubKubeconfig)
	if err != nil {
		return nil, err
	}
	if same { // that ClusterManager is one of this operator: see sameHub and otherOwner
		return hub, nil
	}
	resident, err := residentOf(ctx, hub)
	if err != nil {
		return nil, err
	}
	if resident != "" {
		log.FromContext(ctx).Info("The hub stays: a ClusterManager in its cluster has it", "clusterManager", resident)
		return nil, nil
	}
	return hub, nil
}

// residentOf is a ClusterManager in the cluster of a hub that has the hub, of whatever name; empty if there is none. The hubs of those that
// are hosted are elsewhere.
func residentOf(ctx context.Context, hub *apply.Cluster) (string, error) {
	all := &operatorv1.ClusterManagerList{}
	err := hub.Client.List(ctx, all)
	if meta.IsNoMatchError(err) || apierrors.IsNotFound(err) || apiclient.Denied(err) {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("find out whether the cluster of the hub has a ClusterManager: %w", err)
	}
	for i := range all.Items {
		if !hosted(&all.Items[i]) {
			return all.Items[i].Name, nil
		}
	}
	return "", nil
}

// otherOwner is another ClusterManager that has the hub; empty if there is none. What a ClusterManager that is gone has left can be taken
// over.
func (c *Controller) otherOwner(ctx context.Context, cm *operatorv1.ClusterManager, hub *apply.Cluster) (string, error) {
	crd := &metav1.PartialObjectMetadata{}
	crd.SetGroupVersionKind(apply.CRDs)
	if err := hub.Client.Get(ctx, types.NamespacedName{Name: crdManagedClusters}, crd); err != nil {
		if apierrors.IsNotFound(err) {
			return "", nil
		}
		return "", fmt.Errorf("find out which ClusterManager has the hub: %w", err)
	}
	name := crd.Labels[fleet.LabelCreatedByClusterManager]
	if name == "" || name == cm.Name {
		return "", nil
	}
	if err := c.Client.Get(ctx, types.NamespacedName{Name: name}, &operatorv1.ClusterManager{}); err != nil {
		return "", client.IgnoreNotFound(err)
	}
	return name, nil
}
