package accept

import (
	"context"
	"fmt"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
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

// parting is how long the agent of a cluster that does not exist may list and watch its works. Cleanup deletes these after the add-ons, and
// waits a few seconds for the agent with each; one that is connected has taken note by then.
const parting = 15 * time.Second

// abandon takes away what is left of a cluster that does not exist, as after somebody has taken its finalizers off: its agent may not renew
// its certificate, see the hub, or report. Its rights in the namespace go when what they are for has gone from there, which cleanup sees
// to. Those to works do not wait for that: they end in good time, but for the names of what is left.
// The namespace stays, as it does after every deletion: there may be more in it.
func (c *Controller) abandon(ctx context.Context, cluster string) (ctrl.Result, error) {
	if fleet.ReservedClusterName(cluster) || !c.leftBehind(ctx, cluster) {
		return ctrl.Result{}, nil
	}
	// The cache may not have a cluster yet that has just been made.
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

// partFromWorks takes the rights to works away when none are left, and when the agent has had its time, all of them but the names of those
// that there are then. That its time runs, the binding tells, which is being deleted and has a finalizer. It reports false while there are
// works that the agent may finish with.
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
	done, err := c.confineToWorks(ctx, cluster)
	if apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) {
		return false, nil // nothing can be made there any more, neither rights nor works
	}
	return done, err
}

// disinherit keeps a cluster that nobody has accepted from the rights of one that had its name before, and is gone without its cleanup.
func (c *Controller) disinherit(ctx context.Context, cluster string) (ctrl.Result, error) {
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

// leftBehind tells whether there is anything that the agent of a cluster gets with its acceptance. The cache, which is asked first, may
// still have what has just been taken away.
func (c *Controller) leftBehind(ctx context.Context, cluster string) bool {
	return holds(ctx, c.client, cluster) && holds(ctx, c.live, cluster)
}

func holds(ctx context.Context, in client.Reader, cluster string) bool {
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
