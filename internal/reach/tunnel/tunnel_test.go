package tunnel_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/capstan-io/capstan/internal/reach/tunnel"
)

// newHub returns a server with TLS that accepts tunnels, and where these come.
func newHub(t testing.TB) (server *httptest.Server, accepted <-chan *tunnel.Tunnel) {
	t.Helper()
	tunnels := make(chan *tunnel.Tunnel, 1)
	server = httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		made, err := tunnel.Accept(w, r)
		if err != nil {
			t.Error(err)
		}
		tunnels <- made
	}))
	t.Cleanup(server.Close)
	return server, tunnels
}

// connected returns both sides of a tunnel.
func connected(t testing.TB) (hub, agent *tunnel.Tunnel) {
	t.Helper()
	server, accepted := newHub(t)
	agent, err := tunnel.Dial(t.Context(), server.Client(), server.URL+"/tunnel")
	if err != nil {
		t.Fatal(err)
	}
	hub = <-accepted
	t.Cleanup(hub.Close)
	t.Cleanup(agent.Close)
	return hub, agent
}

// echo sends back what comes through the streams of a tunnel.
func echo(agent *tunnel.Tunnel) {
	for {
		stream, err := agent.Listener().Accept()
		if err != nil {
			return
		}
		go func() {
			defer stream.Close()
			_, _ = io.Copy(stream, stream)
		}()
	}
}

func roundTrip(conn net.Conn, sent []byte) error {
	go func() { _, _ = conn.Write(sent) }()
	got := make([]byte, len(sent))
	if _, err := io.ReadFull(conn, got); err != nil {
		return err
	}
	if !bytes.Equal(got, sent) {
		return errors.New("what comes back is not what was sent")
	}
	return nil
}

// CP-07: many streams share one connection, whatever their size.
func TestStreams(t *testing.T) {
	t.Parallel()
	hub, agent := connected(t)
	go echo(agent)
	var all sync.WaitGroup
	for i := range 100 {
		all.Go(func() {
			stream, err := hub.Open()
			if err != nil {
				t.Error(err)
				return
			}
			defer stream.Close()
			if err := roundTrip(stream, bytes.Repeat([]byte{byte(i)}, 1+i*10_000)); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
}

// CP-07: who does not read keeps nobody else from reading, and has the other side wait.
func TestSlowReader(t *testing.T) {
	t.Parallel()
	hub, agent := connected(t)
	written := make(chan int)
	go func() {
		first, err := agent.Listener().Accept()
		if err != nil {
			return
		}
		n, _ := first.Write(make([]byte, 64<<20)) // as much as there is room for, until the tunnel ends
		written <- n
	}()
	slow, err := hub.Open()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(slow, make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	go echo(agent)
	other, err := hub.Open()
	if err != nil {
		t.Fatal(err)
	}
	if err := roundTrip(other, make([]byte, 8<<20)); err != nil {
		t.Fatal(err)
	}
	agent.Close()
	if n := <-written; n > 4<<20 {
		t.Errorf("the agent has sent %d bytes to who has read one", n)
	}
}

// CP-10: the end of a tunnel is the end of its streams, on both sides.
func TestEnd(t *testing.T) {
	t.Parallel()
	for _, side := range []string{"hub", "agent"} {
		t.Run(side, func(t *testing.T) {
			t.Parallel()
			hub, agent := connected(t)
			go echo(agent)
			stream, err := hub.Open()
			if err != nil {
				t.Fatal(err)
			}
			if err := roundTrip(stream, []byte("x")); err != nil {
				t.Fatal(err)
			}
			if side == "hub" {
				hub.Close()
			} else {
				agent.Close()
			}
			<-hub.Done()
			<-agent.Done()
			if _, err := stream.Read(make([]byte, 1)); err == nil {
				t.Error("the stream goes on")
			}
			if _, err := hub.Open(); err == nil {
				t.Error("an ended tunnel opens streams")
			}
		})
	}
}

// CP-07: who does not wait for the rest of what an agent sends has it end, and none of it is kept.
func TestCloseBeforeEnd(t *testing.T) {
	t.Parallel()
	hub, agent := connected(t)
	ended := make(chan error)
	go func() {
		opened, err := agent.Listener().Accept()
		if err != nil {
			ended <- err
			return
		}
		defer opened.Close()
		gone := make(chan struct{})
		go func() {
			_, _ = io.Copy(io.Discard, opened) // to its end, as servers of HTTP notice that nobody waits any more
			close(gone)
		}()
		for {
			select {
			case <-gone:
				ended <- nil
				return
			default:
			}
			if _, err := opened.Write(make([]byte, 1<<20)); err != nil {
				ended <- err
				return
			}
		}
	}()
	stream, err := hub.Open()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(stream, make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		_ = stream.Close()
	}
	if err := <-ended; err != nil {
		t.Errorf("the agent is not let come to an end: %v", err)
	}
}

// CP-07: an agent opens no streams to the hub, which would hold in memory what comes through them.
func TestStreamsOfAgentsAreRefused(t *testing.T) {
	t.Parallel()
	hub, agent := rawAgent(t)
	const streams = 10
	for i := range uint32(streams) {
		sendFrame(t, agent, frameUpdate, frameBegin, 2*i+2, 0, nil)
		sendFrame(t, agent, frameData, 0, 2*i+2, 128<<10, make([]byte, 128<<10))
	}
	sendFrame(t, agent, framePing, frameBegin, 0, 1, nil)
	refused := 0
	for header := make([]byte, 12); header[1] != framePing || header[3] != frameAnswer; {
		if _, err := io.ReadFull(agent, header); err != nil {
			t.Fatal(err)
		}
		if header[1] == frameUpdate && header[3] == frameEnd {
			refused++
		}
	}
	if refused != streams || hub.Streams() != 0 {
		t.Errorf("of %d streams, the hub has refused %d and keeps %d", streams, refused, hub.Streams())
	}
	stream, err := hub.Open()
	if err != nil {
		t.Fatalf("the hub opens none itself any more: %v", err)
	}
	_ = stream.Close()
}

// CP-07: the tunnel of an agent that sends pings all the time ends. Each has the hub hold an answer, which an agent that does not read
// holds up.
func TestPingsOfAgentsAreFew(t *testing.T) {
	t.Parallel()
	hub, agent := rawAgent(t)
	const pings = 1000
	for i := range uint32(pings) {
		frame := append([]byte{0, framePing, 0, frameBegin, 0, 0, 0, 0}, binary.BigEndian.AppendUint32(nil, i)...)
		if _, err := agent.Write(frame); err != nil {
			break // the hub has closed the connection
		}
	}
	answered := 0
	for header := make([]byte, 12); ; {
		if _, err := io.ReadFull(agent, header); err != nil {
			break
		}
		if header[1] == framePing && header[3] == frameAnswer {
			answered++
		}
	}
	<-hub.Done()
	if answered >= pings/2 {
		t.Errorf("of %d pings, the hub has answered %d", pings, answered)
	}
}

// Frames of yamux, and their flags, for an agent that does not keep to the rules.
const (
	frameData, frameUpdate, framePing = 0, 1, 2
	frameBegin, frameAnswer, frameEnd = 1, 2, 8
)

// rawAgent returns the hub's side of a tunnel and the connection of an agent that speaks yamux by itself.
func rawAgent(t *testing.T) (hub *tunnel.Tunnel, agent net.Conn) {
	t.Helper()
	server, accepted := newHub(t)
	agent, err := tunnel.Upgrade(t.Context(), server.Client(), server.URL+"/tunnel", tunnel.Protocol)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = agent.Close() })
	hub = <-accepted
	t.Cleanup(hub.Close)
	return hub, agent
}

func sendFrame(t *testing.T, agent net.Conn, kind, flags byte, stream, length uint32, content []byte) {
	t.Helper()
	frame := append([]byte{0, kind, 0, flags}, binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint32(nil, stream), length)...)
	if _, err := agent.Write(append(frame, content...)); err != nil {
		t.Fatal(err)
	}
}

func TestRefusals(t *testing.T) {
	t.Parallel()
	answers := map[string]http.HandlerFunc{
		"status": func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusForbidden)
			_, _ = io.WriteString(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","message":"no","reason":"Forbidden","code":403}`)
		},
		"text": func(w http.ResponseWriter, _ *http.Request) {
			http.Error(w, "a proxy is in the way", http.StatusBadGateway)
		},
		"another protocol": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Connection", "Upgrade")
			w.Header().Set("Upgrade", "websocket")
			w.WriteHeader(http.StatusSwitchingProtocols)
		},
	}
	wants := map[string]func(error) bool{
		"status":           func(err error) bool { return apierrors.IsForbidden(err) && err.Error() == "no" },
		"text":             func(err error) bool { return strings.Contains(err.Error(), "a proxy is in the way") },
		"another protocol": func(err error) bool { return strings.Contains(err.Error(), `to "websocket", not to `+tunnel.Protocol) },
	}
	for name, answer := range answers {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := httptest.NewServer(answer)
			defer server.Close()
			if _, err := tunnel.Dial(t.Context(), server.Client(), server.URL); err == nil || !wants[name](err) {
				t.Errorf("%v", err)
			}
		})
	}
	recorder := httptest.NewRecorder()
	if _, err := tunnel.Accept(recorder, httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/", http.NoBody)); err == nil {
		t.Error("a request without an upgrade becomes a tunnel")
	}
}

func BenchmarkRoundTrip(b *testing.B) {
	hub, agent := connected(b)
	go echo(agent)
	b.Run("kept", func(b *testing.B) {
		stream, err := hub.Open()
		if err != nil {
			b.Fatal(err)
		}
		defer stream.Close()
		message := make([]byte, 100)
		for b.Loop() {
			if err := roundTrip(stream, message); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("new", func(b *testing.B) {
		for b.Loop() {
			stream, err := hub.Open()
			if err != nil {
				b.Fatal(err)
			}
			if err := roundTrip(stream, make([]byte, 100)); err != nil {
				b.Fatal(err)
			}
			_ = stream.Close()
		}
	})
}

func BenchmarkThroughput(b *testing.B) {
	hub, agent := connected(b)
	go func() {
		for {
			stream, err := agent.Listener().Accept()
			if err != nil {
				return
			}
			go func() { _, _ = io.Copy(io.Discard, stream) }()
		}
	}()
	stream, err := hub.Open()
	if err != nil {
		b.Fatal(err)
	}
	block := make([]byte, 1<<20)
	b.SetBytes(int64(len(block)))
	for b.Loop() {
		if _, err := stream.Write(block); err != nil {
			b.Fatal(err)
		}
	}
}
