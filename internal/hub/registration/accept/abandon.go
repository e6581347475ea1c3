package accept

import (
	"context"
	"fmt"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/log"

	addonv1beta1 "github.com/capstan-io/capstan/api/addon/v1beta1"
	clusterv1 "github.com/capstan-io/capstan/api/cluster/v1"
	workv1 "github.com/capstan-io/capstan/api/work/v1"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
)

// parting is how long the agent of a deleted cluster may still list and watch its works. Cleanup deletes these after the add-ons, and
// waits a few seconds for the agent with each; a connected agent has noticed the deletion by then.
const parting = 15 * time.Second

// abandon revokes the rights of a cluster that no longer exists, for example because a user has removed its finalizers: its agent may
// not renew its certificate, see the hub, or report. Rights in the namespace are deleted when cleanup has deleted the objects that they
// are for. The rights to works end earlier, except for the names of works that are left. The namespace stays, as after every deletion,
// because it may have other objects.
func (c *Controller) abandon(ctx context.Context, cluster string) (ctrl.Result, error) {
	if fleet.ReservedClusterName(cluster) || !c.leftBehind(ctx, cluster) {
		return ctrl.Result{}, nil
	}
	// The cache may lack a cluster that was created just now.
	err := c.live.Get(ctx, client.ObjectKey{Name: cluster}, &clusterv1.ManagedCluster{})
	if !apierrors.IsNotFound(err) {
		return ctrl.Result{}, err
	}
	log.FromContext(ctx).Info("The ManagedCluster is gone without the cleanup that its finalizers are for; its rights are taken away")
	if err := c.deleteClusterRole(ctx, cluster); err != nil {
		return ctrl.Result{}, err
	}
	addOns, err := c.remain(ctx, cluster, &addonv1beta1.ManagedClusterAddOnList{})
	if err != nil {
		return ctrl.Result{}, err
	}
	if !addOns || c.KeepsContent {
		if err := c.deleteRegistrationRoleBinding(ctx, cluster); err != nil {
			return ctrl.Result{}, err
		}
	}
	done, err := c.partFromWorks(ctx, cluster)
	if err != nil {
		return ctrl.Result{}, err
	}
	if addOns && !c.KeepsContent || !done {
		return again(false), nil
	}
	return ctrl.Result{}, c.deleteLease(ctx, cluster)
}

// partFromWorks deletes the rights to works when there are none left. After the agent has had its time, it replaces them by rights to
// the works that exist then, by name. The time counts from the deletion of the binding, which a finalizer delays. It returns false while
// there are works that the agent may finalize.
func (c *Controller) partFromWorks(ctx context.Context, cluster string) (bool, error) {
	remain, err := c.remain(ctx, cluster, &workv1.ManifestWorkList{})
	if err != nil {
		return false, err
	}
	if !remain {
		return true, c.deleteRightsToWorks(ctx, cluster)
	}
	binding := workRoleBinding(cluster)
	if err := c.live.Get(ctx, client.ObjectKeyFromObject(binding), binding); client.IgnoreNotFound(err) != nil {
		return false, fmt.Errorf("get RoleBinding %s/%s: %w", cluster, binding.Name, err)
	}
	if !c.KeepsContent && controllerutil.ContainsFinalizer(binding, fleet.FinalizerManifestWorkCleanup) {
		if binding.DeletionTimestamp.IsZero() {
			return false, c.delete(ctx, binding)
		}
		if c.Clock.Now().Before(binding.DeletionTimestamp.Add(parting)) {
			return false, nil
		}
	}
	return c.confineToWorks(ctx, cluster)
}

// revokeInherited revokes, from a cluster that is not accepted, the rights of a former cluster of the same name that was deleted without
// its cleanup.
func (c *Controller) revokeInherited(ctx context.Context, cluster string) (ctrl.Result, error) {
	if !c.leftBehind(ctx, cluster) {
		return ctrl.Result{}, nil
	}
	if err := c.deleteClusterRole(ctx, cluster); err != nil {
		return ctrl.Result{}, err
	}
	done, err := c.confine(ctx, cluster)
	if err != nil || !done {
		return again(done), err
	}
	return ctrl.Result{}, c.deleteLease(ctx, cluster)
}

// leftBehind reports whether there is any object that acceptance creates. It reads the cache first, and then the API server, because the
// cache may still have objects that were deleted just now.
func (c *Controller) leftBehind(ctx context.Context, cluster string) bool {
	return anyExists(ctx, c.client, cluster) && anyExists(ctx, c.live, cluster)
}

func anyExists(ctx context.Context, in client.Reader, cluster string) bool {
	global := metav1.ObjectMeta{Name: fleet.ManagedClusterClusterRole(cluster)}
	local := func(name string) metav1.ObjectMeta { return metav1.ObjectMeta{Namespace: cluster, Name: name} }
	for _, o := range []client.Object{
		&rbacv1.ClusterRole{ObjectMeta: global},
		&rbacv1.ClusterRoleBinding{ObjectMeta: global},
		&rbacv1.RoleBinding{ObjectMeta: local(fleet.RegistrationRoleBinding(cluster))},
		workRoleBinding(cluster),
		remainingWorksBinding(cluster),
		remainingWorksRole(cluster),
		&coordinationv1.Lease{ObjectMeta: local(fleet.ClusterNamespaceLease)},
	} {
		if err := in.Get(ctx, client.ObjectKeyFromObject(o), o); err == nil {
			return true
		}
	}
	return false
}
