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

// mostWaiting is how many events wait for the agent to take them, before they are dropped, and the subscription is started again.
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
	last         connection
	connected    connection    // the last one, once the MQTT broker sends everything by it
	changed      chan struct{} // closed when connected changes
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

// connection is one to the MQTT broker, with what it has brought and the agent has not taken. That may be more than a subscription asks
// for: a source may send a work before the agent requests everything, and answer to that before it knows of the work itself.
type connection struct {
	ctx    context.Context // ends with the connection
	events chan *cloudevents.Event
}

// current returns the connection of a context. What an earlier one has brought is dropped with it: the rest of it may be missing. The
// caller holds the lock.
func (b *Broker) current(ctx context.Context) connection {
	if b.last.ctx != ctx {
		b.last = connection{ctx: ctx, events: make(chan *cloudevents.Event, mostWaiting)}
	}
	return b.last
}

// track takes note of a connection, which ends with the context.
func (b *Broker) track(ctx context.Context) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if ctx.Err() != nil {
		return
	}
	b.connected = b.current(ctx)
	close(b.changed)
	b.changed = make(chan struct{})
}

// receive hands an event on to the subscription, at once or when there is one. The topic says who the source is, whatever the event says.
func (b *Broker) receive(ctx context.Context, topic string, event *cloudevents.Event) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.isFor(topic, event) {
		return
	}
	event.Extensions[cloudevents.ExtensionOriginalSource] = mqtt.Source(topic)
	events := b.current(ctx).events
	select {
	case events <- event:
	default:
		if b.subscription != nil {
			b.subscription.End(errTooMany)
		}
		drain(events)
	}
}

func drain(events <-chan *cloudevents.Event) {
	for {
		select {
		case <-events:
		default:
			return
		}
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
	s := &subscription{ctx: ctx, cancel: cancel, events: connected.events}
	s.stop = context.AfterFunc(connected.ctx, func() { s.End(errLost) }) //nolint:contextcheck // it ends with the connection, too
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.subscription != nil {
		b.subscription.End(errLost)
	}
	b.subscription = s
	return s, nil
}

// await returns when there is a connection.
func (b *Broker) await(ctx context.Context) (connection, error) {
	for {
		b.mu.Lock()
		connected, changed := b.connected, b.changed
		b.mu.Unlock()
		if connected.ctx != nil && connected.ctx.Err() == nil {
			return connected, nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return connection{}, context.Cause(ctx)
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
