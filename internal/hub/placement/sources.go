package placement

import (
	"context"
	"time"

	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	clusterv1 "github.com/capstan-io/capstan/api/cluster/v1"
	clusterv1alpha1 "github.com/capstan-io/capstan/api/cluster/v1alpha1"
	clusterv1beta1 "github.com/capstan-io/capstan/api/cluster/v1beta1"
	clusterv1beta2 "github.com/capstan-io/capstan/api/cluster/v1beta2"
	scheduler "github.com/capstan-io/capstan/internal/placement"
)

type queue = workqueue.TypedRateLimitingInterface[reconcile.Request]

// sources returns the sources of events. They pass the objects to the scheduler and enqueue the placements that the scheduler returns.
// controller-runtime reconciles no placement before all sources have synced.
func (c *Controller) sources(objects cache.Cache) []source.Source {
	s := c.scheduler
	return []source.Source{
		schedulerSource(c, objects, &clusterv1.ManagedCluster{}, s.SetCluster,
			func(o *clusterv1.ManagedCluster) []scheduler.Key { return s.DeleteCluster(o.Name) }),
		schedulerSource(c, objects, &clusterv1beta2.ManagedClusterSet{}, s.SetClusterSet,
			func(o *clusterv1beta2.ManagedClusterSet) []scheduler.Key { return s.DeleteClusterSet(o.Name) }),
		schedulerSource(c, objects, &clusterv1beta2.ManagedClusterSetBinding{}, s.SetBinding,
			func(o *clusterv1beta2.ManagedClusterSetBinding) []scheduler.Key {
				return s.DeleteBinding(client.ObjectKeyFromObject(o))
			}),
		schedulerSource(c, objects, &clusterv1alpha1.AddOnPlacementScore{}, s.SetScore,
			func(o *clusterv1alpha1.AddOnPlacementScore) []scheduler.Key {
				return s.DeleteScore(client.ObjectKeyFromObject(o))
			}),
		schedulerSource(c, objects, &clusterv1beta1.Placement{}, s.SetPlacement, func(o *clusterv1beta1.Placement) []scheduler.Key {
			s.DeletePlacement(client.ObjectKeyFromObject(o))
			return []scheduler.Key{client.ObjectKeyFromObject(o)}
		}),
		c.decisionSource(objects),
		source.Func(c.runTimer),
		source.Func(c.runEvaluators),
		source.Func(c.runEventWriter),
	}
}

// schedulerSource is a source that passes objects of a kind to the scheduler.
func schedulerSource[T client.Object](c *Controller, objects cache.Cache, kind T, set, remove func(T) []scheduler.Key) source.Source {
	handle := func(q queue, o T, into func(T) []scheduler.Key) {
		// The event is handled with the present time, not that of the last Advance.
		enqueue(q, c.scheduler.Advance(c.clock.Now()))
		enqueue(q, into(o))
		c.wake()
	}
	return source.Kind(objects, kind, handler.TypedFuncs[T, reconcile.Request]{
		CreateFunc:  func(_ context.Context, e event.TypedCreateEvent[T], q queue) { handle(q, e.Object, set) },
		UpdateFunc:  func(_ context.Context, e event.TypedUpdateEvent[T], q queue) { handle(q, e.ObjectNew, set) },
		DeleteFunc:  func(_ context.Context, e event.TypedDeleteEvent[T], q queue) { handle(q, e.Object, remove) },
		GenericFunc: func(context.Context, event.TypedGenericEvent[T], queue) {},
	})
}

func enqueue(q queue, keys []scheduler.Key) {
	for _, key := range keys {
		q.Add(reconcile.Request{NamespacedName: key})
	}
}

// runTimer advances the time of the scheduler when a toleration or score expires, until the context ends.
func (c *Controller) runTimer(ctx context.Context, q queue) error {
	enqueue(q, c.scheduler.Advance(c.clock.Now()))
	go func() {
		for c.wait(ctx, c.scheduler.NextAdvance(), c.timerWake) {
			enqueue(q, c.scheduler.Advance(c.clock.Now()))
		}
	}()
	return nil
}

// maxWait limits a wait, as timers do not count the time for which a machine is suspended.
const maxWait = 5 * time.Minute

// wake wakes the goroutines that wait for work of the scheduler.
func (c *Controller) wake() {
	for range evaluatorCount {
		notify(c.evaluatorWake)
	}
	notify(c.timerWake)
}

func notify(waiting chan<- struct{}) {
	select {
	case waiting <- struct{}{}:
	default:
	}
}

// evaluatorCount is 2, so that there is one for the other namespaces while one evaluates expensive expressions.
const evaluatorCount = 2

// runEvaluators evaluates CEL expressions in the background, until the context ends.
func (c *Controller) runEvaluators(ctx context.Context, q queue) error {
	for range evaluatorCount {
		go c.runEvaluator(ctx, q)
	}
	return nil
}

func (c *Controller) runEvaluator(ctx context.Context, q queue) {
	for {
		now := c.clock.Now()
		changed, again := c.scheduler.Evaluate(ctx, now)
		enqueue(q, changed)
		if again.Equal(now) && ctx.Err() == nil {
			continue
		}
		if !c.wait(ctx, again, c.evaluatorWake) {
			return
		}
	}
}

// wait returns at a time, unless it is zero, or when wake receives. It reports false if the context has ended.
func (c *Controller) wait(ctx context.Context, at time.Time, wake <-chan struct{}) bool {
	var due <-chan time.Time
	if !at.IsZero() {
		timer := c.clock.NewTimer(min(max(at.Sub(c.clock.Now()), time.Millisecond), maxWait))
		defer timer.Stop()
		due = timer.C()
	}
	select {
	case <-ctx.Done():
		return false
	case <-due:
	case <-wake:
	}
	return true
}
