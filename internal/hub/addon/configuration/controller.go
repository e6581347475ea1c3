// Package configuration rolls out the configurations of add-ons: it determines which configurations apply on which cluster, and changes
// them at the pace of the rollout strategies.
package configuration

import (
	"context"
	"errors"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	addonv1beta1 "github.com/capstan-io/capstan/api/addon/v1beta1"
	"github.com/capstan-io/capstan/internal/hub/addon/hashes"
	"github.com/capstan-io/capstan/internal/hub/addon/lookup"
	"github.com/capstan-io/capstan/internal/hub/debounce"
	"github.com/capstan-io/capstan/internal/hub/selected"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
)

const (
	// workers is how many add-ons are reconciled at once.
	workers = 5
	// writers is how many ManagedClusterAddOns of one add-on are written at once.
	writers = 16
	// longestWait is the longest time until a rollout is reconciled again. It is a safety net: everything is watched.
	longestWait = 30 * time.Minute
	// installWait is how long a rollout waits for a ManagedClusterAddOn that is to be installed: canaries come first although theirs may
	// be created after those of other clusters, and one that cannot be created holds up nobody for longer, unless it is the only canary.
	installWait = 5 * time.Minute
	// problemWait is when a configuration that could not be read is tried again. It is a safety net, too: the definition of a kind is
	// announced a moment before the hub serves it.
	problemWait = 10 * time.Second
)

// Known provides the states of configurations.
type Known interface {
	// Require sets the configurations whose states an add-on needs.
	Require(addOn string, configs map[addonv1beta1.AddOnConfig]bool)
	// Of returns the state of one of them. It fails with hashes.ErrNotYet, or with an error for a condition.
	Of(config addonv1beta1.AddOnConfig) (hashes.State, error)
}

// Controller reconciles the configurations of ClusterManagementAddOns and their ManagedClusterAddOns.
type Controller struct {
	client   client.Client
	selected selected.Reader
	configs  Known
	recorder events.EventRecorder
	clock    clock.PassiveClock
	absences *debounce.Tracker[string, string]
	missing  *debounce.Tracker[string, string]
}

// Options configure the controller.
type Options struct {
	// TrustDecisions makes the controller act on all clusters that PlacementDecisions name, without checking them against the bindings.
	TrustDecisions bool
	// Clock is the source of time.
	Clock clock.PassiveClock
}

// New returns a Controller that works through the client, whose cache needs the indexes of package lookup.
func New(c client.Client, configs Known, recorder events.EventRecorder, o Options) *Controller {
	return &Controller{
		client: c, selected: selected.Reader{Client: c, Trust: o.TrustDecisions}, configs: configs, recorder: recorder, clock: o.Clock,
		absences: debounce.NewTracker[string, string](), missing: debounce.NewTracker[string, string](),
	}
}

// Reconcile takes the rollouts of the add-on as far as they may go now, and reports in its status how far they are.
func (c *Controller) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	entry := &addonv1beta1.ClusterManagementAddOn{}
	if err := c.client.Get(ctx, req.NamespacedName, entry); apierrors.IsNotFound(err) {
		c.configs.Require(req.Name, nil)
		c.absences.Forget(req.Name)
		c.missing.Forget(req.Name)
		return ctrl.Result{}, nil
	} else if err != nil {
		return ctrl.Result{}, err
	}
	if !entry.DeletionTimestamp.IsZero() {
		return ctrl.Result{}, nil
	}
	s, err := c.read(ctx, entry)
	if err != nil {
		return ctrl.Result{}, err
	}
	if s.notYet { // the first list of a kind enqueues it sooner
		s.onlyNew()
		return ctrl.Result{RequeueAfter: problemWait}, c.write(ctx, s)
	}
	s.decide()
	failed := c.write(ctx, s)
	s.decide() // again: the status reports the state after these writes
	failed = errors.Join(failed, c.recordSuccess(ctx, s))
	if err := c.report(ctx, s); err != nil {
		return ctrl.Result{}, err
	}
	return ctrl.Result{RequeueAfter: s.wait()}, failed
}

// read reads everything that the rollouts of an add-on depend on.
func (c *Controller) read(ctx context.Context, entry *addonv1beta1.ClusterManagementAddOn) (s *snapshot, err error) {
	s = &snapshot{entry: entry, now: c.clock.Now(), configs: c.configs, known: map[addonv1beta1.AddOnConfig]known{}}
	if lookup.SelfManaged(entry) {
		c.configs.Require(entry.Name, setOf(entry.Spec.DefaultConfigs))
		s.readDefaults()
		return s, nil
	}
	if s.placements, err = lookup.Placements(ctx, c.selected, entry.Spec.InstallStrategy); err != nil {
		return nil, err
	}
	if s.installed, err = lookup.Installations(ctx, c.client, entry.Name); err != nil {
		return nil, err
	}
	if s.clusters, err = lookup.Clusters(ctx, c.client); err != nil {
		return nil, err
	}
	c.configs.Require(entry.Name, s.requiredConfigs())
	s.readDefaults()
	s.assign()
	c.debounceDeselected(s)
	c.leaveOutMissing(s)
	return s, nil
}

// debounceDeselected ignores for a moment that a cluster is no longer selected: it may be moving from one decision to another.
func (c *Controller) debounceDeselected(s *snapshot) {
	absent := map[string]bool{}
	for name, cluster := range s.states {
		switch {
		case cluster.placement != nil || len(s.placements) == 0 || !cluster.changesConfigs():
		case lookup.Keeps(s.placements, name):
			cluster.kept = true
		case cluster.addOn.Annotations[fleet.AnnotationInstalledBy] == fleet.InstalledByStrategy:
			cluster.kept = true // it is about to be removed
		default:
			absent[name] = true
		}
	}
	for name, since := range c.absences.Update(s.entry.Name, absent, s.now) {
		if due := since.Add(debounce.Delay); s.now.Before(due) {
			s.states[name].kept = true
			s.requeueBy(due)
		}
	}
}

// leaveOutMissing marks the clusters on which the add-on has not been installed in time.
func (c *Controller) leaveOutMissing(s *snapshot) {
	missing := map[string]bool{}
	for name, cluster := range s.states {
		if cluster.addOn == nil && lookup.Installable(s.clusters[name]) {
			missing[name] = true
		}
	}
	for name, since := range c.missing.Update(s.entry.Name, missing, s.now) {
		if due := since.Add(installWait); s.now.Before(due) {
			s.requeueBy(due)
		} else {
			s.states[name].missing = true
		}
	}
}
