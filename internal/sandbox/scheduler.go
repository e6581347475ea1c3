package sandbox

import (
	"context"
	"fmt"

	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/events"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/scheduler"
)

// addScheduler hands add the stock scheduler with its default profile.
func addScheduler(ctx context.Context, config *rest.Config, add func(func(context.Context))) error {
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	// A factory of its own: the scheduler must not see pods that have ended.
	pods := scheduler.NewInformerFactory(client, 0, nil)
	broadcaster := events.NewEventBroadcasterAdapterWithContext(ctx, client)
	recorders := func(name string) events.EventRecorderLogger { return broadcaster.NewRecorder(name) }
	sched, err := scheduler.New(ctx, client, pods, nil, recorders)
	if err != nil {
		return fmt.Errorf("prepare the scheduler: %w", err)
	}
	add(func(ctx context.Context) { runScheduler(ctx, sched, pods, broadcaster) })
	return nil
}

func runScheduler(ctx context.Context, sched *scheduler.Scheduler, shared informers.SharedInformerFactory, broadcaster events.EventBroadcasterAdapter) {
	broadcaster.StartRecordingToSink(ctx.Done())
	defer broadcaster.Shutdown()
	shared.Start(ctx.Done())
	shared.WaitForCacheSync(ctx.Done())
	if err := sched.WaitForHandlersSync(ctx); err != nil {
		if ctx.Err() == nil {
			klog.FromContext(ctx).Error(err, "Scheduler did not start; pods stay Pending")
		}
		return
	}
	sched.Run(ctx)
}
