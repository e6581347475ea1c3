// Package mqttbroker has works come to an agent, and their statuses go to the hub, by a broker of MQTT. It carries nothing else.
package mqttbroker

import (
	"context"
	"sync"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/capstan-io/capstan/internal/cloudevents"
	"github.com/capstan-io/capstan/internal/cloudevents/manifestbundle"
	"github.com/capstan-io/capstan/internal/cloudevents/mqtt"
)

// mostWaiting is how many events wait for the agent to take them, before the subscription is ended and started again.
const mostWaiting = 10_000

var (
	errLost    = status.Error(codes.Unavailable, "the connection to the MQTT broker is lost")
	errTooMany = status.Error(codes.ResourceExhausted, "the MQTT broker sends more than the agent takes")
)

// Broker implements what the API in memory of an agent needs of a broker, for works.
type Broker struct {
	cluster string
	client  *mqtt.Client

	mu           sync.Mutex
	connected    context.Context // ends with the connection; nil without one
	changed      chan struct{}   // closed when connected changes
	subscription *subscription
	// sources has who the works are from, by their UIDs. A work is reported to its source, and that alone says that it is gone.
	sources map[string]string
}

// New returns a broker that is connected until the context ends, at which the agent is known as the client with the ID, with -client
// appended.
func New(ctx context.Context, config *mqtt.Config, cluster, clientID string) (*Broker, error) {
	b := &Broker{cluster: cluster, changed: make(chan struct{}), sources: map[string]string{}}
	var err error
	b.client, err = mqtt.Connect(ctx, mqtt.Options{Config: config, ClientID: clientID + "-client", Routes: config.Topics.ForAgent(cluster),
		Receive: b.receive, Subscribed: b.track})
	return b, err
}

// track takes note of a connection, which ends with the context.
func (b *Broker) track(ctx context.Context) {
	b.setConnected(ctx)
	context.AfterFunc(ctx, func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		if b.connected == ctx {
			b.connected = nil
		}
	})
}

func (b *Broker) setConnected(ctx context.Context) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.connected = ctx
	close(b.changed)
	b.changed = make(chan struct{})
}

// receive hands an event on to the subscription, if there is one. Without one, the next one requests everything.
func (b *Broker) receive(topic string, event *cloudevents.Event) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.subscription == nil || !b.isFor(topic, event) {
		return
	}
	select {
	case b.subscription.events <- event:
	default:
		b.subscription.End(errTooMany)
	}
}

// isFor reports whether an event is for this cluster, and from whom it may be. Requests for statuses are for all clusters.
func (b *Broker) isFor(topic string, event *cloudevents.Event) bool {
	eventType, err := cloudevents.ParseType(event.Type)
	if err != nil || eventType.DataType != cloudevents.ManifestBundles {
		return false
	}
	if eventType.SubResource == cloudevents.Status {
		return true
	}
	if event.Text(cloudevents.ExtensionClusterName) != b.cluster {
		return false
	}
	id, source := event.Text(cloudevents.ExtensionResourceID), mqtt.Source(topic)
	known := b.sources[id]
	switch {
	case isGone(eventType.Action, event):
		if known == source {
			delete(b.sources, id)
		}
		return known == "" || known == source
	case eventType.Action == cloudevents.Delete && known != "" && known != source:
		return false
	}
	b.sources[id] = source // also of a work that is to be finalized: it is to know of the end, of which it may not have learned the first time
	return true
}

// isGone reports whether a source says that it does not have a work. Only what says when the work was deleted can mean that; the rest,
// which has all of the manifests, is not read for it.
func isGone(action cloudevents.Action, event *cloudevents.Event) bool {
	if action != cloudevents.Delete && event.Text(cloudevents.ExtensionDeletedAt) == "" {
		return false
	}
	work, err := manifestbundle.DecodeSpec(event)
	return err == nil && manifestbundle.IsGone(action, work)
}

// Publish returns when the broker has the event; what the hub makes of it nobody says.
func (b *Broker) Publish(ctx context.Context, event *cloudevents.Event) error {
	eventType, err := cloudevents.ParseType(event.Type)
	switch {
	case err != nil:
		return status.Error(codes.InvalidArgument, err.Error())
	case eventType.DataType == cloudevents.Events:
		return nil // there is nowhere to record them
	case eventType.DataType != cloudevents.ManifestBundles:
		return unsupported(eventType.DataType)
	}
	if eventType.SubResource == cloudevents.Status {
		b.mu.Lock()
		event.Extensions[cloudevents.ExtensionOriginalSource] = b.sources[event.Text(cloudevents.ExtensionResourceID)]
		b.mu.Unlock()
	}
	if err := b.client.Send(ctx, event); err != nil {
		return status.Error(codes.Unavailable, err.Error())
	}
	b.forget(event)
	return nil
}

// forget forgets the source of a work that is reported to have left the cluster.
func (b *Broker) forget(event *cloudevents.Event) {
	work, err := manifestbundle.DecodeStatus(event)
	if err != nil || !meta.IsStatusConditionTrue(work.Status.Conditions, manifestbundle.ConditionDeleted) {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.sources, string(work.UID))
}

func unsupported(dataType cloudevents.DataType) error {
	return status.Errorf(codes.Unimplemented, "MQTT carries works alone, and not %s", dataType)
}

// Subscribe returns when there is a connection. There is one subscription at a time.
func (b *Broker) Subscribe(ctx context.Context, cluster string, dataType cloudevents.DataType) (cloudevents.Subscription, error) {
	switch {
	case dataType != cloudevents.ManifestBundles:
		return nil, unsupported(dataType)
	case cluster != b.cluster:
		return nil, status.Errorf(codes.InvalidArgument, "the connection is for cluster %s, and not %s", b.cluster, cluster)
	}
	connected, err := b.await(ctx)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	s := &subscription{ctx: ctx, cancel: cancel, events: make(chan *cloudevents.Event, mostWaiting)}
	s.stop = context.AfterFunc(connected, func() { s.End(errLost) })
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.subscription != nil {
		b.subscription.End(errLost)
	}
	b.subscription = s
	return s, nil
}

// await returns when there is a connection.
func (b *Broker) await(ctx context.Context) (context.Context, error) {
	for {
		b.mu.Lock()
		connected, changed := b.connected, b.changed
		b.mu.Unlock()
		if connected != nil && connected.Err() == nil {
			return connected, nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// subscription is a [cloudevents.Subscription].
type subscription struct {
	ctx    context.Context
	cancel context.CancelCauseFunc
	stop   func() bool
	events chan *cloudevents.Event
}

// Receive implements [cloudevents.Subscription].
func (s *subscription) Receive() (*cloudevents.Event, error) {
	select {
	case <-s.ctx.Done():
		return nil, context.Cause(s.ctx)
	case event := <-s.events:
		return event, nil
	}
}

// End implements [cloudevents.Subscription].
func (s *subscription) End(reason error) { s.cancel(reason) }

// Close implements [cloudevents.Subscription].
func (s *subscription) Close() {
	s.stop()
	s.cancel(nil)
}
