package sandbox

import (
	"context"
	"fmt"
	"time"

	cacheddiscovery "k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"
	"k8s.io/client-go/scale"
	"k8s.io/client-go/util/flowcontrol"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/controller/cronjob"
	"k8s.io/kubernetes/pkg/controller/daemon"
	"k8s.io/kubernetes/pkg/controller/deployment"
	"k8s.io/kubernetes/pkg/controller/disruption"
	"k8s.io/kubernetes/pkg/controller/endpoint"
	"k8s.io/kubernetes/pkg/controller/endpointslice"
	"k8s.io/kubernetes/pkg/controller/job"
	"k8s.io/kubernetes/pkg/controller/replicaset"
	"k8s.io/kubernetes/pkg/controller/replication"
	"k8s.io/kubernetes/pkg/controller/statefulset"
	"k8s.io/kubernetes/pkg/controller/ttlafterfinished"
	"k8s.io/kubernetes/pkg/controller/volume/pvcprotection"
	"k8s.io/kubernetes/pkg/controller/volume/pvprotection"
)

const (
	// workers is how many objects of a kind a controller works on at once.
	workers = 3
	// endpointsPerSlice is the default of kube-controller-manager.
	endpointsPerSlice = 100
)

// addWorkloads hands add the controllers that turn workloads into pods and
// services into endpoints.
func addWorkloads(ctx context.Context, config *rest.Config, shared informers.SharedInformerFactory, add func(func(context.Context))) error {
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	for _, group := range []func(context.Context, kubernetes.Interface, informers.SharedInformerFactory, func(func(context.Context))) error{
		addReplicated, addBatch, addEndpoints, addVolumeProtection,
	} {
		if err := group(ctx, client, shared, add); err != nil {
			return err
		}
	}
	return addDisruption(ctx, config, client, shared, add)
}

func addReplicated(ctx context.Context, client kubernetes.Interface, shared informers.SharedInformerFactory,
	add func(func(context.Context))) error {
	apps, core := shared.Apps().V1(), shared.Core().V1()
	deployments, err := deployment.NewDeploymentController(ctx, apps.Deployments(), apps.ReplicaSets(), core.Pods(), client)
	if err != nil {
		return fmt.Errorf("prepare the deployment controller: %w", err)
	}
	daemons, err := daemon.NewDaemonSetsController(ctx, apps.DaemonSets(), apps.ControllerRevisions(), core.Pods(), core.Nodes(), client,
		flowcontrol.NewBackOff(time.Second, 15*time.Minute))
	if err != nil {
		return fmt.Errorf("prepare the daemon set controller: %w", err)
	}
	sets := replicaset.NewReplicaSetController(ctx, apps.ReplicaSets(), core.Pods(), client, replicaset.BurstReplicas)
	stateful := statefulset.NewStatefulSetController(ctx, core.Pods(), apps.StatefulSets(), core.PersistentVolumeClaims(),
		apps.ControllerRevisions(), client)
	replications := replication.NewReplicationManager(ctx, core.Pods(), core.ReplicationControllers(), client, replication.BurstReplicas)
	for _, run := range []func(context.Context, int){deployments.Run, sets.Run, daemons.Run, stateful.Run, replications.Run} {
		add(func(ctx context.Context) { run(ctx, workers) })
	}
	return nil
}

func addBatch(ctx context.Context, client kubernetes.Interface, shared informers.SharedInformerFactory,
	add func(func(context.Context))) error {
	batch := shared.Batch().V1()
	// The last two informers are for gang scheduling, an alpha feature that is off.
	jobs, err := job.NewController(ctx, client, shared.Core().V1().Pods(), batch.Jobs(), nil, nil)
	if err != nil {
		return fmt.Errorf("prepare the job controller: %w", err)
	}
	cronJobs, err := cronjob.NewControllerV2(ctx, batch.Jobs(), batch.CronJobs(), client)
	if err != nil {
		return fmt.Errorf("prepare the cron job controller: %w", err)
	}
	finished := ttlafterfinished.New(ctx, batch.Jobs(), client)
	for _, run := range []func(context.Context, int){jobs.Run, cronJobs.Run, finished.Run} {
		add(func(ctx context.Context) { run(ctx, workers) })
	}
	return nil
}

func addEndpoints(ctx context.Context, client kubernetes.Interface, shared informers.SharedInformerFactory,
	add func(func(context.Context))) error {
	core := shared.Core().V1()
	endpoints := endpoint.NewEndpointController(ctx, core.Pods(), core.Services(), core.Endpoints(), client, 0)
	slices := endpointslice.NewController(ctx, core.Pods(), core.Services(), core.Nodes(), shared.Discovery().V1().EndpointSlices(),
		endpointsPerSlice, client, 0)
	for _, run := range []func(context.Context, int){endpoints.Run, slices.Run} {
		add(func(ctx context.Context) { run(ctx, workers) })
	}
	return nil
}

// addVolumeProtection lets go of claims and volumes that are deleted and that nothing
// uses: the API server gives each a finalizer for that.
func addVolumeProtection(ctx context.Context, client kubernetes.Interface, shared informers.SharedInformerFactory,
	add func(func(context.Context))) error {
	core := shared.Core().V1()
	claims, err := pvcprotection.NewPVCProtectionController(klog.FromContext(ctx), core.PersistentVolumeClaims(), core.Pods(), client)
	if err != nil {
		return fmt.Errorf("prepare the controller that protects claims in use: %w", err)
	}
	volumes, err := pvprotection.NewPVProtectionController(klog.FromContext(ctx), core.PersistentVolumes(), client)
	if err != nil {
		return fmt.Errorf("prepare the controller that protects volumes in use: %w", err)
	}
	for _, run := range []func(context.Context, int){claims.Run, volumes.Run} {
		add(func(ctx context.Context) { run(ctx, workers) })
	}
	return nil
}

// addDisruption keeps the status of PodDisruptionBudgets, without which no pod
// they cover could be evicted.
func addDisruption(ctx context.Context, config *rest.Config, client kubernetes.Interface, shared informers.SharedInformerFactory,
	add func(func(context.Context))) error {
	mapper := restmapper.NewDeferredDiscoveryRESTMapper(cacheddiscovery.NewMemCacheClient(client.Discovery()))
	scales, err := scale.NewForConfig(config, mapper, dynamic.LegacyAPIPathResolverFunc,
		scale.NewDiscoveryScaleKindResolver(client.Discovery()))
	if err != nil {
		return fmt.Errorf("prepare the disruption controller: %w", err)
	}
	apps, core := shared.Apps().V1(), shared.Core().V1()
	budgets := disruption.NewDisruptionController(ctx, core.Pods(), shared.Policy().V1().PodDisruptionBudgets(), core.ReplicationControllers(),
		apps.ReplicaSets(), apps.Deployments(), apps.StatefulSets(), client, mapper, scales, client.Discovery())
	add(func(ctx context.Context) { budgets.Run(ctx, workers) })
	return nil
}
