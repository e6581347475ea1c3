package main

import (
	"context"
	"fmt"
	"maps"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/cluster"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"
)

// copyLabel is on the copies, and distinguishes them from other ConfigMaps of the same name.
const copyLabel = "helloworld.capstan.io/copy"

// rootCA is the ConfigMap that every namespace of every cluster has, with that cluster's own CA.
const rootCA = "kube-root-ca.crt"

// The wait before a failed copy is tried again doubles from the first to the last: the cause may pass without an event.
const (
	firstRetry = 10 * time.Millisecond
	lastRetry  = time.Minute
)

// copier makes the ConfigMaps of a namespace of the managed cluster equal to those of a namespace of the hub.
type copier struct {
	hub, managed client.Client
	from, to     string
}

// register adds watches on both sides: a copy that another writer changes is repaired.
func (c *copier) register(mgr ctrl.Manager, hub cluster.Cluster) error {
	byName := handler.TypedEnqueueRequestsFromMapFunc(func(_ context.Context, cm *corev1.ConfigMap) []reconcile.Request {
		return []reconcile.Request{{NamespacedName: client.ObjectKey{Name: cm.Name}}}
	})
	return ctrl.NewControllerManagedBy(mgr).Named("helloworld").
		WatchesRawSource(source.Kind(hub.GetCache(), &corev1.ConfigMap{}, byName)).
		WatchesRawSource(source.Kind(mgr.GetCache(), &corev1.ConfigMap{}, byName)).
		WithOptions(controller.Options{
			RateLimiter: workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](firstRetry, lastRetry),
		}).
		Complete(c)
}

// Reconcile brings one copy in line with its original.
func (c *copier) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	if req.Name == rootCA {
		return reconcile.Result{}, nil
	}
	original := &corev1.ConfigMap{}
	err := c.hub.Get(ctx, client.ObjectKey{Namespace: c.from, Name: req.Name}, original)
	if apierrors.IsNotFound(err) {
		return reconcile.Result{}, c.remove(ctx, req.Name)
	}
	if err != nil {
		return reconcile.Result{}, fmt.Errorf("get ConfigMap %s/%s of the hub: %w", c.from, req.Name, err)
	}
	return reconcile.Result{}, c.write(ctx, original)
}

func (c *copier) write(ctx context.Context, original *corev1.ConfigMap) error {
	cm := &corev1.ConfigMap{}
	cm.Namespace, cm.Name = c.to, original.Name
	result, err := controllerutil.CreateOrUpdate(ctx, c.managed, cm, func() error {
		if cm.ResourceVersion != "" && cm.Labels[copyLabel] == "" {
			return reconcile.TerminalError(fmt.Errorf("it is there already and no copy: rename one of the two, or label it %s=true", copyLabel))
		}
		cm.Labels = maps.Clone(original.Labels)
		if cm.Labels == nil {
			cm.Labels = map[string]string{}
		}
		cm.Labels[copyLabel] = "true"
		cm.Data, cm.BinaryData = original.Data, original.BinaryData
		return nil
	})
	if err != nil {
		return fmt.Errorf("copy to ConfigMap %s/%s: %w", c.to, original.Name, err)
	}
	if result != controllerutil.OperationResultNone {
		log.FromContext(ctx).Info("Copied", "configMap", original.Name, "to", c.to)
	}
	return nil
}

// remove deletes a copy whose original is gone.
func (c *copier) remove(ctx context.Context, name string) error {
	cm := &corev1.ConfigMap{}
	if err := c.managed.Get(ctx, client.ObjectKey{Namespace: c.to, Name: name}, cm); err != nil {
		return client.IgnoreNotFound(err)
	}
	if cm.Labels[copyLabel] == "" {
		return nil
	}
	if err := c.managed.Delete(ctx, cm); err != nil {
		return client.IgnoreNotFound(err)
	}
	log.FromContext(ctx).Info("Removed the copy", "configMap", name, "from", c.to)
	return nil
}
