// Package pull brings Applications of Argo CD to the clusters that they are for, as ManifestWorks, and reports on the hub how they are
// there: in their own status, and in a MulticlusterApplicationSetReport for each ApplicationSet.
//
// Who may write Applications in a namespace has them deployed to clusters. So a cluster gets one only if one of its sets is bound in that
// namespace.
package pull

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1 "github.com/capstan-io/capstan/api/cluster/v1"
	workv1 "github.com/capstan-io/capstan/api/work/v1"
	"github.com/capstan-io/capstan/internal/hub/selected"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
	"github.com/capstan-io/capstan/internal/machinery/manifest"
	"github.com/capstan-io/capstan/internal/machinery/patch"
)

// Options configure the controllers.
type Options struct {
	// TrustDecisions brings Applications to all clusters, without checking them against the bindings.
	TrustDecisions bool
	// Clock is the source of time.
	Clock clock.PassiveClock
}

// Clients are those of the controllers.
type Clients struct {
	// Client has the objects of the hub, from a cache with the indexes of Indexes.
	client.Client
	// Applications returns where the labelled Applications are read; nil while the hub has not the kind.
	Applications func() client.Reader
	// Live writes Applications.
	Live client.Client
}

// Controller brings Applications to clusters.
type Controller struct {
	Options
	c        Clients
	recorder events.EventRecorder
	selected selected.Reader
}

// New returns a Controller that works through the clients.
func New(c Clients, recorder events.EventRecorder, o Options) *Controller {
	return &Controller{Options: o, c: c, recorder: recorder, selected: selected.Reader{Client: c.Client, Trust: o.TrustDecisions}}
}

// obstacleError says why an Application gets to no cluster. It goes when something changes that is watched.
type obstacleError struct {
	message string
	// keeps says that what the cluster has already stays.
	keeps bool
}

func (e *obstacleError) Error() string { return e.message }

func obstacle(format string, args ...any) error {
	return &obstacleError{message: fmt.Sprintf(format, args...)}
}

// keepingObstacle is an obstacle that leaves what the cluster has.
func keepingObstacle(format string, args ...any) error {
	return &obstacleError{message: fmt.Sprintf(format, args...), keeps: true}
}

// Reconcile has a work for an Application on its cluster, and none elsewhere.
func (c *Controller) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	apps := c.c.Applications()
	if apps == nil {
		return ctrl.Result{}, nil
	}
	app := newApplication()
	if err := apps.Get(ctx, req.NamespacedName, app); apierrors.IsNotFound(err) {
		return ctrl.Result{}, c.removeOthers(ctx, req.NamespacedName, types.NamespacedName{})
	} else if err != nil {
		return ctrl.Result{}, fmt.Errorf("get Application %s: %w", req, err)
	}
	if app.GetDeletionTimestamp() != nil {
		return ctrl.Result{}, c.finalize(ctx, app)
	}
	work, err := c.propagate(ctx, app)
	blocked := (*obstacleError)(nil)
	if err != nil && !errors.As(err, &blocked) {
		return ctrl.Result{}, err
	}
	var kept types.NamespacedName
	if cluster, ok := pulled(app); ok && (blocked == nil || blocked.keeps) {
		kept = types.NamespacedName{Namespace: cluster, Name: workName(app)}
	}
	return ctrl.Result{}, errors.Join(c.removeOthers(ctx, req.NamespacedName, kept), c.reportStatus(ctx, app, work, blocked))
}

// propagate writes the work of an Application. It returns an obstacleError where the Application is not to get to the cluster.
func (c *Controller) propagate(ctx context.Context, app *unstructured.Unstructured) (*workv1.ManifestWork, error) {
	cluster, ok := pulled(app)
	if !ok {
		return nil, nil
	}
	if !isSkipped(app) {
		return nil, keepingObstacle("the Application has not the annotation %s: %q, without which the Argo CD of the hub deploys it, too",
			fleet.AnnotationArgoSkip, fleet.LabelTrue)
	}
	if err := c.check(ctx, app.GetNamespace(), cluster); err != nil {
		return nil, err
	}
	desired, err := workOf(app, cluster)
	if err != nil {
		return nil, err
	}
	return c.write(ctx, app, desired)
}

// check says why no Application of a namespace gets to a cluster.
func (c *Controller) check(ctx context.Context, namespace, cluster string) error {
	_, passedOver, err := c.selected.Named(ctx, namespace, cluster)
	if err != nil {
		return err
	}
	if reason := passedOver[cluster]; passedOver.Keeps(cluster) {
		return keepingObstacle("it does not get to cluster %q yet: %s", cluster, reason)
	} else if reason != "" {
		return obstacle("it does not get to cluster %q: %s", cluster, reason)
	}
	managed := &clusterv1.ManagedCluster{}
	if err := c.c.Get(ctx, client.ObjectKey{Name: cluster}, managed); apierrors.IsNotFound(err) {
		return obstacle("it does not get to cluster %q: there is no such ManagedCluster", cluster)
	} else if err != nil {
		return fmt.Errorf("get ManagedCluster %s: %w", cluster, err)
	}
	if managed.Labels[fleet.LabelLocalCluster] == fleet.LabelTrue {
		return obstacle("it does not get to cluster %q, which is the hub itself", cluster)
	}
	return nil
}

// write creates a work, or brings what is different of it in line.
func (c *Controller) write(ctx context.Context, app *unstructured.Unstructured,
	desired *workv1.ManifestWork) (*workv1.ManifestWork, error) {
	key := client.ObjectKeyFromObject(desired)
	work := &workv1.ManifestWork{}
	err := c.c.Get(ctx, key, work)
	if apierrors.IsNotFound(err) {
		return nil, c.create(ctx, app, desired)
	}
	if err != nil {
		return nil, fmt.Errorf("get ManifestWork %s: %w", key, err)
	}
	if applicationOf(work) != client.ObjectKeyFromObject(app) {
		return nil, obstacle("ManifestWork %s, which was not made for it, is in the way; delete that", key)
	}
	if !work.DeletionTimestamp.IsZero() {
		return work, nil
	}
	before := work.DeepCopy()
	if work.Labels == nil {
		work.Labels = map[string]string{}
	}
	maps.Copy(work.Labels, desired.Labels)
	maps.Copy(work.Annotations, desired.Annotations)
	if !sameSpec(&work.Spec, &desired.Spec) {
		work.Spec = desired.Spec
	}
	_, err = patch.Object(ctx, c.c.Client, work, before)
	if err != nil {
		return nil, refusal(err)
	}
	return work, nil
}

func (c *Controller) create(ctx context.Context, app *unstructured.Unstructured, desired *workv1.ManifestWork) error {
	if err := c.c.Create(ctx, desired); err != nil {
		return refusal(fmt.Errorf("create ManifestWork %s: %w", client.ObjectKeyFromObject(desired), err))
	}
	c.recorder.Eventf(app, nil, corev1.EventTypeNormal, "ApplicationPropagated", "Propagate", "Cluster %s gets it by ManifestWork %s",
		desired.Namespace, desired.Name)
	return nil
}

// refusal makes an obstacle of a refusal that does not go by itself.
func refusal(err error) error {
	if apierrors.IsInvalid(err) || apierrors.IsForbidden(err) || apierrors.IsBadRequest(err) {
		return keepingObstacle("%s", err)
	}
	return err
}

// sameSpec reports whether two specs say the same, however it is spelt.
func sameSpec(a, b *workv1.ManifestWorkSpec) bool {
	return equality.Semantic.DeepEqual(a.ManifestConfigs, b.ManifestConfigs) &&
		manifest.SameManifests(a.Workload.Manifests, b.Workload.Manifests)
}

// worksOf are the works that were made for an Application.
func (c *Controller) worksOf(ctx context.Context, app types.NamespacedName) ([]workv1.ManifestWork, error) {
	list := &workv1.ManifestWorkList{}
	if err := c.c.List(ctx, list, client.MatchingFields{indexApplication: app.String()}, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("list the ManifestWorks of Application %s: %w", app, err)
	}
	return list.Items, nil
}

// removeOthers deletes the works of an Application but for the one that is kept.
func (c *Controller) removeOthers(ctx context.Context, app types.NamespacedName, kept types.NamespacedName) error {
	works, err := c.worksOf(ctx, app)
	if err != nil {
		return err
	}
	var failed []error
	for i := range works {
		key := client.ObjectKeyFromObject(&works[i])
		if key == kept || !works[i].DeletionTimestamp.IsZero() {
			continue
		}
		err := c.c.Delete(ctx, works[i].DeepCopy(), client.Preconditions{UID: &works[i].UID})
		if client.IgnoreNotFound(err) != nil {
			failed = append(failed, fmt.Errorf("delete ManifestWork %s: %w", key, err))
		}
	}
	return errors.Join(failed...)
}

// finalize deletes the works of an Application that is being deleted, and releases it from the Argo CD of the hub, which leaves it alone.
// On the cluster, its Argo CD deletes what it has deployed.
func (c *Controller) finalize(ctx context.Context, app *unstructured.Unstructured) error {
	if err := c.removeOthers(ctx, client.ObjectKeyFromObject(app), types.NamespacedName{}); err != nil {
		return err
	}
	if _, ok := pulled(app); !ok || !isSkipped(app) {
		return nil
	}
	before := app.DeepCopy()
	app.SetFinalizers(slices.DeleteFunc(app.GetFinalizers(), isArgoFinalizer))
	_, err := patch.Object(ctx, c.c.Live, app, before)
	return client.IgnoreNotFound(err)
}
