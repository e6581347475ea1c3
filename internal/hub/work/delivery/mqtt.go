package delivery

import (
	"context"
	"fmt"

	"github.com/capstan-io/capstan/internal/cloudevents"
	"github.com/capstan-io/capstan/internal/cloudevents/mqtt"
)

// MQTT is a broker of MQTT as a transport. Who may send to which topic is the broker's to decide: it has to let the agent of a cluster send
// to the topics of that cluster alone.
type MQTT struct {
	config   *mqtt.Config
	clientID string
	client   chan *mqtt.Client
}

// NewMQTT returns a transport by the broker of a configuration, at which this process is known as the client.
func NewMQTT(config *mqtt.Config, clientID string) *MQTT {
	return &MQTT{config: config, clientID: clientID, client: make(chan *mqtt.Client, 1)}
}

// Start implements [Transport].
func (m *MQTT) Start(ctx context.Context, handlers Handlers) error {
	receive := func(_ context.Context, topic string, event *cloudevents.Event) {
		handlers.Receive(ctx, mqtt.Cluster(topic), event)
	}
	connected, err := mqtt.Connect(ctx, mqtt.Options{Config: m.config, ClientID: m.clientID, Routes: m.config.Topics.ForSource(Source),
		Receive: receive, Subscribed: handlers.Connected})
	if err != nil {
		return err
	}
	m.client <- connected
	<-connected.Done()
	return nil
}

// Send implements [Transport]. It waits for the start.
func (m *MQTT) Send(ctx context.Context, event *cloudevents.Event) error {
	select {
	case client := <-m.client:
		m.client <- client
		return client.Send(ctx, event)
	case <-ctx.Done():
		return fmt.Errorf("the broker %s is not connected: %w", m.config.BrokerHost, ctx.Err())
	}
}
