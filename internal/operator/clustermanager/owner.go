package clustermanager

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	operatorv1 "github.com/capstan-io/capstan/api/operator/v1"
	"github.com/capstan-io/capstan/internal/apply"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
)

// crdManagedClusters is a definition that each hub has: the ClusterManager that it is part of has the hub.
const crdManagedClusters = "managedclusters.cluster.open-cluster-management.io"

// checkOwner is an error if a hosted hub is on the cluster of the operator, where the objects of both clusters would be the same, or is
// that of another ClusterManager.
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
