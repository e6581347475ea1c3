package hubclient

import (
	"context"

	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/cluster"

	"github.com/capstan-io/capstan/internal/machinery/consistentclient"
)

// Cluster is the hub as a manager runs it. The manager need not wait for its end: a cache that waits to try an absent hub
// again does not notice the end of its context until it has, which may be in a minute, and nothing depends on it.
type Cluster struct{ cluster.Cluster }

// NewCluster returns the hub with the kinds that an agent uses there.
func NewCluster(config *rest.Config, opts ...cluster.Option) (*Cluster, error) {
	hub, err := cluster.New(config, append([]cluster.Option{func(o *cluster.Options) {
		o.Scheme, o.MapperProvider, o.NewClient = known(), MapperProvider, consistentclient.NewClient
	}}, opts...)...)
	if err != nil {
		return nil, err
	}
	return &Cluster{hub}, nil
}

// Start runs the caches until the context ends.
func (c *Cluster) Start(ctx context.Context) error {
	ended := make(chan error, 1)
	go func() { ended <- c.Cluster.Start(ctx) }()
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
		return nil
	}
}
