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

// parting is how long the agent of a deleted cluster has for each deletion. A connected agent needs a moment to notice, and then cleans
// up without the hub; in most cases there is no agent.
const parting = 5 * time.Second

// abandon empties the namespace of a cluster that no longer exists, for example because a user has removed its finalizers: the next
// cluster of that name must not find these objects. It recognizes the namespace by the rights of the agent in it, which are deleted
// last. A namespace without such rights may have been prepared for a cluster that is yet to be created.
func (c *Controller) abandon(ctx context.Context, cluster string) (ctrl.Result, error) {
	if c.Disabled {
		return ctrl.Result{}, nil
	}
	abandoned, err := c.isAbandoned(ctx, cluster)
	if err != nil || !abandoned {
		return ctrl.Result{}, err
	}
	rest, err := c.next(ctx, cluster, func(o metav1.Object) bool {
		deleted := o.GetDeletionTimestamp()
		return !deleted.IsZero() && !c.Clock.Now().Before(deleted.Add(parting))
	})
	if err != nil {
		return ctrl.Result{}, fmt.Errorf("empty namespace %s of a cluster that is gone: %w", cluster, err)
	}
	if len(rest.objects) == 0 {
		return ctrl.Result{}, nil
	}
	log.FromContext(ctx).Info("The ManagedCluster is gone without the cleanup that its finalizers are for; its namespace is emptied",
		"remaining", len(rest.objects), "resource", rest.resource.Resource)
	return ctrl.Result{RequeueAfter: parting}, nil
}

// isAbandoned reports whether a cluster does not exist and its agent has rights in its namespace.
func (c *Controller) isAbandoned(ctx context.Context, cluster string) (bool, error) {
	if fleet.ReservedClusterName(cluster) {
		return false, nil
	}
	// The cache may lack a cluster that was created just now.
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

// clusterOfNamespace maps a namespace to its cluster.
func clusterOfNamespace(_ context.Context, o client.Object) []reconcile.Request {
	if _, namespace := o.(*corev1.Namespace); !namespace || o.GetLabels()[fleet.LabelClusterName] != o.GetName() {
		return nil
	}
	return []reconcile.Request{{NamespacedName: client.ObjectKey{Name: o.GetName()}}}
}

// present matches namespaces that exist when the hub starts: their cluster may have been deleted before.
func present() predicate.Predicate {
	return predicate.Funcs{
		UpdateFunc:  func(event.UpdateEvent) bool { return false },
		DeleteFunc:  func(event.DeleteEvent) bool { return false },
		GenericFunc: func(event.GenericEvent) bool { return false },
	}
}
