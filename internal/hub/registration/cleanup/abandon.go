package cleanup

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	clusterv1 "github.com/capstan-io/capstan/api/cluster/v1"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
)

// parting is how long the agent of a cluster that does not exist has for what is deleted because of that. One that is connected needs a
// moment to take note, and then undoes the rest without the hub; most often there is none.
const parting = 5 * time.Second

// abandon empties the namespace of a cluster that does not exist, as after somebody has taken its finalizers off: the next cluster of the
// name must not find them there. That the namespace is one of such a cluster, the rights tell that the agent has in it; they go last. Where
// there are none, what is in it is somebody's who has yet to make the cluster.
func (c *Controller) abandon(ctx context.Context, cluster string) (ctrl.Result, error) {
	if c.Off {
		return ctrl.Result{}, nil
	}
	abandoned, err := c.isAbandoned(ctx, cluster)
	if err != nil || !abandoned {
		return ctrl.Result{}, err
	}
	resource, remaining, err := c.next(ctx, cluster, func(o metav1.Object) bool {
		deleted := o.GetDeletionTimestamp()
		return !deleted.IsZero() && !c.Clock.Now().Before(deleted.Add(parting))
	})
	if err != nil {
		return ctrl.Result{}, fmt.Errorf("empty namespace %s of a cluster that is gone: %w", cluster, err)
	}
	if remaining == 0 {
		return ctrl.Result{}, nil
	}
	log.FromContext(ctx).Info("The ManagedCluster is gone without the cleanup that its finalizers are for; its namespace is emptied",
		"remaining", remaining, "resource", resource.Resource)
	return ctrl.Result{RequeueAfter: parting}, nil
}

// isAbandoned tells whether a cluster does not exist whose agent has rights in its namespace.
func (c *Controller) isAbandoned(ctx context.Context, cluster string) (bool, error) {
	if fleet.ReservedClusterName(cluster) {
		return false, nil
	}
	// The cache may not have a cluster yet that has just been made.
	err := c.live.Get(ctx, client.ObjectKey{Name: cluster}, &clusterv1.ManagedCluster{})
	if err == nil || !apierrors.IsNotFound(err) {
		return false, err
	}
	for _, name := range []string{fleet.RegistrationRoleBinding(cluster), fleet.WorkRoleBinding(cluster), fleet.RemainingWorksRole(cluster)} {
		err := c.live.Get(ctx, client.ObjectKey{Namespace: cluster, Name: name}, &rbacv1.RoleBinding{})
		if err == nil || !apierrors.IsNotFound(err) {
			return err == nil, err
		}
	}
	return false, nil
}

// clusterOfNamespace finds the cluster whose namespace it is.
func clusterOfNamespace(_ context.Context, o client.Object) []reconcile.Request {
	if _, namespace := o.(*corev1.Namespace); !namespace || o.GetLabels()[fleet.LabelClusterName] != o.GetName() {
		return nil
	}
	return []reconcile.Request{{NamespacedName: client.ObjectKey{Name: o.GetName()}}}
}

// present matches what is there when the hub starts: a cluster may have gone before.
func present() predicate.Predicate {
	return predicate.Funcs{
		UpdateFunc:  func(event.UpdateEvent) bool { return false },
		DeleteFunc:  func(event.DeleteEvent) bool { return false },
		GenericFunc: func(event.GenericEvent) bool { return false },
	}
}
