// Package kubecontrollers runs the Kubernetes controllers that make a bare API server behave like a cluster: namespaces
// are emptied when deleted, objects follow their owners, certificate requests are signed, service accounts and their
// tokens exist, the root CA is published, expired bootstrap tokens go, quotas are counted.
package kubecontrollers

import (
	"context"
	"fmt"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/client-go/discovery"
	cacheddiscovery "k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/metadata/metadatainformer"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"
	"sigs.k8s.io/controller-runtime/pkg/cache"

	"github.com/capstan-io/capstan/internal/controlplane/serviceaccounttoken"
)

// DefaultSigningDuration is how long a signed certificate is valid at most; those of agents are valid for less unless they request it.
const DefaultSigningDuration = 365 * 24 * time.Hour

// informerResync is long because no controller here relies on it: what they need they get from the watch.
const informerResync = 12 * time.Hour

// Config is what the controllers work with. Files are read again when they change.
type Config struct {
	// Client reaches the API server with full privileges and without a client-side throttle (QPS -1).
	Client *rest.Config
	// SigningCertFile and SigningKeyFile hold the CA that signs certificate requests, in PEM, exactly one certificate.
	SigningCertFile, SigningKeyFile string
	// SigningDuration is the longest a signed certificate is valid; 0 means DefaultSigningDuration.
	SigningDuration time.Duration
	// ServiceAccountKeys sign the tokens kept in Secrets, and again before the key that did it ends.
	ServiceAccountKeys *serviceaccounttoken.Keys
	// RootCAFile holds the PEM bundle published as ConfigMap kube-root-ca.crt in every namespace.
	RootCAFile string
	// Workloads says that the API server serves pods, services and volume claims, so that quotas on them are counted.
	Workloads bool
}

// Controllers is a set of controllers that start and stop together.
type Controllers struct {
	config    Config
	informers informers.SharedInformerFactory
	// narrow holds informers that see only the few objects a controller cares about, of types that may be many.
	narrow     []informers.SharedInformerFactory
	metadata   metadatainformer.SharedInformerFactory
	started    chan struct{}
	mapper     meta.ResettableRESTMapper
	discovery  discovery.DiscoveryInterface
	resources  *resourceChanges
	reloadable *dynamicRootCA
	runs       []func(context.Context)
}

// New prepares the controllers of this package. The API server need not be up yet. ctx carries the logger.
func New(ctx context.Context, config Config) (*Controllers, error) {
	if config.SigningDuration == 0 {
		config.SigningDuration = DefaultSigningDuration
	}
	c := &Controllers{config: config, started: make(chan struct{})}
	if err := c.prepareSources(); err != nil {
		return nil, err
	}
	for _, add := range []struct {
		name string
		to   func(context.Context) error
	}{
		{"root CA", c.addRootCAConsumers},
		{"service account", c.addServiceAccounts},
		{"certificate signing", c.addCertificates},
		{"namespace", c.addNamespaces},
		{"garbage collector", c.addGarbageCollector},
		{"cluster role aggregation", c.addClusterRoleAggregation},
		{"bootstrap token", c.addBootstrapTokens},
		{"resource quota", c.addResourceQuota},
		{"validating admission policy", c.addPolicyStatus},
	} {
		if err := add.to(ctx); err != nil {
			return nil, fmt.Errorf("prepare the %s controllers: %w", add.name, err)
		}
	}
	return c, nil
}

// Informers is the shared factory of the controllers here, for controllers of the caller. They are started by Run.
func (c *Controllers) Informers() informers.SharedInformerFactory { return c.informers }

// Add makes Run start one more controller. run must return when its context ends.
func (c *Controllers) Add(run func(context.Context)) { c.runs = append(c.runs, run) }

// Run starts all controllers and returns when ctx has ended and every one of them has stopped.
func (c *Controllers) Run(ctx context.Context) {
	var running sync.WaitGroup
	for _, run := range c.runs {
		running.Go(func() { run(ctx) })
	}
	c.informers.Start(ctx.Done())
	for _, factory := range c.narrow {
		factory.Start(ctx.Done())
	}
	c.metadata.Start(ctx.Done())
	close(c.started)
	running.Wait()
}

func (c *Controllers) prepareSources() error {
	base, err := c.client("informers")
	if err != nil {
		return err
	}
	c.informers = informers.NewSharedInformerFactoryWithOptions(base, informerResync,
		informers.WithTransform(cache.TransformStripManagedFields()))
	objects, err := metadata.NewForConfig(c.clientConfig("metadata-informers"))
	if err != nil {
		return err
	}
	c.metadata = metadatainformer.NewSharedInformerFactoryWithOptions(objects, informerResync, metadatainformer.WithTransform(onlyOwnership))
	discoverer, err := c.client("discovery")
	if err != nil {
		return err
	}
	c.discovery = discoverer.Discovery()
	c.mapper = restmapper.NewDeferredDiscoveryRESTMapper(cacheddiscovery.NewMemCacheClient(c.discovery))
	c.resources = newResourceChanges()
	if err := c.resources.watch(c.metadata); err != nil {
		return err
	}
	c.Add(c.resources.run)
	c.resources.subscribe(func() { c.mapper.Reset() })
	return nil
}

func (c *Controllers) clientConfig(controller string) *rest.Config {
	return rest.AddUserAgent(rest.CopyConfig(c.config.Client), controller)
}

// client names the controller in its user agent, which distinguishes requests in the audit log.
func (c *Controllers) client(controller string) (kubernetes.Interface, error) {
	return kubernetes.NewForConfig(c.clientConfig(controller))
}

// onlyOwnership keeps what the garbage collector and the quota count read of an object: it is held for every object
// there is.
func onlyOwnership(object any) (any, error) {
	if accessor, err := meta.Accessor(object); err == nil {
		accessor.SetManagedFields(nil)
		accessor.SetAnnotations(nil)
		accessor.SetLabels(nil)
	}
	return object, nil
}
