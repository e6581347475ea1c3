package selfmanagement

import (
	"context"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	addonv1beta1 "github.com/capstan-io/capstan/api/addon/v1beta1"
	clusterv1 "github.com/capstan-io/capstan/api/cluster/v1"
	workv1 "github.com/capstan-io/capstan/api/work/v1"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
	"github.com/capstan-io/capstan/internal/machinery/managedcluster"
	"github.com/capstan-io/capstan/internal/machinery/retry"
)

// recheckInterval is when a cluster is looked at again that waits for an administrator.
const recheckInterval = time.Minute

// registerClusters adds the controller of the ManagedClusters of self-management: the one that the hub manages, and those that it did.
func (s *self) registerClusters(manager ctrl.Manager) error {
	builder := ctrl.NewControllerManagedBy(manager).Named("selfmanagement-managedcluster").
		For(&clusterv1.ManagedCluster{}).
		WithOptions(controller.Options{SkipNameValidation: ptr.To(true), RateLimiter: retry.Limiter()})
	if s.name != "" {
		// There is no event of a cluster that does not exist.
		first := make(chan event.TypedGenericEvent[client.Object], 1)
		own := &clusterv1.ManagedCluster{}
		own.Name = s.name
		first <- event.TypedGenericEvent[client.Object]{Object: own}
		builder = builder.WatchesRawSource(source.Channel(first, &handler.EnqueueRequestForObject{}))
	}
	return builder.Complete(retry.Conflicts(reconcile.Func(s.reconcileCluster)))
}

func (s *self) reconcileCluster(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	cluster := &clusterv1.ManagedCluster{}
	err := s.client.Get(ctx, request.NamespacedName, cluster)
	switch {
	case client.IgnoreNotFound(err) != nil:
		return reconcile.Result{}, err
	case request.Name != s.name && err == nil:
		return s.forget(ctx, cluster)
	case request.Name != s.name:
		return reconcile.Result{}, nil
	case apierrors.IsNotFound(err):
		return s.create(ctx)
	}
	s.start()
	return reconcile.Result{}, s.accept(ctx, cluster)
}

// create makes the ManagedCluster, accepted. One of that name that is of another cluster stays as it is.
func (s *self) create(ctx context.Context) (reconcile.Result, error) {
	managed := rest.CopyConfig(s.Managed)
	if err := rest.LoadTLSFiles(managed); err != nil {
		return reconcile.Result{}, fmt.Errorf("read the CA of the cluster that the hub manages: %w", err)
	}
	cluster := &clusterv1.ManagedCluster{}
	cluster.Name = s.name
	cluster.Labels = map[string]string{fleet.LabelSelfManagement: ""}
	cluster.Spec.HubAcceptsClient = true
	cluster.Spec.ManagedClusterClientConfigs = []clusterv1.ClientConfig{{URL: managed.Host, CABundle: managed.CAData}}
	err := s.client.Create(ctx, cluster)
	if apierrors.IsAlreadyExists(err) {
		ctrl.LoggerFrom(ctx).Info("The hub does not manage its cluster: another cluster has the name. Choose another one with "+
			"--self-management-cluster-name, or give the ManagedCluster the label if it is the same cluster, and has no other agent", "cluster", s.name,
			"label", fleet.LabelSelfManagement)
		return reconcile.Result{RequeueAfter: recheckInterval}, nil
	}
	if err != nil {
		return reconcile.Result{}, fmt.Errorf("create ManagedCluster %s for the cluster that the hub manages: %w", s.name, err)
	}
	return reconcile.Result{}, nil
}

// start lets the agent start.
func (s *self) start() {
	select {
	case <-s.ready:
	default:
		close(s.ready)
	}
}

// accept accepts a cluster that the agent has created, and not one that an administrator has denied.
func (s *self) accept(ctx context.Context, cluster *clusterv1.ManagedCluster) error {
	if cluster.Spec.HubAcceptsClient || !cluster.DeletionTimestamp.IsZero() || managedcluster.Denied(cluster) ||
		managedcluster.CutOff(cluster) {
		return nil
	}
	before := cluster.DeepCopy()
	cluster.Spec.HubAcceptsClient = true
	if err := s.client.Patch(ctx, cluster, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})); err != nil {
		return fmt.Errorf("accept ManagedCluster %s, which the hub manages itself: %w", cluster.Name, err)
	}
	return nil
}

// forget deletes a ManagedCluster without an agent, unless that would have to remove something from the cluster.
func (s *self) forget(ctx context.Context, cluster *clusterv1.ManagedCluster) (reconcile.Result, error) {
	if !cluster.DeletionTimestamp.IsZero() {
		return reconcile.Result{}, nil
	}
	applied, err := s.applied(ctx, cluster.Name)
	if err != nil {
		return reconcile.Result{}, fmt.Errorf("find out what is left on cluster %s: %w", cluster.Name, err)
	}
	if applied {
		s.logUnmanaged(ctx, cluster.Name)
		return reconcile.Result{RequeueAfter: recheckInterval}, nil
	}
	uid, version := cluster.UID, cluster.ResourceVersion
	err = s.client.Delete(ctx, cluster, client.Preconditions(metav1.Preconditions{UID: &uid, ResourceVersion: &version}))
	if client.IgnoreNotFound(err) != nil {
		return reconcile.Result{}, fmt.Errorf("delete ManagedCluster %s, which the hub does not manage itself any more: %w", cluster.Name, err)
	}
	return reconcile.Result{}, nil
}

// applied tells whether a cluster has works or add-ons, which only an agent can remove from it.
func (s *self) applied(ctx context.Context, cluster string) (bool, error) {
	works := &workv1.ManifestWorkList{}
	if err := s.direct.List(ctx, works, client.InNamespace(cluster), client.Limit(1)); err != nil {
		return false, err
	}
	addOns := &addonv1beta1.ManagedClusterAddOnList{}
	err := s.direct.List(ctx, addOns, client.InNamespace(cluster), client.Limit(1))
	return len(works.Items)+len(addOns.Items) > 0, err
}

// logUnmanaged says once what to do about a cluster that the hub does not manage itself any more.
func (s *self) logUnmanaged(ctx context.Context, cluster string) {
	if s.logged[cluster] {
		return
	}
	s.logged[cluster] = true
	ctrl.LoggerFrom(ctx).Info("The hub does not manage this cluster itself any more, and nobody removes what its works and add-ons have put there. "+
		"Switch self-management on again under this name, delete them, and switch it off", "cluster", cluster)
}
