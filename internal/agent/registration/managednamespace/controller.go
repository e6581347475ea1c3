// Package managednamespace makes the namespaces that the ManagedClusterSets of the hub want on the managed cluster.
package managednamespace

import (
	"context"
	"errors"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/cluster"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	clusterv1 "github.com/capstan-io/capstan/api/cluster/v1"
	"github.com/capstan-io/capstan/internal/agent/hubevents"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
	"github.com/capstan-io/capstan/internal/machinery/retry"
	"github.com/capstan-io/capstan/internal/machinery/text"
)

// The values of the label that a hub has on a namespace.
const (
	labelManaged  = "true"
	labelReleased = "false"
)

// Options configure the controller.
type Options struct {
	// Hub has the ManagedCluster, with the list of namespaces in its status.
	Hub cluster.Cluster
	// Cluster is the managed cluster's name on the hub.
	Cluster string
	// HubHash distinguishes the namespaces of this hub from those of others.
	HubHash string
	// Recorder takes events for the hub.
	Recorder events.EventRecorder
	Clock    clock.Clock
}

// Controller reconciles the namespaces in status.managedNamespaces of the agent's own ManagedCluster. It never
// deletes one.
type Controller struct {
	Options
	hub     client.Client
	managed client.Client
	live    client.Reader
}

// New returns a Controller that reads the list from hub and writes to managed, where the cache holds the labelled
// namespaces alone and live sees the others.
func New(hub, managed client.Client, live client.Reader, o Options) *Controller {
	return &Controller{Options: o, hub: hub, managed: managed, live: live}
}

// Register adds the controller to the manager of the managed cluster.
func Register(mgr ctrl.Manager, o Options) error {
	c := New(o.Hub.GetClient(), mgr.GetClient(), mgr.GetAPIReader(), o)
	self := []reconcile.Request{{NamespacedName: client.ObjectKey{Name: o.Cluster}}}
	return ctrl.NewControllerManagedBy(mgr).Named("registration-namespace-sync").
		WithOptions(controller.Options{
			SkipNameValidation: ptr.To(true),
			RateLimiter:        retry.Limiter(),
		}).
		WatchesRawSource(source.Kind(o.Hub.GetCache(), &clusterv1.ManagedCluster{},
			&handler.TypedEnqueueRequestForObject[*clusterv1.ManagedCluster]{})).
		WatchesMetadata(&corev1.Namespace{},
			handler.EnqueueRequestsFromMapFunc(func(context.Context, client.Object) []reconcile.Request { return self }),
			builder.WithPredicates(predicate.NewPredicateFuncs(func(o client.Object) bool { return o.GetLabels()[c.label()] != "" }))).
		Complete(c)
}

func (c *Controller) label() string { return fleet.ManagedNamespaceLabel(c.HubHash) }

func (c *Controller) annotation() string { return fleet.ManagedNamespaceAnnotation(c.HubHash) }

// othersOwn reports whether another managed cluster of the same hub, whose agent runs on the same cluster, wanted the namespace
// first. Only that agent may mark it as not wanted any more.
func (c *Controller) othersOwn(ns *metav1.PartialObjectMetadata) bool {
	owner := ns.Annotations[c.annotation()]
	return owner != "" && owner != c.Cluster
}

// Reconcile makes the namespaces that are listed, marks those that no longer are, and reports.
func (c *Controller) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	mc := &clusterv1.ManagedCluster{}
	if err := c.hub.Get(ctx, req.NamespacedName, mc); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if !mc.Spec.HubAcceptsClient || !meta.IsStatusConditionTrue(mc.Status.Conditions, fleet.ConditionJoined) {
		return ctrl.Result{}, nil
	}
	labelled := &metav1.PartialObjectMetadataList{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "NamespaceList"}}
	if err := c.managed.List(ctx, labelled, client.MatchingLabels{c.label(): labelManaged}); err != nil {
		return ctrl.Result{}, fmt.Errorf("list the managed namespaces: %w", err)
	}
	before := mc.DeepCopy()
	if !mc.DeletionTimestamp.IsZero() {
		mc.Status.ManagedNamespaces = nil
	}
	errs := []error{c.apply(ctx, mc, labelled.Items), c.release(ctx, mc, labelled.Items)}
	if !mc.DeletionTimestamp.IsZero() {
		return ctrl.Result{}, errors.Join(errs...)
	}
	if !equality.Semantic.DeepEqual(before.Status, mc.Status) {
		patch := client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})
		if err := c.hub.Status().Patch(ctx, mc, patch); err != nil {
			errs = append(errs, fmt.Errorf("patch the managed namespaces of ManagedCluster %s: %w", mc.Name, err))
		}
	}
	return ctrl.Result{}, errors.Join(errs...)
}

// apply creates the namespaces that are listed and sets their conditions there.
func (c *Controller) apply(ctx context.Context, mc *clusterv1.ManagedCluster, labelled []metav1.PartialObjectMetadata) error {
	var errs []error
	for i := range mc.Status.ManagedNamespaces {
		entry := &mc.Status.ManagedNamespaces[i]
		there := slices.ContainsFunc(labelled, func(ns metav1.PartialObjectMetadata) bool {
			return ns.Name == entry.Name && ns.DeletionTimestamp.IsZero()
		})
		var err error
		if !there {
			err = c.ensure(ctx, mc, entry.Name)
		}
		c.report(entry, err)
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

func (c *Controller) report(entry *clusterv1.ClusterSetManagedNamespaceStatus, err error) {
	cond := metav1.Condition{
		Type: fleet.ConditionNamespaceAvailable, Status: metav1.ConditionTrue, Reason: fleet.ReasonNamespaceApplied,
		Message: "The namespace is on the cluster", LastTransitionTime: metav1.NewTime(c.Clock.Now()),
	}
	if err != nil {
		cond.Status, cond.Reason, cond.Message = metav1.ConditionFalse, fleet.ReasonNamespaceApplyFailed, text.Stable(err.Error())
	}
	meta.SetStatusCondition(&entry.Conditions, cond)
}

// ensure creates the namespace, or takes over an existing one.
func (c *Controller) ensure(ctx context.Context, mc *clusterv1.ManagedCluster, name string) error {
	ns := &metav1.PartialObjectMetadata{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Namespace"}}
	err := c.live.Get(ctx, client.ObjectKey{Name: name}, ns)
	switch {
	case apierrors.IsNotFound(err):
		fresh := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
			Name: name, Labels: map[string]string{c.label(): labelManaged}, Annotations: map[string]string{c.annotation(): c.Cluster},
		}}
		if err := c.managed.Create(ctx, fresh); err != nil {
			return fmt.Errorf("create Namespace %s: %w", name, err)
		}
	case err != nil:
		return fmt.Errorf("get Namespace %s: %w", name, err)
	case !ns.DeletionTimestamp.IsZero():
		return fmt.Errorf("the Namespace %s is being deleted; it is created again when it has gone", name)
	case ns.Labels[c.label()] == labelManaged:
		return nil
	default:
		if err := c.mark(ctx, ns, labelManaged); err != nil {
			return err
		}
	}
	c.Recorder.Eventf(hubevents.Of(mc), nil, corev1.EventTypeNormal, fleet.EventNamespaceApplied, "Apply",
		"The namespace %s is on the cluster", name)
	return nil
}

// release marks the namespaces that were wanted and are not any more.
func (c *Controller) release(ctx context.Context, mc *clusterv1.ManagedCluster, labelled []metav1.PartialObjectMetadata) error {
	var errs []error
	for i := range labelled {
		ns := &labelled[i]
		listed := func(entry clusterv1.ClusterSetManagedNamespaceStatus) bool { return entry.Name == ns.Name }
		if c.othersOwn(ns) || slices.ContainsFunc(mc.Status.ManagedNamespaces, listed) {
			continue
		}
		if err := client.IgnoreNotFound(c.mark(ctx, ns, labelReleased)); err != nil {
			errs = append(errs, err)
			continue
		}
		c.Recorder.Eventf(hubevents.Of(mc), nil, corev1.EventTypeNormal, fleet.EventNamespaceUnmanaged, "Release",
			"No set wants the namespace %s any more; it stays on the cluster", ns.Name)
	}
	return errors.Join(errs...)
}

func (c *Controller) mark(ctx context.Context, ns *metav1.PartialObjectMetadata, value string) error {
	before := ns.DeepCopy()
	metav1.SetMetaDataLabel(&ns.ObjectMeta, c.label(), value)
	metav1.SetMetaDataAnnotation(&ns.ObjectMeta, c.annotation(), c.Cluster)
	if err := c.managed.Patch(ctx, ns, client.MergeFrom(before)); err != nil {
		return fmt.Errorf("label Namespace %s: %w", ns.Name, err)
	}
	return nil
}
