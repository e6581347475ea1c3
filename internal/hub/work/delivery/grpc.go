package delivery

import (
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/capstan-io/capstan/internal/cloudevents"
	"github.com/capstan-io/capstan/internal/cloudevents/brokerclient"
	"github.com/capstan-io/capstan/internal/cloudevents/grpcconfig"
)

// hubUserAgent is what the hub is called in the calls of its connection.
const hubUserAgent = "capstan-hub"

// GRPC is a broker of gRPC as a transport: one between the hub and the agents, and not the gRPC server of the hub, which has the works from
// the API. Who may report for which cluster is the broker's to decide.
type GRPC struct {
	config *grpcconfig.Config
	clock  clock.WithTicker
	client chan *brokerclient.Client
}

// NewGRPC returns a transport by the broker of a configuration.
func NewGRPC(config *grpcconfig.Config, c clock.WithTicker) *GRPC {
	return &GRPC{config: config, clock: c, client: make(chan *brokerclient.Client, 1)}
}

// subscriptionBackoff has the delays between attempts to subscribe, which start over after one that succeeded.
func subscriptionBackoff() *wait.Backoff {
	return &wait.Backoff{Duration: time.Second, Factor: 2, Jitter: 0.5, Steps: 16, Cap: time.Minute}
}

// Start implements [Transport].
func (g *GRPC) Start(ctx context.Context, handlers Handlers) error {
	client, err := brokerclient.New(ctx, hubUserAgent, g.config)
	if err != nil {
		return err
	}
	g.client <- client
	for backoff := subscriptionBackoff(); ctx.Err() == nil; {
		subscribed, err := g.session(ctx, client, handlers)
		if subscribed {
			backoff = subscriptionBackoff()
		}
		if ctx.Err() == nil {
			log.FromContext(ctx).Info("The broker of works is not connected; the hub tries again", "broker", g.config.URL, "reason", err.Error())
			g.sleep(ctx, backoff.Step())
		}
	}
	return nil
}

// session receives events until the subscription ends, and reports whether there was one.
func (g *GRPC) session(ctx context.Context, client *brokerclient.Client, handlers Handlers) (subscribed bool, err error) {
	subscription, err := client.SubscribeAsSource(ctx, Source, cloudevents.ManifestBundles)
	if err != nil {
		return false, err
	}
	defer subscription.Close()
	log.FromContext(ctx).Info("The broker of works is connected", "broker", g.config.URL)
	go handlers.Connected(ctx)
	for {
		event, err := subscription.Receive()
		if err != nil {
			return true, err
		}
		handlers.Receive(ctx, event.Text(cloudevents.ExtensionClusterName), event)
	}
}

func (g *GRPC) sleep(ctx context.Context, pause time.Duration) {
	timer := g.clock.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-timer.C():
	case <-ctx.Done():
	}
}

// allClusters stands for the cluster of an event that is for all of them.
const allClusters = "+"

// Send implements [Transport]. It waits for the start.
func (g *GRPC) Send(ctx context.Context, event *cloudevents.Event) error {
	if event.Text(cloudevents.ExtensionClusterName) == "" {
		event.Extensions[cloudevents.ExtensionClusterName] = allClusters
	}
	select {
	case client := <-g.client:
		g.client <- client
		return client.Publish(ctx, event)
	case <-ctx.Done():
		return fmt.Errorf("the broker %s is not connected: %w", g.config.URL, ctx.Err())
	}
}
