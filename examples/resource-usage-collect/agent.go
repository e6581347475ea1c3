package main

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	clusterv1alpha1 "github.com/capstan-io/capstan/api/cluster/v1alpha1"
)

const (
	// scoreName is the name of the AddOnPlacementScore.
	scoreName = "resource-usage-score"
	// refresh is how often validUntil moves on while nothing changes.
	refresh = time.Minute
	// validity is how long the scores hold without a report of the agent.
	validity = 3 * refresh
	// debounce collects the changes of a rollout into one write.
	debounce = time.Second
	// firstRetry doubles up to lastRetry while the hub cannot be reached, so that scores are renewed before they expire once it can.
	firstRetry = 100 * time.Millisecond
	lastRetry  = refresh / 2
)

// reporter writes the scores of one cluster to the hub.
type reporter struct {
	managed client.Reader
	hub     client.Client
	cluster string
	maxima  maxima
	clock   clock.Clock
}

// register adds watches of nodes and pods.
func (r *reporter) register(mgr ctrl.Manager) error {
	return ctrl.NewControllerManagedBy(mgr).Named("resource-usage").
		Watches(&corev1.Node{}, r.soon(nodeMatters)).
		Watches(&corev1.Pod{}, r.soon(podMatters)).
		WatchesRawSource(source.Func(func(_ context.Context, q workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
			q.Add(reconcile.Request{}) // a cluster may have neither
			return nil
		})).
		WithOptions(controller.Options{
			RateLimiter: workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](firstRetry, lastRetry),
		}).
		Complete(r)
}

// Reconcile brings the scores on the hub up to date, and their validity with them.
func (r *reporter) Reconcile(ctx context.Context, _ reconcile.Request) (reconcile.Result, error) {
	var nodes corev1.NodeList
	var pods corev1.PodList
	if err := r.managed.List(ctx, &nodes, client.UnsafeDisableDeepCopy); err != nil {
		return reconcile.Result{}, fmt.Errorf("list nodes: %w", err)
	}
	if err := r.managed.List(ctx, &pods, client.UnsafeDisableDeepCopy); err != nil {
		return reconcile.Result{}, fmt.Errorf("list pods: %w", err)
	}
	if err := r.report(ctx, scores(nodes.Items, pods.Items, r.maxima)); err != nil {
		return reconcile.Result{}, err
	}
	return reconcile.Result{RequeueAfter: refresh}, nil
}

func (r *reporter) report(ctx context.Context, scores []clusterv1alpha1.AddOnPlacementScoreItem) error {
	score, err := r.ensure(ctx)
	if err != nil {
		return err
	}
	now := r.clock.Now()
	fresh := score.Status.ValidUntil != nil && score.Status.ValidUntil.After(now.Add(validity-refresh))
	if fresh && equality.Semantic.DeepEqual(score.Status.Scores, scores) {
		return nil
	}
	score.Status.Scores = scores
	score.Status.ValidUntil = &metav1.Time{Time: now.Add(validity)}
	if err := r.hub.Status().Update(ctx, score); err != nil {
		return fmt.Errorf("write the scores to the hub: %w", err)
	}
	return nil
}

// ensure returns the score object, and creates it if it does not exist.
func (r *reporter) ensure(ctx context.Context) (*clusterv1alpha1.AddOnPlacementScore, error) {
	score := &clusterv1alpha1.AddOnPlacementScore{ObjectMeta: metav1.ObjectMeta{Namespace: r.cluster, Name: scoreName}}
	err := r.hub.Get(ctx, client.ObjectKeyFromObject(score), score)
	if apierrors.IsNotFound(err) {
		err = r.hub.Create(ctx, score)
	}
	if err != nil {
		return nil, fmt.Errorf("get or make AddOnPlacementScore %s/%s on the hub: %w", r.cluster, scoreName, err)
	}
	return score, nil
}

// soon enqueues one pass over everything, a moment after an event that affects the scores.
func (r *reporter) soon(matters func(before, after client.Object) bool) handler.EventHandler {
	type queue = workqueue.TypedRateLimitingInterface[reconcile.Request]
	enqueue := func(q queue) { q.AddAfter(reconcile.Request{}, debounce) }
	return handler.Funcs{
		CreateFunc: func(_ context.Context, _ event.CreateEvent, q queue) { enqueue(q) },
		DeleteFunc: func(_ context.Context, _ event.DeleteEvent, q queue) { enqueue(q) },
		UpdateFunc: func(_ context.Context, e event.UpdateEvent, q queue) {
			if matters(e.ObjectOld, e.ObjectNew) {
				enqueue(q)
			}
		},
	}
}

func nodeMatters(before, after client.Object) bool {
	was, is := before.(*corev1.Node), after.(*corev1.Node)
	return takesPods(was) != takesPods(is) || !equality.Semantic.DeepEqual(was.Status.Allocatable, is.Status.Allocatable)
}

func podMatters(before, after client.Object) bool {
	was, is := before.(*corev1.Pod), after.(*corev1.Pod)
	return was.Status.Phase != is.Status.Phase || was.Spec.NodeName != is.Spec.NodeName ||
		!equality.Semantic.DeepEqual(was.Spec, is.Spec)
}

// stripPod keeps only what the scores depend on: the agent caches all pods of the cluster.
func stripPod(object any) (any, error) {
	pod, ok := object.(*corev1.Pod)
	if !ok {
		return object, nil
	}
	return &corev1.Pod{
		TypeMeta:   pod.TypeMeta,
		ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID, ResourceVersion: pod.ResourceVersion},
		Spec: corev1.PodSpec{
			NodeName: pod.Spec.NodeName, Overhead: pod.Spec.Overhead, Resources: pod.Spec.Resources,
			Containers: requestsOf(pod.Spec.Containers), InitContainers: requestsOf(pod.Spec.InitContainers),
		},
		Status: corev1.PodStatus{Phase: pod.Status.Phase},
	}, nil
}

func requestsOf(containers []corev1.Container) []corev1.Container {
	var kept []corev1.Container
	for i := range containers {
		c := &containers[i]
		kept = append(kept, corev1.Container{
			Name: c.Name, RestartPolicy: c.RestartPolicy, Resources: corev1.ResourceRequirements{Requests: c.Resources.Requests},
		})
	}
	return kept
}

// stripNode does the same for nodes.
func stripNode(object any) (any, error) {
	node, ok := object.(*corev1.Node)
	if !ok {
		return object, nil
	}
	return &corev1.Node{
		TypeMeta:   node.TypeMeta,
		ObjectMeta: metav1.ObjectMeta{Name: node.Name, UID: node.UID, ResourceVersion: node.ResourceVersion},
		Spec:       corev1.NodeSpec{Unschedulable: node.Spec.Unschedulable},
		Status:     corev1.NodeStatus{Allocatable: node.Status.Allocatable, Conditions: node.Status.Conditions},
	}, nil
}
