// Package clusterprofile makes ClusterProfiles of the clusters in the sets that are bound in a namespace, for tools that use the
// inventory API of the Kubernetes SIG Multicluster.
package clusterprofile

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	clusterv1 "github.com/capstan-io/capstan/api/cluster/v1"
	clusterv1beta2 "github.com/capstan-io/capstan/api/cluster/v1beta2"
	multiclusterv1alpha1 "github.com/capstan-io/capstan/api/multicluster/v1alpha1"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
	"github.com/capstan-io/capstan/internal/machinery/managedcluster"
	"github.com/capstan-io/capstan/internal/machinery/patch"
	"github.com/capstan-io/capstan/internal/machinery/predicates"
	"github.com/capstan-io/capstan/internal/machinery/retry"
)

// workers is how many profiles are written at once.
const workers = 10

// Options configure the controller.
type Options struct {
	// Clock is the source of time.
	Clock clock.PassiveClock
}

// Controller reconciles ClusterProfiles. A request is a profile: a namespace, and the name of a cluster.
type Controller struct {
	client   client.Client
	recorder events.EventRecorder
	pace     *pace
}

// New returns a Controller that works through the client.
func New(c client.Client, recorder events.EventRecorder, o Options) *Controller {
	return &Controller{client: c, recorder: recorder, pace: newPace(o.Clock)}
}

// Register adds the controller to the manager.
func Register(mgr ctrl.Manager, o Options) error {
	c := New(mgr.GetClient(), mgr.GetEventRecorder("cluster-profile-controller"), o)
	return ctrl.NewControllerManagedBy(mgr).Named("registration-clusterprofile-sync").
		For(&multiclusterv1alpha1.ClusterProfile{}).
		Watches(&clusterv1.ManagedCluster{}, each(c.ofCluster), builder.WithPredicates(presentedChanged())).
		Watches(&clusterv1beta2.ManagedClusterSetBinding{}, each(c.ofBinding)).
		Watches(&clusterv1beta2.ManagedClusterSet{}, each(c.ofSet), builder.WithPredicates(predicates.Generation())).
		WithOptions(controller.Options{MaxConcurrentReconciles: workers, RateLimiter: retry.Limiter()}).
		Complete(retry.Conflicts(c))
}

type queue = workqueue.TypedRateLimitingInterface[reconcile.Request]

// each enqueues the profiles that an object affects, before and after a change.
func each(of func(context.Context, client.Object) ([]reconcile.Request, error)) handler.EventHandler {
	add := func(ctx context.Context, q queue, o client.Object) {
		requests, err := of(ctx, o)
		if err != nil {
			ctrl.LoggerFrom(ctx).Error(err, "Find the ClusterProfiles of an object", "object", client.ObjectKeyFromObject(o))
		}
		for _, r := range requests {
			q.Add(r)
		}
	}
	return handler.Funcs{
		CreateFunc: func(ctx context.Context, e event.CreateEvent, q queue) { add(ctx, q, e.Object) },
		DeleteFunc: func(ctx context.Context, e event.DeleteEvent, q queue) { add(ctx, q, e.Object) },
		UpdateFunc: func(ctx context.Context, e event.UpdateEvent, q queue) {
			add(ctx, q, e.ObjectOld)
			add(ctx, q, e.ObjectNew)
		},
	}
}

// ofCluster returns the profiles of a cluster in the namespaces that bind one of its sets.
func (c *Controller) ofCluster(ctx context.Context, o client.Object) ([]reconcile.Request, error) {
	bindings := &clusterv1beta2.ManagedClusterSetBindingList{}
	if err := c.client.List(ctx, bindings, client.UnsafeDisableDeepCopy); err != nil {
		return nil, err
	}
	in := map[string]bool{} // the sets that are bound, and whether the cluster is in them
	var requests []reconcile.Request
	for i := range bindings.Items {
		set := bindings.Items[i].Spec.ClusterSet
		if _, known := in[set]; !known {
			members, err := membersOf(ctx, c.client, set)
			if err != nil {
				return nil, err
			}
			in[set] = members.Matches(labels.Set(o.GetLabels()))
		}
		if in[set] {
			requests = append(requests, request(bindings.Items[i].Namespace, o.GetName()))
		}
	}
	return requests, nil
}

// ofBinding returns the existing profiles in the namespace of a binding, and those that the binding requires.
func (c *Controller) ofBinding(ctx context.Context, o client.Object) ([]reconcile.Request, error) {
	clusters := sets.New[string]()
	profiles := &multiclusterv1alpha1.ClusterProfileList{}
	if err := c.client.List(ctx, profiles, client.InNamespace(o.GetNamespace()), client.UnsafeDisableDeepCopy); err != nil {
		return nil, err
	}
	for i := range profiles.Items {
		clusters.Insert(profiles.Items[i].Name)
	}
	if binding, ok := o.(*clusterv1beta2.ManagedClusterSetBinding); ok {
		members, err := membersOf(ctx, c.client, binding.Spec.ClusterSet)
		if err != nil {
			return nil, err
		}
		in := &clusterv1.ManagedClusterList{}
		if err := c.client.List(ctx, in, client.MatchingLabelsSelector{Selector: members}, client.UnsafeDisableDeepCopy); err != nil {
			return nil, err
		}
		for i := range in.Items {
			clusters.Insert(in.Items[i].Name)
		}
	}
	requests := make([]reconcile.Request, 0, len(clusters))
	for cluster := range clusters {
		requests = append(requests, request(o.GetNamespace(), cluster))
	}
	return requests, nil
}

// ofSet returns the profiles of the bindings of a set.
func (c *Controller) ofSet(ctx context.Context, o client.Object) ([]reconcile.Request, error) {
	bindings := &clusterv1beta2.ManagedClusterSetBindingList{}
	if err := c.client.List(ctx, bindings, client.UnsafeDisableDeepCopy); err != nil {
		return nil, err
	}
	var requests []reconcile.Request
	for i := range bindings.Items {
		if bindings.Items[i].Spec.ClusterSet != o.GetName() {
			continue
		}
		more, err := c.ofBinding(ctx, &bindings.Items[i])
		if err != nil {
			return nil, err
		}
		requests = append(requests, more...)
	}
	return requests, nil
}

func request(namespace, cluster string) reconcile.Request {
	return reconcile.Request{NamespacedName: client.ObjectKey{Namespace: namespace, Name: cluster}}
}

// Reconcile writes the profile of the cluster if one of its sets is bound in the namespace, and deletes it otherwise.
func (c *Controller) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	profile := &multiclusterv1alpha1.ClusterProfile{}
	err := c.client.Get(ctx, req.NamespacedName, profile)
	if err != nil && !apierrors.IsNotFound(err) {
		return ctrl.Result{}, fmt.Errorf("get ClusterProfile %s: %w", req, err)
	}
	exists := err == nil
	if exists && profile.Spec.ClusterManager.Name != clusterManager {
		return ctrl.Result{}, nil // it belongs to another cluster manager
	}
	cluster := &clusterv1.ManagedCluster{}
	desired, err := isDesired(ctx, c.client, req.NamespacedName, cluster)
	if err != nil {
		return ctrl.Result{}, err
	}
	if !desired {
		c.pace.forget(req.NamespacedName)
	}
	switch {
	case desired && exists:
		return c.update(ctx, profile, cluster)
	case desired:
		return c.create(ctx, req, cluster)
	case exists && profile.DeletionTimestamp.IsZero():
		return ctrl.Result{}, client.IgnoreNotFound(c.client.Delete(ctx, profile))
	}
	return ctrl.Result{}, nil
}

// IsOfHub reports whether the hub itself presents the cluster in this profile, or will: whoever may write ClusterProfiles in a namespace
// can make one for any cluster there, which the hub deletes.
func IsOfHub(ctx context.Context, c client.Reader, profile *multiclusterv1alpha1.ClusterProfile) (bool, error) {
	if profile.Spec.ClusterManager.Name != clusterManager || !profile.DeletionTimestamp.IsZero() {
		return false, nil
	}
	return isDesired(ctx, c, client.ObjectKeyFromObject(profile), &clusterv1.ManagedCluster{})
}

// isDesired reports whether the cluster exists and is in a set that is bound in the namespace.
func isDesired(ctx context.Context, c client.Reader, req client.ObjectKey, cluster *clusterv1.ManagedCluster) (bool, error) {
	err := c.Get(ctx, client.ObjectKey{Name: req.Name}, cluster)
	if apierrors.IsNotFound(err) || err == nil && !cluster.DeletionTimestamp.IsZero() {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("get ManagedCluster %s: %w", req.Name, err)
	}
	bindings := &clusterv1beta2.ManagedClusterSetBindingList{}
	if err := c.List(ctx, bindings, client.InNamespace(req.Namespace), client.UnsafeDisableDeepCopy); err != nil {
		return false, fmt.Errorf("list the ManagedClusterSetBindings of namespace %s: %w", req.Namespace, err)
	}
	for i := range bindings.Items {
		b := &bindings.Items[i]
		if !b.DeletionTimestamp.IsZero() || !meta.IsStatusConditionTrue(b.Status.Conditions, fleet.ConditionBound) {
			continue
		}
		members, err := membersOf(ctx, c, b.Spec.ClusterSet)
		if err != nil {
			return false, err
		}
		if members.Matches(labels.Set(cluster.Labels)) {
			return true, nil
		}
	}
	return false, nil
}

// membersOf selects the members of a set. A set that does not exist, or selects nothing, has none.
func membersOf(ctx context.Context, c client.Reader, name string) (labels.Selector, error) {
	set := &clusterv1beta2.ManagedClusterSet{}
	if err := c.Get(ctx, client.ObjectKey{Name: name}, set); err != nil {
		return labels.Nothing(), client.IgnoreNotFound(err)
	}
	members, err := managedcluster.SetSelector(set)
	if err != nil {
		return labels.Nothing(), nil //nolint:nilerr // a set that selects nothing has no members
	}
	return members, nil
}

func (c *Controller) create(ctx context.Context, req ctrl.Request, cluster *clusterv1.ManagedCluster) (ctrl.Result, error) {
	profile := &multiclusterv1alpha1.ClusterProfile{ObjectMeta: metav1.ObjectMeta{Namespace: req.Namespace, Name: req.Name}}
	present(profile, cluster)
	if err := c.client.Create(ctx, profile); err != nil {
		return ctrl.Result{}, fmt.Errorf("create ClusterProfile %s: %w", req, err)
	}
	return c.updateStatus(ctx, profile, cluster)
}

func (c *Controller) update(ctx context.Context, profile *multiclusterv1alpha1.ClusterProfile,
	cluster *clusterv1.ManagedCluster) (ctrl.Result, error) {
	before := profile.DeepCopy()
	present(profile, cluster)
	if _, err := patch.Object(ctx, c.client, profile, before); err != nil {
		return ctrl.Result{}, err
	}
	return c.updateStatus(ctx, profile, cluster)
}

// updateStatus writes what the cluster reports, now or when the pace permits it.
func (c *Controller) updateStatus(ctx context.Context, profile *multiclusterv1alpha1.ClusterProfile,
	cluster *clusterv1.ManagedCluster) (ctrl.Result, error) {
	before := profile.DeepCopy()
	presentStatus(profile, cluster)
	if equality.Semantic.DeepEqual(profile.Status, before.Status) {
		return ctrl.Result{}, nil
	}
	if wait := c.pace.wait(client.ObjectKeyFromObject(profile)); wait > 0 {
		return ctrl.Result{RequeueAfter: wait}, nil
	}
	if _, err := patch.Status(ctx, c.client, profile, before); err != nil {
		return ctrl.Result{}, err
	}
	c.recorder.Eventf(profile, nil, corev1.EventTypeNormal, fleet.EventClusterProfileStatusUpdated, "UpdateStatus",
		"The status follows that of ManagedCluster %s", cluster.Name)
	return ctrl.Result{}, nil
}
