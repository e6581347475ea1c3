package sandbox

import (
	"context"
	"fmt"

	"k8s.io/client-go/informers"
	coregroup "k8s.io/client-go/informers/core"
	coreinformers "k8s.io/client-go/informers/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/events"
	"k8s.io/kubernetes/pkg/scheduler"
)

// addScheduler hands add the stock scheduler with its default profile.
func addScheduler(ctx context.Context, config *rest.Config, shared informers.SharedInformerFactory, add func(func(context.Context))) error {
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	pods := scheduler.NewInformerFactory(client, 0, nil)
	broadcaster := events.NewEventBroadcasterAdapterWithContext(ctx, client)
	recorders := func(name string) events.EventRecorderLogger { return broadcaster.NewRecorder(name) }
	sched, err := scheduler.New(ctx, client, schedulerInformers{shared, pods.Core().V1().Pods()}, nil, recorders)
	if err != nil {
		return fmt.Errorf("prepare the scheduler: %w", err)
	}
	add(func(ctx context.Context) {
		broadcaster.StartRecordingToSink(ctx.Done())
		defer broadcaster.Shutdown()
		pods.Start(ctx.Done())
		if err := sched.WaitForHandlersSync(ctx); err == nil {
			sched.Run(ctx)
		}
	})
	return nil
}

// schedulerInformers shares all informers with the controllers, except that of
// pods: the scheduler must not count pods that have ended.
type schedulerInformers struct {
	informers.SharedInformerFactory
	unfinished coreinformers.TypedPodInformer
}

func (s schedulerInformers) Core() coregroup.Interface {
	return schedulerCore{s.SharedInformerFactory.Core(), s.unfinished}
}

type schedulerCore struct {
	coregroup.Interface
	unfinished coreinformers.TypedPodInformer
}

func (s schedulerCore) V1() coreinformers.Interface {
	return schedulerCoreV1{s.Interface.V1(), s.unfinished}
}

type schedulerCoreV1 struct {
	coreinformers.Interface
	unfinished coreinformers.TypedPodInformer
}

func (s schedulerCoreV1) Pods() coreinformers.TypedPodInformer { return s.unfinished }
