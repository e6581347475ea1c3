package hubclient

import (
	"context"
	"net/http"

	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/cluster"

	"github.com/capstan-io/capstan/internal/machinery/consistentclient"
)

// Cluster is the hub as a manager runs it. The manager need not wait for its end: a cache that waits to try an absent hub
// again does not notice the end of its context until it has, which may be in a minute, and nothing depends on it. A controller need not
// wait for kinds that it does not watch: a hub that was restored may keep works and add-ons from agents, which go on with their heartbeats.
type Cluster struct {
	cluster.Cluster
	started chan struct{}
}

// NewCluster returns the hub with the kinds that an agent uses there.
func NewCluster(config *rest.Config, opts ...cluster.Option) (*Cluster, error) {
	hub, err := cluster.New(config, append([]cluster.Option{func(o *cluster.Options) {
		o.Scheme, o.MapperProvider, o.NewClient = known(), MapperProvider, consistentclient.NewClient
	}}, opts...)...)
	if err != nil {
		return nil, err
	}
	return &Cluster{hub, make(chan struct{})}, nil
}

// Over has the clients of a cluster use the connections of a transport.
func Over(transport *http.Client) cluster.Option {
	return func(o *cluster.Options) { o.HTTPClient = transport }
}

// GetCache returns the cache of all kinds. It counts as synced once it has started; who gets an informer waits for that of its kind.
func (c *Cluster) GetCache() cache.Cache { return kindByKind{c.Cluster.GetCache(), c.started} }

type kindByKind struct {
	cache.Cache
	started <-chan struct{}
}

// WaitForCacheSync implements cache.Informers.
func (k kindByKind) WaitForCacheSync(ctx context.Context) bool {
	select {
	case <-k.started:
		return true
	case <-ctx.Done():
		return false
	}
}

// Start runs the caches until the context ends. It is called once.
func (c *Cluster) Start(ctx context.Context) error {
	ended := make(chan error, 1)
	go func() { ended <- c.Cluster.Start(ctx) }()
	go func() {
		if c.Cluster.GetCache().WaitForCacheSync(ctx) { // nobody has an informer yet
			close(c.started)
		}
	}()
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
		return nil
	}
}
