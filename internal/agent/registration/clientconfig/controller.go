// Package clientconfig keeps the addresses under which the managed cluster is reachable on its ManagedCluster.
package clientconfig

import (
	"bytes"
	"context"
	"fmt"
	"slices"

	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/cluster"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/source"

	clusterv1 "github.com/capstan-io/capstan/api/cluster/v1"
	"github.com/capstan-io/capstan/internal/machinery/retry"
)

// Options configure the controller.
type Options struct {
	// Hub has the ManagedCluster.
	Hub cluster.Cluster
	// Configs are the client configs of the managed cluster that the agent knows.
	Configs []clusterv1.ClientConfig
}

// Controller merges the agent's client configs, by their URL, into its ManagedCluster. Client configs that other writers have added
// stay.
type Controller struct {
	hub     client.Client
	configs []clusterv1.ClientConfig
}

// New returns a Controller for the configs.
func New(hub client.Client, configs []clusterv1.ClientConfig) *Controller {
	return &Controller{hub: hub, configs: configs}
}

// Register adds the controller to the manager.
func Register(mgr ctrl.Manager, o Options) error {
	return ctrl.NewControllerManagedBy(mgr).Named("registration-managedcluster-clientconfigs").
		WithOptions(controller.Options{
			SkipNameValidation: ptr.To(true),
			RateLimiter:        retry.Limiter(),
		}).
		WatchesRawSource(source.Kind(o.Hub.GetCache(), &clusterv1.ManagedCluster{},
			&handler.TypedEnqueueRequestForObject[*clusterv1.ManagedCluster]{})).
		Complete(New(o.Hub.GetClient(), o.Configs))
}

// Reconcile adds what is missing and replaces another CA bundle, if the agent knows of one.
func (c *Controller) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	mc := &clusterv1.ManagedCluster{}
	if err := c.hub.Get(ctx, req.NamespacedName, mc); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if !mc.Spec.HubAcceptsClient || !c.merge(mc) {
		return ctrl.Result{}, nil
	}
	if err := c.hub.Update(ctx, mc); err != nil {
		return ctrl.Result{}, fmt.Errorf("update the client configs of ManagedCluster %s: %w", mc.Name, err)
	}
	return ctrl.Result{}, nil
}

func (c *Controller) merge(mc *clusterv1.ManagedCluster) (changed bool) {
	for _, config := range c.configs {
		i := slices.IndexFunc(mc.Spec.ManagedClusterClientConfigs, func(have clusterv1.ClientConfig) bool { return have.URL == config.URL })
		switch {
		case i < 0:
			mc.Spec.ManagedClusterClientConfigs = append(mc.Spec.ManagedClusterClientConfigs, config)
			changed = true
		case len(config.CABundle) > 0 && !bytes.Equal(mc.Spec.ManagedClusterClientConfigs[i].CABundle, config.CABundle):
			mc.Spec.ManagedClusterClientConfigs[i].CABundle = config.CABundle
			changed = true
		}
	}
	return changed
}
