package nodesim

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/labels"
	coreinformers "k8s.io/client-go/informers/core/v1"
	"k8s.io/client-go/kubernetes"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
)

// workers is how many pods are worked on at once. The API server does the work
// of a status write, so more than a few workers only add contention.
const workers = 4

// Options say what a Simulator simulates and through what it talks.
type Options struct {
	// Nodes is how many nodes there are, 1 to MaxNodes.
	Nodes int
	// Version is the Kubernetes version the nodes report, like v1.37.1.
	Version string
	// Client writes nodes, leases and pod status. It needs the rights of a kubelet
	// plus creating and deleting nodes.
	Client kubernetes.Interface
	// PodInformer and NodeInformer come from a factory the caller starts.
	PodInformer  coreinformers.PodInformer
	NodeInformer coreinformers.NodeInformer
	// Clock stamps what is reported and waits for what is due.
	Clock clock.WithTicker
}

// Simulator is a set of simulated nodes. Make one with New.
type Simulator struct {
	client  kubernetes.Interface
	clock   clock.WithTicker
	version string
	nodes   map[string]node
	ips     *addresses

	pods       corelisters.PodLister
	nodeLister corelisters.NodeLister
	synced     []cache.InformerSynced
	podQueue   workqueue.TypedRateLimitingInterface[cache.ObjectName]
	nodeQueue  workqueue.TypedRateLimitingInterface[string]
}

// New registers the handlers of a simulator with the informers of o; it starts
// nothing. The error names the option that is wrong.
func New(o Options) (*Simulator, error) {
	if o.Nodes < 1 || o.Nodes > MaxNodes {
		return nil, fmt.Errorf("nodes: %d: must be between 1 and %d", o.Nodes, MaxNodes)
	}
	s := &Simulator{
		client:     o.Client,
		clock:      o.Clock,
		version:    o.Version,
		nodes:      make(map[string]node, o.Nodes),
		ips:        newAddresses(),
		pods:       o.PodInformer.Lister(),
		nodeLister: o.NodeInformer.Lister(),
		podQueue:   newQueue[cache.ObjectName]("simulated-pods", o.Clock),
		nodeQueue:  newQueue[string]("simulated-nodes", o.Clock),
	}
	for i := range o.Nodes {
		n := newNode(i)
		s.nodes[n.name] = n
	}
	if err := s.watchPods(o.PodInformer.Informer()); err != nil {
		return nil, fmt.Errorf("watch pods: %w", err)
	}
	if err := s.watchNodes(o.NodeInformer.Informer()); err != nil {
		return nil, fmt.Errorf("watch nodes: %w", err)
	}
	return s, nil
}

func newQueue[T comparable](name string, clock clock.WithTicker) workqueue.TypedRateLimitingInterface[T] {
	return workqueue.NewTypedRateLimitingQueueWithConfig(
		workqueue.NewTypedItemExponentialFailureRateLimiter[T](5*time.Millisecond, 10*time.Second),
		workqueue.TypedRateLimitingQueueConfig[T]{Name: name, Clock: clock})
}

func (s *Simulator) watchPods(informer cache.SharedIndexInformer) error {
	h, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    s.podChanged,
		UpdateFunc: func(_, pod any) { s.podChanged(pod) },
		DeleteFunc: s.podGone,
	})
	if err == nil {
		s.synced = append(s.synced, h.HasSynced)
	}
	return err
}

func (s *Simulator) watchNodes(informer cache.SharedIndexInformer) error {
	h, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    s.nodeChanged,
		UpdateFunc: func(_, node any) { s.nodeChanged(node) },
		DeleteFunc: s.nodeGone,
	})
	if err == nil {
		s.synced = append(s.synced, h.HasSynced)
	}
	return err
}

func (s *Simulator) nodeChanged(obj any) {
	if name, err := cache.DeletionHandlingObjectToName(obj); err == nil {
		s.nodeQueue.Add(name.Name)
	}
}

func (s *Simulator) nodeGone(obj any) {
	s.nodeChanged(obj)
	name, err := cache.DeletionHandlingObjectToName(obj)
	if err != nil {
		return
	}
	for _, pod := range s.boundPods() {
		if pod.Spec.NodeName == name.Name {
			s.podChanged(pod)
		}
	}
}

func (s *Simulator) podChanged(obj any) {
	if pod, ok := obj.(*corev1.Pod); ok && pod.Spec.NodeName != "" {
		s.podQueue.Add(cache.MetaObjectToName(pod))
	}
}

func (s *Simulator) podGone(obj any) {
	if gone, ok := obj.(cache.DeletedFinalStateUnknown); ok {
		obj = gone.Obj
	}
	if pod, ok := obj.(*corev1.Pod); ok && s.hosts(pod) {
		s.ips.release(pod.Spec.NodeName, pod.UID)
	}
}

// hosts says whether pod is bound to a node of this simulator.
func (s *Simulator) hosts(pod *corev1.Pod) bool {
	_, ours := s.nodes[pod.Spec.NodeName]
	return ours
}

// Run simulates until ctx ends, and returns once everything it started ended.
func (s *Simulator) Run(ctx context.Context) {
	defer s.podQueue.ShutDown()
	defer s.nodeQueue.ShutDown()
	if !cache.WaitForCacheSync(ctx.Done(), s.synced...) {
		return
	}
	s.reserveAddresses()

	var running sync.WaitGroup
	for _, n := range s.nodes {
		s.nodeQueue.Add(n.name)
		running.Go(func() { s.renewLease(ctx, n) })
	}
	running.Go(func() { work(ctx, s.nodeQueue, s.syncNode) })
	for range workers {
		running.Go(func() { work(ctx, s.podQueue, s.syncPod) })
	}
	<-ctx.Done()
	s.podQueue.ShutDown()
	s.nodeQueue.ShutDown()
	running.Wait()
}

// reserveAddresses learns the pod IPs given out before this process started.
func (s *Simulator) reserveAddresses() {
	for _, pod := range s.boundPods() {
		if s.hosts(pod) && !finished(pod) && !pod.Spec.HostNetwork {
			s.ips.reserve(pod.Spec.NodeName, pod.UID, pod.Status.PodIP)
		}
	}
}

func (s *Simulator) boundPods() []*corev1.Pod {
	pods, err := s.pods.List(labels.Everything())
	if err != nil {
		return nil // a lister reads memory and does not fail
	}
	return slices.DeleteFunc(pods, func(pod *corev1.Pod) bool { return pod.Spec.NodeName == "" })
}

// work calls sync for the keys of queue until the queue shuts down. sync returns
// when to look at the key again, 0 for not before it changes.
func work[T comparable](ctx context.Context, queue workqueue.TypedRateLimitingInterface[T],
	sync func(context.Context, T) (time.Duration, error)) {
	for {
		key, stop := queue.Get()
		if stop {
			return
		}
		after, err := sync(ctx, key)
		switch {
		case err == nil:
			queue.Forget(key)
			if after > 0 {
				queue.AddAfter(key, after)
			}
		case ctx.Err() != nil:
		case apierrors.IsConflict(err) || apierrors.IsNotFound(err):
			// The cache was behind. The event that brings it up to date may already
			// have been handled, so look again; it is nothing to report.
			queue.AddRateLimited(key)
		default:
			klog.FromContext(ctx).Error(err, "Simulate; will retry", "key", key)
			queue.AddRateLimited(key)
		}
		queue.Done(key)
	}
}
