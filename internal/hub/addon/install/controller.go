// Package install installs add-ons on the clusters that the placements of their install strategies select, and removes them from
// clusters that are no longer selected.
package install

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/util/retry"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	addonv1beta1 "github.com/capstan-io/capstan/api/addon/v1beta1"
	clusterv1 "github.com/capstan-io/capstan/api/cluster/v1"
	clusterv1beta1 "github.com/capstan-io/capstan/api/cluster/v1beta1"
	"github.com/capstan-io/capstan/internal/hub/addon/lookup"
	"github.com/capstan-io/capstan/internal/hub/addon/owner"
	"github.com/capstan-io/capstan/internal/hub/debounce"
	"github.com/capstan-io/capstan/internal/hub/selected"
	"github.com/capstan-io/capstan/internal/machinery/addon/config"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
	"github.com/capstan-io/capstan/internal/machinery/patch"
	controllerretry "github.com/capstan-io/capstan/internal/machinery/retry"
	"github.com/capstan-io/capstan/internal/machinery/text"
)

const (
	// workers is how many add-ons are reconciled at once.
	workers = 5
	// writers is how many ManagedClusterAddOns of one add-on are written at once.
	writers = 16
)

// Controller reconciles the installations of ClusterManagementAddOns.
type Controller struct {
	client   client.Client
	selected selected.Reader
	recorder events.EventRecorder
	clock    clock.PassiveClock
	absences *debounce.Tracker[string, string]
}

// Options configure the controller.
type Options struct {
	// TrustDecisions makes the controller act on all clusters that PlacementDecisions name, without checking them against the bindings.
	TrustDecisions bool
	// Clock is the source of time.
	Clock clock.PassiveClock
}

// New returns a Controller that works through the client.
func New(c client.Client, recorder events.EventRecorder, o Options) *Controller {
	return &Controller{
		client: c, selected: selected.Reader{Client: c, Trust: o.TrustDecisions}, recorder: recorder, clock: o.Clock,
		absences: debounce.NewTracker[string, string](),
	}
}

// Register adds the controller to the manager, whose cache needs the indexes of package lookup.
func Register(mgr ctrl.Manager, o Options) error {
	c := New(mgr.GetClient(), mgr.GetEventRecorder("addon-install-controller"), o)
	b := ctrl.NewControllerManagedBy(mgr).Named("addon-managedclusteraddon-install").
		For(&addonv1beta1.ClusterManagementAddOn{}, builder.WithPredicates(lookup.EntryChanged())).
		Watches(&addonv1beta1.ManagedClusterAddOn{}, lookup.Later(lookup.EntryOf), builder.WithPredicates(cameOrWent())).
		Watches(&clusterv1beta1.Placement{}, lookup.Later(lookup.OfPlacement(c.client)), builder.WithPredicates(selected.PlacementChanged())).
		Watches(&clusterv1beta1.PlacementDecision{}, lookup.LaterByLabels(lookup.OfDecision(c.client))).
		WithOptions(controller.Options{MaxConcurrentReconciles: workers, RateLimiter: controllerretry.Limiter()})
	return lookup.WatchClusters(b, c.client, o.TrustDecisions).Complete(controllerretry.Conflicts(c))
}

// cameOrWent matches ManagedClusterAddOns that are deleted, or whose annotation about their installation changes.
func cameOrWent() predicate.Predicate {
	return predicate.Funcs{
		CreateFunc: func(event.CreateEvent) bool { return false }, // by this controller or by a user: in both cases there is nothing to do
		UpdateFunc: func(e event.UpdateEvent) bool {
			return e.ObjectOld.GetAnnotations()[fleet.AnnotationInstalledBy] != e.ObjectNew.GetAnnotations()[fleet.AnnotationInstalledBy]
		},
	}
}

// Reconcile installs the add-on on the selected clusters, and removes what this controller has installed on others.
func (c *Controller) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	entry := &addonv1beta1.ClusterManagementAddOn{}
	if err := c.client.Get(ctx, req.NamespacedName, entry); apierrors.IsNotFound(err) {
		c.absences.Forget(req.Name)
		return ctrl.Result{}, nil
	} else if err != nil {
		return ctrl.Result{}, err
	}
	if !entry.DeletionTimestamp.IsZero() || lookup.SelfManaged(entry) ||
		entry.Spec.InstallStrategy.Type != addonv1beta1.InstallStrategyPlacements {
		c.absences.Forget(req.Name)
		return ctrl.Result{}, nil
	}
	placements, err := lookup.Placements(ctx, c.selected, entry.Spec.InstallStrategy)
	if err != nil {
		return ctrl.Result{}, err
	}
	installed, err := lookup.Installations(ctx, c.client, entry.Name)
	if err != nil {
		return ctrl.Result{}, err
	}
	clusters, err := lookup.Clusters(ctx, c.client)
	if err != nil {
		return ctrl.Result{}, err
	}
	decisive := lookup.Decisive(placements)
	added, notAdded := c.write(missing(entry, decisive, installed, clusters), c.install(ctx, entry, decisive))
	leaving, wait := c.leaving(entry.Name, placements, installed)
	removed, notRemoved := c.write(leaving, c.remove(ctx))
	c.recordEvent(entry, fleet.EventManagedClusterAddOnInstalled, "Install", "installed on", added)
	c.recordEvent(entry, fleet.EventManagedClusterAddOnRemoved, "Remove", "no longer selected: removed from", removed)
	if err := notAdded.AsError("ManagedClusterAddOn"); err != nil {
		return ctrl.Result{}, fmt.Errorf("install add-on %s: %w", entry.Name, err)
	}
	if err := notRemoved.AsError("ManagedClusterAddOn"); err != nil {
		return ctrl.Result{}, fmt.Errorf("remove add-on %s: %w", entry.Name, err)
	}
	return ctrl.Result{RequeueAfter: wait}, nil
}

// missing returns the ManagedClusterAddOns that have to be created.
func missing(
	entry *addonv1beta1.ClusterManagementAddOn, decisive map[string]*lookup.Placement,
	installed map[string]*addonv1beta1.ManagedClusterAddOn, clusters map[string]*clusterv1.ManagedCluster,
) (all []*addonv1beta1.ManagedClusterAddOn) {
	for name := range decisive {
		cluster := clusters[name]
		if installed[name] != nil || !lookup.Installable(cluster) {
			continue
		}
		addOn := &addonv1beta1.ManagedClusterAddOn{ObjectMeta: metav1.ObjectMeta{
			Namespace: name, Name: entry.Name, Annotations: map[string]string{fleet.AnnotationInstalledBy: fleet.InstalledByStrategy},
		}}
		owner.Complete(addOn, entry, cluster)
		all = append(all, addOn)
	}
	return all
}

// leaving returns the ManagedClusterAddOns of this controller on clusters that are no longer selected. There are none while it is not
// known what a placement selects: the deletion of a Placement must not remove the add-ons of a fleet.
func (c *Controller) leaving(
	name string, placements []*lookup.Placement, installed map[string]*addonv1beta1.ManagedClusterAddOn,
) (all []*addonv1beta1.ManagedClusterAddOn, wait time.Duration) {
	absent := map[string]bool{}
	if lookup.AllResolved(placements) {
		selected := lookup.Decisive(placements)
		for cluster, addOn := range installed {
			ours := addOn.Annotations[fleet.AnnotationInstalledBy] == fleet.InstalledByStrategy
			if ours && selected[cluster] == nil && addOn.DeletionTimestamp.IsZero() && !lookup.Keeps(placements, cluster) {
				absent[cluster] = true
			}
		}
	}
	now := c.clock.Now()
	for cluster, since := range c.absences.Update(name, absent, now) {
		due := since.Add(debounce.Delay)
		if !now.Before(due) {
			all = append(all, installed[cluster])
			continue
		}
		if left := due.Sub(now); wait == 0 || left < wait {
			wait = left
		}
	}
	return all, wait
}

// write writes many add-ons at once. An error for one cluster does not delay the others.
func (c *Controller) write(
	addOns []*addonv1beta1.ManagedClusterAddOn, write func(*addonv1beta1.ManagedClusterAddOn) error,
) (done []string, failed selected.Errors) {
	var mu sync.Mutex
	failed = selected.Errors{}
	var group errgroup.Group
	group.SetLimit(writers)
	for _, addOn := range addOns {
		group.Go(func() error {
			err := write(addOn)
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				failed[addOn.Namespace] = err
			} else {
				done = append(done, addOn.Namespace)
			}
			return nil
		})
	}
	_ = group.Wait() // the errors are in failed
	slices.Sort(done)
	return done, failed
}

func (c *Controller) install(
	ctx context.Context, entry *addonv1beta1.ClusterManagementAddOn, decisive map[string]*lookup.Placement,
) func(*addonv1beta1.ManagedClusterAddOn) error {
	return func(addOn *addonv1beta1.ManagedClusterAddOn) error {
		err := c.client.Create(ctx, addOn)
		if apierrors.IsAlreadyExists(err) {
			return nil
		}
		if err != nil {
			return err
		}
		return c.announce(ctx, addOn, config.Effective(entry.Spec.DefaultConfigs, decisive[addOn.Namespace].Configs))
	}
}

// announce writes the desired configurations to the status of a new add-on: its manager would deploy an add-on without any with
// defaults. The status cannot be created with the object, so this is the next request. If another writer is faster, its status stays.
func (c *Controller) announce(ctx context.Context, addOn *addonv1beta1.ManagedClusterAddOn, configs []addonv1beta1.AddOnConfig) error {
	if len(configs) == 0 {
		return nil
	}
	err := retry.RetryOnConflict(retry.DefaultRetry, func() error {
		before := addOn.DeepCopy()
		addOn.Status.ConfigReferences = config.Pending(configs)
		_, err := patch.Status(ctx, c.client, addOn, before)
		if apierrors.IsConflict(err) {
			if err := c.client.Get(ctx, client.ObjectKeyFromObject(addOn), addOn); err != nil {
				return err
			}
			if len(addOn.Status.ConfigReferences) > 0 {
				return nil
			}
		}
		return err
	})
	if apierrors.IsConflict(err) { // the configuration controller writes it, too
		return nil
	}
	return client.IgnoreNotFound(err)
}

func (c *Controller) remove(ctx context.Context) func(*addonv1beta1.ManagedClusterAddOn) error {
	return func(addOn *addonv1beta1.ManagedClusterAddOn) error {
		err := c.client.Delete(ctx, addOn.DeepCopy(), client.Preconditions{UID: &addOn.UID})
		if apierrors.IsConflict(err) {
			return nil // it is another object with the same name
		}
		return client.IgnoreNotFound(err)
	}
}

func (c *Controller) recordEvent(entry *addonv1beta1.ClusterManagementAddOn, reason, action, what string, clusters []string) {
	if len(clusters) > 0 {
		c.recorder.Eventf(entry, nil, corev1.EventTypeNormal, reason, action,
			"The add-on %s is %s %s: %s", entry.Name, what, text.Count(len(clusters), "cluster"), text.FirstFew(clusters))
	}
}
