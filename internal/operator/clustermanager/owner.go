package clustermanager

import (
	"context"
	"fmt"
	"slices"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
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
		return unreached(err)
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
	return c.checkOther(ctx, cm, hub)
}

// checkOther is an error if a hosted hub is that of another ClusterManager of this operator.
func (c *Controller) checkOther(ctx context.Context, cm *operatorv1.ClusterManager, hub *apply.Cluster) error {
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
		return nil, unreached(err)
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
	name, err := ownerOf(ctx, hub)
	if err != nil || name == "" || name == cm.Name {
		return "", err
	}
	if err := c.Client.Get(ctx, types.NamespacedName{Name: name}, &operatorv1.ClusterManager{}); err != nil {
		return "", client.IgnoreNotFound(err)
	}
	return name, nil
}

// ownerOf is the ClusterManager that has the hub, or had it before it went; empty if there is none.
func ownerOf(ctx context.Context, hub *apply.Cluster) (string, error) {
	crd := &metav1.PartialObjectMetadata{}
	crd.SetGroupVersionKind(apply.CRDs)
	if err := hub.Client.Get(ctx, types.NamespacedName{Name: crdManagedClusters}, crd); err != nil {
		if apierrors.IsNotFound(err) {
			return "", nil
		}
		return "", fmt.Errorf("find out which ClusterManager has the hub: %w", err)
	}
	return crd.Labels[fleet.LabelCreatedByClusterManager], nil
}

// claim makes a hosted hub that of the ClusterManager, before anything else is applied there. ClusterManagers that lead to the same hub are
// installed at the same time: the first has it.
func (c *Controller) claim(ctx context.Context, cm *operatorv1.ClusterManager, hub *apply.Cluster,
	desired []*apiextensionsv1.CustomResourceDefinition) error {
	if !hosted(cm) {
		return nil
	}
	return c.claimWith(ctx, cm, hub, func() error {
		at := slices.IndexFunc(desired, func(crd *apiextensionsv1.CustomResourceDefinition) bool { return crd.Name == crdManagedClusters })
		return hub.ApplyCRDs(ctx, cm.Name, []*apiextensionsv1.CustomResourceDefinition{desired[at].DeepCopy()})
	})
}

// claimWith applies the definition by which a hub has its ClusterManager, unless the hub is its already, or another's.
func (c *Controller) claimWith(ctx context.Context, cm *operatorv1.ClusterManager, hub *apply.Cluster, applyDefinition func() error) error {
	if owner, err := ownerOf(ctx, hub); err != nil || owner == cm.Name {
		return err
	}
	c.claiming.Lock()
	defer c.claiming.Unlock()
	if err := c.checkOther(ctx, cm, hub); err != nil {
		return err
	}
	return applyDefinition()
}

// unreachedError is why a hub does not answer: it would keep a reconcile waiting for as long again if it were asked once more.
type unreachedError struct{ error }

// Unwrap returns the reason.
func (e unreachedError) Unwrap() error { return e.error }

// unreached says of an error that the hub does not answer, unless it has answered with the error.
func unreached(err error) error {
	if err == nil || apierrors.ReasonForError(err) != metav1.StatusReasonUnknown {
		return err
	}
	return unreachedError{err}
}
