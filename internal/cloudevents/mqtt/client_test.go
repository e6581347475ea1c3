package mqtt

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/eclipse/paho.golang/paho"
	broker "github.com/mochi-mqtt/server/v2"
	"github.com/mochi-mqtt/server/v2/hooks/auth"
	"github.com/mochi-mqtt/server/v2/listeners"
	"github.com/mochi-mqtt/server/v2/packets"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/cert"
	"k8s.io/client-go/util/keyutil"

	workv1 "github.com/capstan-io/capstan/api/work/v1"
	"github.com/capstan-io/capstan/internal/cloudevents"
	"github.com/capstan-io/capstan/internal/cloudevents/manifestbundle"
)

func file(t *testing.T, content string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "config.yaml")
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// startBroker serves at the address until the function is called; an empty address means any.
func startBroker(t *testing.T, address string) (at string, stop func()) {
	t.Helper()
	return startBrokerWith(t, address, nil, 0)
}

// startBrokerWith starts a broker that takes messages up to a size; 0 stands for any.
func startBrokerWith(t *testing.T, address string, secure *tls.Config, limit uint32) (at string, stop func()) {
	t.Helper()
	capabilities := broker.NewDefaultServerCapabilities()
	capabilities.MaximumPacketSize = limit
	server := broker.New(&broker.Options{Capabilities: capabilities, Logger: slog.New(slog.NewTextHandler(io.Discard, nil))})
	for _, hook := range []broker.Hook{new(auth.AllowHook), &limitHook{limit: limit}} {
		if err := server.AddHook(hook, nil); err != nil {
			t.Fatal(err)
		}
	}
	if address == "" {
		address = "127.0.0.1:0"
	}
	listener := listeners.NewTCP(listeners.Config{ID: "tcp", Address: address, TLSConfig: secure})
	if err := server.AddListener(listener); err != nil {
		t.Fatal(err)
	}
	if err := server.Serve(); err != nil {
		t.Fatal(err)
	}
	return listener.Address(), func() {
		if err := server.Close(); err != nil {
			t.Error(err)
		}
	}
}

// limitHook has a broker tell clients how large messages may be.
type limitHook struct {
	broker.HookBase
	limit uint32
}

// ID implements broker.Hook.
func (*limitHook) ID() string { return "limit" }

// Provides implements broker.Hook.
func (*limitHook) Provides(method byte) bool { return method == broker.OnPacketEncode }

// OnPacketEncode implements broker.Hook.
func (h *limitHook) OnPacketEncode(_ *broker.Client, packet packets.Packet) packets.Packet {
	if packet.FixedHeader.Type == packets.Connack {
		packet.Properties.MaximumPacketSize = h.limit
	}
	return packet
}

type received struct {
	connection context.Context
	topic      string
	event      *cloudevents.Event
}

// connect returns a client, with what it receives, and the connections by which it has subscribed.
func connect(t *testing.T, address, id string, route func(Topics) Routes) (*Client, <-chan received, <-chan context.Context) {
	t.Helper()
	config, err := Load(file(t, fmt.Sprintf(`
brokerHost: %s
topics:
  sourceEvents: sources/+/clusters/+/sourceevents
  agentEvents: sources/+/clusters/+/agentevents
  sourceBroadcast: sources/+/sourcebroadcast
  agentBroadcast: clusters/+/agentbroadcast
`, address)))
	if err != nil {
		t.Fatal(err)
	}
	events, subscribed := make(chan received, 100), make(chan context.Context, 100)
	client, err := Connect(t.Context(), Options{Config: config, ClientID: id, Routes: route(config.Topics),
		Receive: func(connection context.Context, topic string, event *cloudevents.Event) {
			events <- received{connection, topic, event}
		},
		Subscribed: func(connection context.Context) { subscribed <- connection },
	})
	if err != nil {
		t.Fatal(err)
	}
	return client, events, subscribed
}

func await[T any](t *testing.T, what string, from <-chan T) (got T) {
	t.Helper()
	select {
	case got = <-from:
	case <-time.After(time.Minute):
		t.Fatalf("%s: nothing came", what)
	}
	return got
}

// CE-08: events go from a source to the agent of their cluster and back, with all that they have; another cluster gets none of them.
func TestSend(t *testing.T) {
	t.Parallel()
	address, stop := startBroker(t, "")
	defer stop()
	source, toSource, sourceReady := connect(t, address, "source", func(t Topics) Routes { return t.ForSource("s") })
	agent, toAgent, agentReady := connect(t, address, "c1", func(t Topics) Routes { return t.ForAgent("c1") })
	_, toOther, otherReady := connect(t, address, "c2", func(t Topics) Routes { return t.ForAgent("c2") })
	await(t, "subscription", sourceReady)
	await(t, "subscription", otherReady)
	connection := await(t, "subscription", agentReady)

	spec := eventOf(cloudevents.Spec, cloudevents.Create, cloudevents.ExtensionClusterName, "c1", cloudevents.ExtensionResourceVersion, "3")
	spec.Time = spec.Time.UTC().Truncate(time.Microsecond)
	spec.Data = []byte(`{"manifests":[]}`)
	if err := source.Send(t.Context(), spec); err != nil {
		t.Fatal(err)
	}
	got := await(t, "spec", toAgent)
	if got.connection != connection {
		t.Error("the event came by another connection than the subscription")
	}
	if !reflect.DeepEqual(got.event, spec) {
		t.Errorf("got %+v, want %+v", got.event, spec)
	}
	if Source(got.topic) != "s" || Cluster(got.topic) != "c1" {
		t.Errorf("the event has come by %s", got.topic)
	}
	status := eventOf(cloudevents.Status, cloudevents.Update, cloudevents.ExtensionOriginalSource, "s")
	if err := agent.Send(t.Context(), status); err != nil {
		t.Fatal(err)
	}
	if got := await(t, "status", toSource); got.event.ID != status.ID {
		t.Errorf("got %+v, want %+v", got.event, status)
	}
	resync := eventOf(cloudevents.Status, cloudevents.Resync)
	if err := source.Send(t.Context(), resync); err != nil {
		t.Fatal(err)
	}
	// All agents get it, after all that was sent before.
	for _, agent := range []<-chan received{toAgent, toOther} {
		if got := await(t, "request", agent); got.event.ID != resync.ID {
			t.Errorf("got %+v, want %+v", got.event, resync)
		}
	}
}

// CE-08: a work that was written by kubectl apply is sent without kubectl's copy of it, which MQTT may be unable to carry. A work with too
// much other metadata fails, alone.
func TestLargeMetadata(t *testing.T) {
	t.Parallel()
	address, stop := startBroker(t, "")
	defer stop()
	source, _, sourceReady := connect(t, address, "source", func(t Topics) Routes { return t.ForSource("s") })
	_, toAgent, agentReady := connect(t, address, "c1", func(t Topics) Routes { return t.ForAgent("c1") })
	await(t, "subscription", sourceReady)
	await(t, "subscription", agentReady)
	send := func(annotation string) error {
		work := &workv1.ManifestWork{ObjectMeta: metav1.ObjectMeta{Namespace: "c1", Name: "w", UID: "u", Generation: 1,
			Annotations: map[string]string{"a": "b", annotation: strings.Repeat("x", 70_000)}}}
		event, err := manifestbundle.EncodeSpec("s", cloudevents.Create, work, time.Now())
		if err != nil {
			t.Fatal(err)
		}
		return source.Send(t.Context(), event)
	}
	err := send("example.com/notes")
	if !errors.Is(err, cloudevents.ErrTooLarge) || !strings.Contains(err.Error(), "resource u: ") {
		t.Errorf("got %v", err)
	}
	if err := send("kubectl.kubernetes.io/last-applied-configuration"); err != nil {
		t.Fatal(err)
	}
	work, err := manifestbundle.DecodeSpec(await(t, "work", toAgent).event)
	if err != nil || work.Name != "w" || !maps.Equal(work.Annotations, map[string]string{"a": "b"}) {
		t.Errorf("got %+v, %v", work, err)
	}
	select {
	case <-sourceReady:
		t.Error("the connection was lost")
	default:
	}
}

// CE-08: an event that is too large for the broker fails, and those after it go by the same connection.
func TestLargeEvent(t *testing.T) {
	t.Parallel()
	address, stop := startBrokerWith(t, "", nil, 10<<10)
	defer stop()
	source, _, sourceReady := connect(t, address, "source", func(t Topics) Routes { return t.ForSource("s") })
	_, toAgent, agentReady := connect(t, address, "c1", func(t Topics) Routes { return t.ForAgent("c1") })
	await(t, "subscription", sourceReady)
	await(t, "subscription", agentReady)
	event := eventOf(cloudevents.Spec, cloudevents.Create, cloudevents.ExtensionClusterName, "c1")
	event.Data = []byte(`"` + strings.Repeat("x", 20<<10) + `"`)
	if err := source.Send(t.Context(), event); !errors.Is(err, cloudevents.ErrTooLarge) {
		t.Errorf("got %v", err)
	}
	event.Data = []byte(`"` + strings.Repeat("x", 9<<10) + `"`)
	if err := source.Send(t.Context(), event); err != nil {
		t.Fatal(err)
	}
	if got := await(t, "event", toAgent); len(got.event.Data) != len(event.Data) {
		t.Errorf("got %d bytes", len(got.event.Data))
	}
	select {
	case <-sourceReady:
		t.Error("the connection was lost")
	default:
	}
}

// CE-07: the first attempt after a lost connection comes at once; after one that did not last, it does not, so that a broker that ends each
// connection is not called in a loop.
func TestPause(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := &Client{}
		for name, test := range map[string]struct {
			up      time.Time
			attempt int
			from    time.Duration
			to      time.Duration
		}{
			"no connection before":  {time.Time{}, 0, 0, 0},
			"lost":                  {time.Now().Add(-shortLived), 0, 0, 0},
			"lost soon":             {time.Now().Add(1 - shortLived), 0, firstRetry, firstRetry},
			"the broker stays away": {time.Now(), 1, firstRetry / 2, firstRetry},
		} {
			c.up = test.up
			if got := c.pause(test.attempt); got < test.from || got > test.to {
				t.Errorf("%s: the pause is %s, want %s to %s", name, got, test.from, test.to)
			}
		}
	})
}

// CE-07: a client whose broker was away is connected again by itself, and tells that it may have missed something.
func TestReconnect(t *testing.T) {
	t.Parallel()
	address, stop := startBroker(t, "")
	client, events, subscribed := connect(t, address, "c1", func(t Topics) Routes { return t.ForAgent("c1") })
	await(t, "subscription", subscribed)
	stop()
	_, stop = startBroker(t, address)
	defer stop()
	second := await(t, "second subscription", subscribed)
	source, _, sourceReady := connect(t, address, "source", func(t Topics) Routes { return t.ForSource("s") })
	await(t, "subscription", sourceReady)
	event := eventOf(cloudevents.Spec, cloudevents.Update, cloudevents.ExtensionClusterName, "c1")
	if err := source.Send(t.Context(), event); err != nil {
		t.Fatal(err)
	}
	if got := await(t, "event", events); got.event.ID != event.ID || got.connection != second {
		t.Errorf("got %+v, want %+v, by the second connection", got.event, event)
	}
	if err := client.Send(t.Context(), eventOf(cloudevents.Status, cloudevents.Update, cloudevents.ExtensionOriginalSource, "s")); err != nil {
		t.Error(err)
	}
}

// CE-08: what is no event does not stop those after it.
func TestNoEvent(t *testing.T) {
	t.Parallel()
	address, stop := startBroker(t, "")
	defer stop()
	agent, toAgent, agentReady := connect(t, address, "c1", func(t Topics) Routes { return t.ForAgent("c1") })
	await(t, "subscription", agentReady)
	for _, message := range []*paho.Publish{
		{Topic: "sources/s/clusters/c1/sourceevents", Payload: []byte("hello")},
		{Topic: "sources/s/clusters/c1/sourceevents", Properties: &paho.PublishProperties{User: paho.UserProperties{
			{Key: "id", Value: "1"}, {Key: "source", Value: "s"}, {Key: "type", Value: "t"}, {Key: "specversion", Value: "0.3"}}}},
		{Topic: "sources/s/clusters/c1/sourceevents", QoS: 1, Properties: &paho.PublishProperties{User: paho.UserProperties{
			{Key: "id", Value: "2"}, {Key: "source", Value: "s"}, {Key: "type", Value: "t"}, {Key: "specversion", Value: "1.0"}}}},
	} {
		if _, err := agent.connection.Publish(t.Context(), message); err != nil {
			t.Fatal(err)
		}
	}
	if got := await(t, "event", toAgent); got.event.ID != "2" {
		t.Errorf("got %+v", got.event)
	}
}

// CE-11: when the files of its certificate change, a client makes another connection, with the certificate that is in them now.
func TestCertificateReload(t *testing.T) {
	t.Parallel()
	serving, servingKey, err := cert.GenerateSelfSignedCertKey("127.0.0.1", []net.IP{net.IPv4(127, 0, 0, 1)}, nil)
	if err != nil {
		t.Fatal(err)
	}
	pair, err := tls.X509KeyPair(serving, servingKey)
	if err != nil {
		t.Fatal(err)
	}
	clients := make(chan string, 100)
	address, stop := startBrokerWith(t, "", &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{pair},
		ClientAuth: tls.RequireAnyClientCert, VerifyConnection: func(state tls.ConnectionState) error {
			clients <- state.PeerCertificates[0].Subject.CommonName
			return nil
		}}, 0)
	defer stop()
	dir := t.TempDir()
	writeClient(t, dir, "first")
	config, err := Load(file(t, fmt.Sprintf(`
brokerHost: %[1]s
caData: %[2]s
clientCertFile: %[3]s/tls.crt
clientKeyFile: %[3]s/tls.key
topics: {sourceEvents: sources/+/clusters/+/sourceevents, agentEvents: sources/+/clusters/+/agentevents}
`, address, base64.StdEncoding.EncodeToString(serving), dir)))
	if err != nil {
		t.Fatal(err)
	}
	subscribed := make(chan struct{}, 100)
	if _, err := Connect(t.Context(), Options{Config: config, ClientID: "c1", Routes: config.Topics.ForAgent("c1"),
		Receive:    func(context.Context, string, *cloudevents.Event) {},
		Subscribed: func(context.Context) { subscribed <- struct{}{} }}); err != nil {
		t.Fatal(err)
	}
	await(t, "subscription", subscribed)
	if name := await(t, "certificate", clients); name != "first" {
		t.Errorf("connected as %s", name)
	}
	writeClient(t, dir, "second")
	for await(t, "second certificate", clients) != "second" { // two files are two changes
	}
	await(t, "second subscription", subscribed)
}

// writeClient writes the certificate of a client and its key.
func writeClient(t *testing.T, dir, name string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	certificate, err := cert.NewSelfSignedCACert(cert.Config{CommonName: name}, key)
	if err != nil {
		t.Fatal(err)
	}
	encodedKey, err := keyutil.MarshalPrivateKeyToPEM(key)
	if err != nil {
		t.Fatal(err)
	}
	encoded, err := cert.EncodeCertificates(certificate)
	if err != nil {
		t.Fatal(err)
	}
	for file, content := range map[string][]byte{"tls.key": encodedKey, "tls.crt": encoded} {
		if err := os.WriteFile(filepath.Join(dir, file), content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
}
