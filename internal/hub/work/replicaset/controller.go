// Package replicaset creates the ManifestWorks of a ManifestWorkReplicaSet, one for each cluster that its placements select, updates
// them at the pace of its rollout strategies, and counts them in its status.
package replicaset

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	workv1alpha1 "github.com/capstan-io/capstan/api/work/v1alpha1"
	"github.com/capstan-io/capstan/internal/hub/debounce"
	"github.com/capstan-io/capstan/internal/hub/selected"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
	"github.com/capstan-io/capstan/internal/machinery/patch"
)

const (
	// workers is how many sets are reconciled at once.
	workers = 5
	// writers is how many works of one set are written at once.
	writers = 16
	// longestWait is the longest time until a rollout is reconciled again. It is a safety net: everything is watched.
	longestWait = 30 * time.Minute
)

// Options configure the controller.
type Options struct {
	// Disabled leaves sets alone, but for those that are being deleted.
	Disabled bool
	// TrustDecisions makes the controller act on all clusters that PlacementDecisions name, without checking them against the bindings.
	TrustDecisions bool
	// Clock is the source of time.
	Clock clock.PassiveClock
}

// Controller reconciles ManifestWorkReplicaSets.
type Controller struct {
	disabled  bool
	client    client.Client
	templates templates
	recorder  events.EventRecorder
	clock     clock.PassiveClock
	selected  selected.Reader
	absences  *debounce.Tracker[types.NamespacedName, missing]
	waiting   waiting
	memory    memory
	shares    shares
}

// New returns a Controller that works through the client, whose cache needs the indexes of AddIndexes. secrets, for the Secrets of
// revisions, should have no cache: these are few of all the Secrets of a hub.
func New(c, secrets client.Client, recorder events.EventRecorder, o Options) *Controller {
	return &Controller{
		disabled: o.Disabled, client: c, templates: templates{secrets}, recorder: recorder, clock: o.Clock,
		selected: selected.Reader{Client: c, Trust: o.TrustDecisions},
		absences: debounce.NewTracker[types.NamespacedName, missing](),
	}
}

// Reconcile brings the works of the set, and then its status, in line with its template and placements.
func (c *Controller) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	set := &workv1alpha1.ManifestWorkReplicaSet{}
	if err := c.client.Get(ctx, req.NamespacedName, set); apierrors.IsNotFound(err) {
		c.absences.Forget(req.NamespacedName)
		c.waiting.set(req.NamespacedName, nil)
		c.memory.forget(req.NamespacedName)
		return ctrl.Result{}, nil
	} else if err != nil {
		return ctrl.Result{}, err
	}
	if c.disabled && set.DeletionTimestamp.IsZero() {
		return ctrl.Result{}, nil
	}
	works, err := c.worksOf(ctx, set)
	if err != nil {
		return ctrl.Result{}, err
	}
	if !set.DeletionTimestamp.IsZero() {
		return ctrl.Result{}, c.finalize(ctx, set, works)
	}
	if err := c.ensureFinalizer(ctx, set); err != nil {
		return ctrl.Result{}, err
	}
	next, err := c.advance(ctx, set, works)
	if postponed := (*postponedError)(nil); errors.As(err, &postponed) {
		c.recorder.Eventf(set, nil, corev1.EventTypeWarning, fleet.EventOverridesPostponed, "Reconcile", "%s", postponed.Error())
		return ctrl.Result{RequeueAfter: postponed.wait}, nil
	}
	return ctrl.Result{RequeueAfter: next}, err
}

// advance takes the rollout of the set as far as it may go now, and returns when it is due again.
func (c *Controller) advance(ctx context.Context, set *workv1alpha1.ManifestWorkReplicaSet, works []*work) (next time.Duration, err error) {
	s, key := newSnapshot(set, works, c.clock.Now()), client.ObjectKeyFromObject(set)
	before := c.memory.of(key, set.UID)
	s.obstacles, s.has = before.obstacles, before.given
	if set.Annotations[fleet.AnnotationOverrides] != "" {
		if s.pass, err = c.shares.start(set.Namespace, s.now); err != nil {
			return 0, err
		}
		defer func() { s.pass.end(c.clock.Now()) }()
	}
	if err := c.readPlacements(ctx, s); err != nil {
		return 0, err
	}
	if err := c.readMoves(ctx, s); err != nil {
		return 0, err
	}
	if err := c.chooseTemplate(ctx, s); err != nil {
		return 0, err
	}
	if err := c.readOverrides(ctx, s); err != nil {
		return 0, err
	}
	if s.identity, err = identify(s.template, set.Annotations[fleet.AnnotationOverrides]); err != nil {
		return 0, err
	}
	s.decide()
	if err := s.pass.startWriting(); err != nil {
		return 0, err
	}
	if err := c.recordOutcome(ctx, s); err != nil {
		return 0, err
	}
	if err := c.keepPredecessors(ctx, s); err != nil {
		return 0, err
	}
	failed := c.writeWorks(ctx, s)
	refused := refused(failed)
	c.waiting.set(key, s.passedOver(), refused)
	s.decide() // again: the status reports the state after these writes
	c.memory.set(key, remembered{uid: set.UID, given: s.has, obstacles: s.obstacles})
	maps.Copy(s.unfit, failed)
	if err := c.report(ctx, s, s.unfit); err != nil {
		return 0, err
	}
	maps.DeleteFunc(failed, func(cluster string, _ error) bool { return refused[cluster] })
	return s.wait(), errors.Join(failed.AsError("work"), s.again)
}

// ensureFinalizer sets the finalizer, so that the set is not deleted before its works.
func (c *Controller) ensureFinalizer(ctx context.Context, set *workv1alpha1.ManifestWorkReplicaSet) error {
	before := set.DeepCopy()
	if !controllerutil.AddFinalizer(set, fleet.FinalizerManifestWorkReplicaSetCleanup) {
		return nil
	}
	_, err := patch.Object(ctx, c.client, set, before)
	return err
}

// finalize deletes the works of a set that is being deleted, and releases the set: at once, or when the works are gone. It does not wait
// for works that have only its labels, because the agent of any cluster can set these labels and a finalizer on a work in its
// namespace.
func (c *Controller) finalize(ctx context.Context, set *workv1alpha1.ManifestWorkReplicaSet, works []*work) error {
	before := set.DeepCopy()
	if !controllerutil.ContainsFinalizer(set, fleet.FinalizerManifestWorkReplicaSetCleanup) {
		return nil
	}
	var all []change
	for _, w := range works {
		all = append(all, remove(w))
	}
	if err := c.write(ctx, all).byCluster().AsError("work"); err != nil {
		return err
	}
	if set.Spec.CascadeDeletionPolicy == workv1alpha1.Foreground {
		works = slices.DeleteFunc(works, func(w *work) bool { return !namedFor(set, w) })
		if len(works) > 0 {
			return c.reportDeletion(ctx, set, before, works)
		}
	}
	controllerutil.RemoveFinalizer(set, fleet.FinalizerManifestWorkReplicaSetCleanup)
	_, err := patch.Object(ctx, c.client, set, before)
	return client.IgnoreNotFound(err)
}

// refused are the clusters that take no works. They are tried again when they change, and not before.
func refused(failed selected.Errors) map[string]bool {
	clusters := map[string]bool{}
	for cluster, err := range failed {
		if apierrors.HasStatusCause(err, fleet.CauseClusterTakesNoWorks) {
			clusters[cluster] = true
		}
	}
	return clusters
}
