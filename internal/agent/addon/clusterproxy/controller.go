// Package clusterproxy is the agent's side of the tunnel into its cluster: while the hub has the built-in add-on cluster-proxy for the
// cluster, the agent keeps a tunnel to the hub, and lets through what the cluster's own rules allow.
package clusterproxy

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/cluster"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/source"

	addonv1beta1 "github.com/capstan-io/capstan/api/addon/v1beta1"
	"github.com/capstan-io/capstan/internal/agent/addon/builtin"
	"github.com/capstan-io/capstan/internal/agent/addon/single"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
	"github.com/capstan-io/capstan/internal/machinery/patch"
	"github.com/capstan-io/capstan/internal/machinery/retry"
	"github.com/capstan-io/capstan/internal/machinery/text"
	"github.com/capstan-io/capstan/internal/reach/agentconfig"
)

// reportTimeout is how long the hub may take for a report. Changes of the rules wait for it, and a hub could have them wait without an end.
const reportTimeout = 10 * time.Second

// Options configure the controller.
type Options struct {
	// Hub has the ManagedClusterAddOns, of which the controller reads the cache. The tunnel leads there.
	Hub cluster.Cluster
	// Managed is the cluster that users of the hub reach.
	Managed *rest.Config
	// InCluster says that the agent runs in a pod of that cluster, from where its services are reached.
	InCluster bool
	// Cluster is its name on the hub.
	Cluster string
	// Namespace is the agent's own on the managed cluster, where the rules are.
	Namespace string
	Clock     clock.WithTicker
}

// Controller keeps the tunnel, and reports on it in the condition Available of the add-on.
type Controller struct {
	Options
	hub        client.Client
	configMaps *single.Objects[*corev1.ConfigMap]
	rules      *rules
	link       *link
}

// Register adds the controller to the manager.
func Register(mgr ctrl.Manager, o Options) error {
	core, err := corev1client.NewForConfig(o.Managed)
	if err != nil {
		return fmt.Errorf("make a client for the rules of the cluster: %w", err)
	}
	changed := make(chan event.GenericEvent, 1)
	allowed := &rules{clock: o.Clock}
	tunnelTo, err := newLink(o, allowed, func() {
		select {
		case changed <- event.GenericEvent{Object: &addonv1beta1.ManagedClusterAddOn{ObjectMeta: metav1.ObjectMeta{
			Namespace: o.Cluster, Name: fleet.AddOnClusterProxy}}}:
		default: // the event that waits is for this change too
		}
	})
	if err != nil {
		return err
	}
	if err := mgr.Add(tunnelTo); err != nil {
		return err
	}
	c := &Controller{Options: o, hub: o.Hub.GetClient(), rules: allowed, link: tunnelTo,
		configMaps: single.New(core.RESTClient(), "configmaps", &corev1.ConfigMap{})}
	isIt := predicate.NewTypedPredicateFuncs(func(addOn *addonv1beta1.ManagedClusterAddOn) bool {
		return addOn.Name == fleet.AddOnClusterProxy && addOn.Namespace == o.Cluster
	})
	return ctrl.NewControllerManagedBy(mgr).Named("addon-clusterproxy-tunnel").
		WithOptions(controller.Options{SkipNameValidation: ptr.To(true), MaxConcurrentReconciles: 1, RateLimiter: retry.Limiter()}).
		WatchesRawSource(source.Kind(o.Hub.GetCache(), &addonv1beta1.ManagedClusterAddOn{},
			&handler.TypedEnqueueRequestForObject[*addonv1beta1.ManagedClusterAddOn]{}, isIt)).
		WatchesRawSource(c.configMaps).
		WatchesRawSource(source.Channel(changed, &handler.EnqueueRequestForObject{})).
		Complete(c)
}

// Reconcile starts or ends the tunnel, as the hub has configured it, reads the rules, and reports how it is.
func (c *Controller) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	addOn := &addonv1beta1.ManagedClusterAddOn{}
	err := c.hub.Get(ctx, req.NamespacedName, addOn)
	if client.IgnoreNotFound(err) != nil {
		return ctrl.Result{}, err
	}
	if apierrors.IsNotFound(err) || addOn.DeletionTimestamp != nil || !fleet.IsBuiltIn(addOn) {
		c.link.end()
		c.configMaps.Follow(req.NamespacedName)
		return ctrl.Result{}, c.takeBack(ctx, addOn)
	}
	if known := c.readRules(req.NamespacedName); !known {
		return ctrl.Result{}, nil // their watch enqueues the add-on
	}
	config, err := agentconfig.Decode(addOn.Annotations[fleet.AnnotationClusterProxyConfig])
	if err != nil {
		return ctrl.Result{}, err
	}
	if err := c.link.configure(config); err != nil {
		return ctrl.Result{}, err
	}
	c.link.enable() //nolint:contextcheck // the tunnel outlives the reconcile
	return ctrl.Result{}, c.report(ctx, addOn)
}

// readRules reports false as long as it is not known whether the cluster has some.
func (c *Controller) readRules(owner types.NamespacedName) (known bool) {
	name := types.NamespacedName{Namespace: c.Namespace, Name: fleet.ConfigMapHubAccess}
	c.configMaps.Follow(owner, name)
	configMap, found, known := c.configMaps.Get(owner, name)
	if !known {
		return false
	}
	if !found {
		configMap = nil
	}
	c.rules.set(configMap)
	return true
}

// report sets the condition Available if that is another than before.
func (c *Controller) report(ctx context.Context, addOn *addonv1beta1.ManagedClusterAddOn) error {
	cond := c.condition()
	if cond == nil {
		return nil
	}
	before := addOn.DeepCopy()
	cond.LastTransitionTime = metav1.NewTime(c.Clock.Now())
	meta.SetStatusCondition(&addOn.Status.Conditions, *cond)
	return c.write(ctx, addOn, before)
}

// takeBack removes what this controller has reported of an add-on that is another manager's now.
func (c *Controller) takeBack(ctx context.Context, addOn *addonv1beta1.ManagedClusterAddOn) error {
	before := addOn.DeepCopy()
	builtin.TakeBack(addOn, fleet.ReasonTunnelConnected, fleet.ReasonTunnelNotConnected, fleet.ReasonHubAccessRulesInvalid)
	return c.write(ctx, addOn, before)
}

// write writes the status of an add-on if it has changed.
func (c *Controller) write(ctx context.Context, addOn, before *addonv1beta1.ManagedClusterAddOn) error {
	ctx, cancel := context.WithTimeout(ctx, reportTimeout)
	defer cancel()
	if _, err := patch.Status(ctx, c.hub, addOn, before); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("report on the tunnel in add-on %s: %w", client.ObjectKeyFromObject(addOn), err)
	}
	return nil
}

// condition is nil before the first attempt has ended.
func (c *Controller) condition() *metav1.Condition {
	connected, problem := c.link.state()
	switch err := c.rules.problem(); {
	case err != nil:
		return &metav1.Condition{Type: fleet.ConditionAvailable, Status: metav1.ConditionFalse, Reason: fleet.ReasonHubAccessRulesInvalid,
			Message: fmt.Sprintf("On the managed cluster, %s. Until that is corrected, no request of the hub is let through.",
				text.Message(err.Error()))}
	case connected:
		return &metav1.Condition{Type: fleet.ConditionAvailable, Status: metav1.ConditionTrue, Reason: fleet.ReasonTunnelConnected,
			Message: "The agent has a tunnel to the hub."}
	case problem != "":
		return &metav1.Condition{Type: fleet.ConditionAvailable, Status: metav1.ConditionFalse, Reason: fleet.ReasonTunnelNotConnected,
			Message: "The agent cannot make a tunnel to the hub, and goes on trying: " + problem}
	}
	return nil
}
