// Package defaultset keeps the two ManagedClusterSets that every hub has: default, with the clusters that are in no other set by their
// label, and global, with all clusters.
package defaultset

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	clusterv1beta2 "github.com/capstan-io/capstan/api/cluster/v1beta2"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
	"github.com/capstan-io/capstan/internal/machinery/patch"
	"github.com/capstan-io/capstan/internal/machinery/retry"
)

// sets has the selectors of the sets, by their names, and the reasons of the events about them.
var sets = map[string]struct {
	selector            clusterv1beta2.ManagedClusterSelector
	created, rolledBack string
}{
	fleet.ClusterSetDefault: {
		selector:   clusterv1beta2.ManagedClusterSelector{SelectorType: clusterv1beta2.ExclusiveClusterSetLabel},
		created:    fleet.EventDefaultManagedClusterSetCreated,
		rolledBack: fleet.EventDefaultManagedClusterSetSpecRollbacked,
	},
	fleet.ClusterSetGlobal: {
		selector:   clusterv1beta2.ManagedClusterSelector{SelectorType: clusterv1beta2.LabelSelector, LabelSelector: &metav1.LabelSelector{}},
		created:    fleet.EventGlobalManagedClusterSetCreated,
		rolledBack: fleet.EventGlobalManagedClusterSetSpecRollbacked,
	},
}

// Options configure the controller, which needs none so far.
type Options struct{}

// Controller reconciles the two sets.
type Controller struct {
	client   client.Client
	recorder events.EventRecorder
}

// New returns a Controller that works through the client.
func New(c client.Client, recorder events.EventRecorder) *Controller {
	return &Controller{client: c, recorder: recorder}
}

// Register adds the controller to the manager.
func Register(mgr ctrl.Manager, _ Options) error {
	// Sets that never existed have no event.
	atStart := source.Func(func(_ context.Context, q workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
		for name := range sets {
			q.Add(reconcile.Request{NamespacedName: types.NamespacedName{Name: name}})
		}
		return nil
	})
	return ctrl.NewControllerManagedBy(mgr).Named("registration-managedclusterset-default").
		Watches(&clusterv1beta2.ManagedClusterSet{}, &handler.EnqueueRequestForObject{}).
		WatchesRawSource(atStart).
		WithOptions(controller.Options{RateLimiter: retry.Limiter()}).
		Complete(retry.Conflicts(New(mgr.GetClient(), mgr.GetEventRecorder("default-managed-cluster-set-controller"))))
}

// Reconcile creates the set if it does not exist, and reverts changes of its selector.
func (c *Controller) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	want, ours := sets[req.Name]
	if !ours {
		return ctrl.Result{}, nil
	}
	set := &clusterv1beta2.ManagedClusterSet{}
	err := c.client.Get(ctx, req.NamespacedName, set)
	if apierrors.IsNotFound(err) {
		return ctrl.Result{}, c.create(ctx, req.Name)
	}
	if err != nil {
		return ctrl.Result{}, fmt.Errorf("get ManagedClusterSet %s: %w", req.Name, err)
	}
	if !set.DeletionTimestamp.IsZero() || set.Annotations[fleet.AnnotationAutoUpdate] == "false" {
		return ctrl.Result{}, nil // its deletion is another event
	}
	if equality.Semantic.DeepEqual(set.Spec.ClusterSelector, want.selector) {
		return ctrl.Result{}, nil
	}
	before := set.DeepCopy()
	set.Spec.ClusterSelector = want.selector
	if _, err := patch.Object(ctx, c.client, set, before); err != nil {
		return ctrl.Result{}, err
	}
	c.recorder.Eventf(set, nil, corev1.EventTypeNormal, want.rolledBack, "Rollback",
		"The selector of the ManagedClusterSet %s was changed and is back; the annotation %s=false would keep a change", set.Name,
		fleet.AnnotationAutoUpdate)
	return ctrl.Result{}, nil
}

func (c *Controller) create(ctx context.Context, name string) error {
	set := &clusterv1beta2.ManagedClusterSet{}
	set.Name, set.Spec.ClusterSelector = name, sets[name].selector
	if err := c.client.Create(ctx, set); err != nil {
		if apierrors.IsAlreadyExists(err) {
			return nil // its creation is another event
		}
		return fmt.Errorf("create ManagedClusterSet %s: %w", name, err)
	}
	c.recorder.Eventf(set, nil, corev1.EventTypeNormal, sets[name].created, "Create", "The ManagedClusterSet %s was not there", name)
	return nil
}
