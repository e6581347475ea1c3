// Package mqtt sends and receives events by a broker of MQTT 5, in the binary mode of the MQTT binding of CloudEvents.
package mqtt

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/url"
	"sync"
	"sync/atomic"
	"time"

	"github.com/eclipse/paho.golang/autopaho"
	"github.com/eclipse/paho.golang/packets"
	"github.com/eclipse/paho.golang/paho"
	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/capstan-io/capstan/internal/cloudevents"
	"github.com/capstan-io/capstan/internal/machinery/filewatch"
	"github.com/capstan-io/capstan/internal/machinery/tcp"
)

// How long it takes until a lost connection, or a refused subscription, is tried again.
const (
	firstRetry = time.Second
	lastRetry  = time.Minute
	// shortLived is how long a connection lasts at most whose broker may have ended it for what it was sent, and will do so again.
	shortLived = 10 * time.Second
)

var retries = autopaho.NewExponentialBackoff(firstRetry/2, lastRetry, firstRetry, 2)

// Options say how to connect, and what to do with events.
type Options struct {
	Config *Config
	// ClientID is the identifier of the client at the broker, which has one connection of each.
	ClientID string
	Routes   Routes
	// Receive gets the events in the order in which the broker sends them, with the topic and the context of the connection. It must not
	// wait: neither for an answer, nor for what it sends itself.
	Receive func(connection context.Context, topic string, event *cloudevents.Event)
	// Subscribed is called when the broker has taken the subscriptions of a connection, in a goroutine of its own, with a context that
	// ends with the connection: what has been sent before may have been missed. Receive may get the first events before that.
	Subscribed func(connection context.Context)
}

// Client is a connection to a broker, which is made again whenever it is lost.
type Client struct {
	options    Options
	dialer     tcp.Dialer
	connection *autopaho.ConnectionManager
	limit      atomic.Uint32 // of bytes in a message to the broker, 0 for none

	mu   sync.Mutex
	ctx  context.Context // of what the current connection has begun
	end  context.CancelFunc
	up   time.Time // when the last connection was made
	conn net.Conn  // the last that was dialed
}

// Connect returns at once, and connects until the context ends. What goes wrong meanwhile is logged.
func Connect(ctx context.Context, options Options) (*Client, error) {
	c := &Client{options: options}
	logger := logr.FromContextOrDiscard(ctx).WithValues("broker", options.Config.BrokerHost)
	config := autopaho.ClientConfig{
		ServerUrls:       []*url.URL{{Host: options.Config.BrokerHost}},
		KeepAlive:        options.Config.keepAlive(),
		ConnectTimeout:   options.Config.dialTimeout(),
		ReconnectBackoff: c.pause,
		ConnectUsername:  options.Config.Username,
		ConnectPassword:  []byte(options.Config.Password),
		ConnectPacketBuilder: func(packet *paho.Connect, _ *url.URL) (*paho.Connect, error) {
			packet.CleanStart = true
			return packet, nil
		},
		AttemptConnection: c.dial,
		OnConnectionUp: func(connection *autopaho.ConnectionManager, answer *paho.Connack) {
			logger.Info("Connected to the MQTT broker")
			c.limit.Store(maximumPacketSize(answer))
			go c.subscribe(c.newConnection(ctx), connection, logger)
		},
		OnConnectionDown: func() bool {
			logger.Info("The connection to the MQTT broker is lost")
			c.stop()
			return true
		},
		OnConnectError: func(err error) { logger.Error(err, "The MQTT broker cannot be reached; it is tried again") },
		ClientConfig: paho.ClientConfig{
			ClientID: options.ClientID,
			OnPublishReceived: []func(paho.PublishReceived) (bool, error){func(received paho.PublishReceived) (bool, error) {
				c.receive(received.Packet, logger)
				return true, nil
			}},
		},
	}
	changes := filewatch.New(options.Config.files)
	connection, err := autopaho.NewConnection(ctx, config)
	if err != nil {
		return nil, fmt.Errorf("connect to the MQTT broker %s: %w", options.Config.BrokerHost, err)
	}
	c.connection = connection
	if len(options.Config.files()) > 0 {
		go changes.Run(ctx, c.reconnect)
	}
	return c, nil
}

func (c *Client) receive(message *paho.Publish, logger logr.Logger) {
	event, err := fromMessage(message)
	if err != nil {
		logger.Info("A message is left out, because it is no event", "topic", message.Topic, "reason", err.Error())
		return
	}
	c.mu.Lock()
	connection := c.ctx
	c.mu.Unlock()
	c.options.Receive(connection, message.Topic, event)
}

// dial reads the files with certificates anew.
func (c *Client) dial(ctx context.Context, _ autopaho.ClientConfig, server *url.URL) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, c.options.Config.dialTimeout())
	defer cancel()
	config, err := c.options.Config.tls()
	if err != nil {
		return nil, err
	}
	connection, err := c.dialer.DialContext(ctx, "tcp", server.Host)
	if err != nil || config == nil {
		return connection, err
	}
	config.ServerName = server.Hostname()
	secured := tls.Client(connection, config)
	if err := secured.HandshakeContext(ctx); err != nil {
		_ = connection.Close()
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.conn = packets.NewThreadSafeConn(secured)
	return c.conn, nil
}

// reconnect has another connection made, with the certificates that are in the files now. While these do not fit together, because they are
// being written, the connection stays: the change of the next file is another one.
func (c *Client) reconnect() {
	if _, err := c.options.Config.tls(); err != nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.conn != nil {
		_ = c.conn.Close()
	}
}

// newConnection returns a context for what a new connection begins, and ends that of the one before.
func (c *Client) newConnection(ctx context.Context) context.Context {
	c.stop()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.up = time.Now()
	c.ctx, c.end = context.WithCancel(ctx)
	return c.ctx
}

// pause is how long to wait before an attempt to connect. The first one after a lost connection, which is number 0, is made at once, unless
// that was short-lived.
func (c *Client) pause(attempt int) time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	if attempt == 0 && time.Since(c.up) < shortLived {
		return firstRetry
	}
	return retries(attempt)
}

func (c *Client) stop() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.end != nil {
		c.end()
		c.end = nil
	}
}

// subscribe asks for the events until the broker agrees, or the connection ends.
func (c *Client) subscribe(ctx context.Context, connection *autopaho.ConnectionManager, logger logr.Logger) {
	packet := &paho.Subscribe{}
	for _, topic := range c.options.Routes.From {
		packet.Subscriptions = append(packet.Subscriptions, paho.SubscribeOptions{Topic: topic, QoS: qosOf(c.options.Config.SubQoS)})
	}
	backoff := wait.Backoff{Duration: firstRetry, Factor: 2, Cap: lastRetry, Steps: 10, Jitter: 0.5}
	for ctx.Err() == nil {
		_, err := connection.Subscribe(ctx, packet)
		if err == nil {
			c.options.Subscribed(ctx)
			return
		}
		logger.Error(err, "The MQTT broker refuses the subscription; it is tried again", "topics", c.options.Routes.From)
		select {
		case <-ctx.Done():
		case <-time.After(backoff.Step()):
		}
	}
}

// Send hands an event over to the broker, and waits until the broker has it, unless the quality of service is 0. It fails while there is no
// connection, and with [cloudevents.ErrTooLarge] for an event that MQTT cannot carry, or the broker does not take.
func (c *Client) Send(ctx context.Context, event *cloudevents.Event) error {
	topic, err := c.options.Routes.To(event)
	if err != nil {
		return fmt.Errorf("send event %s of type %s: %w", event.ID, event.Type, err)
	}
	message := toMessage(event)
	message.Topic, message.QoS = topic, qosOf(c.options.Config.PubQoS)
	if err := checkSize(message, c.limit.Load()); err != nil {
		return fmt.Errorf("send event %s of type %s about resource %s: %w", event.ID, event.Type,
			event.Text(cloudevents.ExtensionResourceID), err)
	}
	if _, err := c.connection.Publish(ctx, message); err != nil {
		return fmt.Errorf("send event %s of type %s to topic %s: %w", event.ID, event.Type, topic, err)
	}
	return nil
}

// Done is closed when the connection has ended for good, after the context of Connect.
func (c *Client) Done() <-chan struct{} { return c.connection.Done() }
