package kubecontrollers

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/quota/v1/generic"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/kubernetes/pkg/controller/resourcequota"
	"k8s.io/kubernetes/pkg/quota/v1/evaluator/core"
	quotainstall "k8s.io/kubernetes/pkg/quota/v1/install"
	"k8s.io/utils/clock"
)

const (
	// quotaResync is a safety net, as in a stock controller manager.
	quotaResync = 5 * time.Minute

	// quotaPatience is how long the quota controller waits for the cache of a resource before it counts the others.
	quotaPatience = 30 * time.Second
)

// addResourceQuota counts what ResourceQuotas limit.
func (c *Controllers) addResourceQuota(ctx context.Context) error {
	client, err := c.client("resourcequota-controller")
	if err != nil {
		return err
	}
	discover := client.Discovery().ServerPreferredNamespacedResources
	controller, err := c.newResourceQuota(ctx, client, discover, clock.RealClock{})
	if err != nil {
		return err
	}
	c.Add(func(ctx context.Context) { controller.Run(ctx, 2) })
	c.Add(c.resources.follow(func(ctx context.Context, period time.Duration) {
		controller.Sync(ctx, discover, period)
	}))
	return nil
}

func (c *Controllers) newResourceQuota(ctx context.Context, client kubernetes.Interface, discover resourcequota.NamespacedResourcesFunc,
	clock clock.PassiveClock) (*resourcequota.Controller, error) {
	evaluators, err := core.NewEvaluators(generic.ListerFuncForResourceFunc(c.objectInformers().ForResource), c.informers, c.counts)
	if err != nil {
		return nil, err
	}
	return resourcequota.NewController(ctx, &resourcequota.ControllerOptions{
		QuotaClient:               client.CoreV1(),
		ResourceQuotaInformer:     c.informers.Core().V1().ResourceQuotas(),
		ResyncPeriod:              func() time.Duration { return quotaResync },
		InformerFactory:           quotaInformers{objectInformers: c.objectInformers(), clock: clock},
		ReplenishmentResyncPeriod: func() time.Duration { return informerResync },
		DiscoveryFunc:             discover,
		IgnoredResourcesFunc:      quotainstall.DefaultIgnoredResources,
		InformersStarted:          c.started,
		Registry:                  generic.NewRegistry(evaluators),
		UpdateFilter:              quotainstall.DefaultUpdateFilter(),
	})
}

// counts says whether a resource that quotas count by content is served: an informer on one that is not would retry for
// ever.
func (c *Controllers) counts(resource schema.GroupVersionResource) bool {
	return c.config.Workloads || !contentCounted[resource.GroupResource()]
}

// quotaInformers serves the quota controller, which counts nothing at its start and after each change of what is served until all its
// informers have synced. One on a CRD that cannot be listed, because its conversion webhook does not answer, never does: it is not waited
// for longer than quotaPatience. Objects of that CRD are still not counted before it has synced.
type quotaInformers struct {
	objectInformers
	clock clock.PassiveClock
}

// ForResource implements informerfactory.InformerFactory.
func (q quotaInformers) ForResource(resource schema.GroupVersionResource) (informers.GenericInformer, error) {
	informer, err := q.objectInformers.ForResource(resource)
	if err != nil {
		return nil, err
	}
	return quotaInformer{GenericInformer: informer, clock: q.clock}, nil
}

type quotaInformer struct {
	informers.GenericInformer
	clock clock.PassiveClock
}

// Informer implements informers.GenericInformer.
func (q quotaInformer) Informer() cache.SharedIndexInformer {
	return quotaSource{SharedIndexInformer: q.GenericInformer.Informer(), clock: q.clock}
}

// quotaSource is the informer itself. The lists of the quota controller ask it whether it has synced.
type quotaSource struct {
	cache.SharedIndexInformer
	clock clock.PassiveClock
}

// GetController returns what the quota controller waits for.
func (q quotaSource) GetController() cache.Controller {
	return awaited{Controller: q.SharedIndexInformer.GetController(), clock: q.clock, until: q.clock.Now().Add(quotaPatience)}
}

type awaited struct {
	cache.Controller
	clock clock.PassiveClock
	until time.Time
}

// HasSynced is true once nobody is to wait any longer.
func (a awaited) HasSynced() bool { return a.Controller.HasSynced() || !a.clock.Now().Before(a.until) }
