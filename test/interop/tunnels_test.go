package interop

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strconv"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"k8s.io/klog/v2"
	konnectivity "sigs.k8s.io/apiserver-network-proxy/konnectivity-client/pkg/client"
	frontend "sigs.k8s.io/apiserver-network-proxy/konnectivity-client/proto/client"
	konnectivityagent "sigs.k8s.io/apiserver-network-proxy/pkg/agent"
	"sigs.k8s.io/apiserver-network-proxy/pkg/server"
	"sigs.k8s.io/apiserver-network-proxy/pkg/server/proxystrategies"
	backend "sigs.k8s.io/apiserver-network-proxy/proto/agent"

	"github.com/capstan-io/capstan/internal/reach/tunnel"
	"github.com/capstan-io/capstan/test/env"
)

// transport brings connections from a hub to what an agent reaches, over TLS on this machine. All of it is in this process.
type transport interface {
	// connect has another agent connect, which reaches the target, and returns what dials the target through it.
	connect(tb testing.TB, target string) func(context.Context) (net.Conn, error)
}

// transports are that of Capstan, and konnectivity as Open Cluster Management's cluster proxy has it: a gRPC client of the proxy server for
// each connection.
var transports = []struct {
	name string
	make func(testing.TB) transport
}{
	{"capstan", newTunnels},
	{"konnectivity", newKonnectivity},
}

// oneMiB is what a benchmark of throughput reads at a time, and chunks how often it does for each connection.
const (
	oneMiB = 1 << 20
	chunks = 64
)

// BenchmarkTunnel compares ways through an agent: docs/benchmarks.md has what it measured.
func BenchmarkTunnel(b *testing.B) {
	klog.SetLogger(logr.Discard())
	target := httptest.NewServer(http.HandlerFunc(answer))
	b.Cleanup(target.Close)
	address := target.Listener.Addr().String()
	direct := func(ctx context.Context) (net.Conn, error) { return new(net.Dialer).DialContext(ctx, "tcp", address) }
	b.Run("direct", func(b *testing.B) { benchmarkRequests(b, direct) })
	for _, t := range transports {
		b.Run(t.name, func(b *testing.B) {
			benchmarkRequests(b, t.make(b).connect(b, address))
			b.Run("idle connection", func(b *testing.B) { benchmarkConnections(b, t.make(b).connect(b, address)) })
			b.Run("idle agent", func(b *testing.B) { benchmarkAgents(b, t.make(b), address) })
		})
	}
}

// answer has as many bytes as the query says, or 1,024.
func answer(w http.ResponseWriter, r *http.Request) {
	n, err := strconv.Atoi(r.URL.Query().Get("bytes"))
	if err != nil {
		n = 1024
	}
	w.Header().Set("Content-Length", strconv.Itoa(n))
	for block := make([]byte, 32<<10); n > 0; n -= len(block) {
		_, _ = w.Write(block[:min(n, len(block))])
	}
}

func benchmarkRequests(b *testing.B, dial func(context.Context) (net.Conn, error)) {
	b.Helper()
	client := func(b *testing.B, keep bool) *http.Client {
		b.Helper()
		t := &http.Transport{DisableKeepAlives: !keep,
			DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) { return dial(ctx) }}
		b.Cleanup(t.CloseIdleConnections)
		return &http.Client{Transport: t}
	}
	for name, keep := range map[string]bool{"request on a new connection": false, "request on a kept connection": true} {
		b.Run(name, func(b *testing.B) {
			c := client(b, keep)
			read(b, c, 1024)
			for b.Loop() {
				read(b, c, 1024)
			}
		})
	}
	b.Run("stream", func(b *testing.B) {
		c := client(b, true)
		b.SetBytes(chunks * oneMiB)
		for b.Loop() {
			read(b, c, chunks*oneMiB)
		}
	})
}

func read(b *testing.B, c *http.Client, n int) {
	b.Helper()
	response, err := c.Get(fmt.Sprintf("http://target/?bytes=%d", n))
	if err != nil {
		b.Fatal(err)
	}
	defer response.Body.Close()
	if got, err := io.Copy(io.Discard, response.Body); err != nil || got != int64(n) {
		b.Fatalf("read %d bytes, want %d: %v", got, n, err)
	}
}

// benchmarkConnections measures the memory of a connection through one agent on which nothing is sent, on all sides.
func benchmarkConnections(b *testing.B, dial func(context.Context) (net.Conn, error)) {
	b.Helper()
	before := memory()
	for range b.N {
		conn, err := dial(b.Context())
		if err != nil {
			b.Fatal(err)
		}
		defer conn.Close()
	}
	b.ReportMetric(float64(memory()-before)/1024/float64(b.N), "KiB/connection")
}

// benchmarkAgents measures the memory of an agent that is connected, on all sides.
func benchmarkAgents(b *testing.B, t transport, target string) {
	b.Helper()
	before := memory()
	for range b.N {
		t.connect(b, target)
	}
	b.ReportMetric(float64(memory()-before)/1024/float64(b.N), "KiB/agent")
}

// memory is what the process uses, in bytes, but for garbage.
func memory() int64 {
	runtime.GC()
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return int64(stats.HeapAlloc + stats.StackInuse)
}

// tunnels are those of Capstan's agents.
type tunnels struct {
	hub      *httptest.Server
	accepted chan *tunnel.Tunnel
}

func newTunnels(tb testing.TB) transport {
	tb.Helper()
	t := &tunnels{accepted: make(chan *tunnel.Tunnel, 1)}
	t.hub = httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		accepted, err := tunnel.Accept(w, r)
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		t.accepted <- accepted
	}))
	tb.Cleanup(t.hub.Close)
	return t
}

func (t *tunnels) connect(tb testing.TB, target string) func(context.Context) (net.Conn, error) {
	tb.Helper()
	ofAgent, err := tunnel.Dial(tb.Context(), t.hub.Client(), t.hub.URL)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(ofAgent.Close)
	go func() {
		for {
			conn, err := ofAgent.Listener().Accept()
			if err != nil {
				return
			}
			go join(conn, target)
		}
	}()
	ofHub := <-t.accepted
	return func(context.Context) (net.Conn, error) { return ofHub.Open() }
}

// join connects a connection with the target, until one of them ends.
func join(conn net.Conn, target string) {
	defer conn.Close()
	to, err := net.Dial("tcp", target)
	if err != nil {
		return
	}
	defer to.Close()
	done := make(chan struct{}, 2)
	for _, way := range [][2]net.Conn{{conn, to}, {to, conn}} {
		go func() {
			_, _ = io.Copy(way[0], way[1])
			done <- struct{}{}
		}()
	}
	<-done
}

// konnectivityServer is a proxy server, with the port of agents and that of clients.
type konnectivityServer struct {
	proxy           *server.ProxyServer
	clients, agents string
	credentials     credentials.TransportCredentials
}

// channelSize is the default of konnectivity's programs.
const channelSize = 150

func newKonnectivity(tb testing.TB) transport {
	tb.Helper()
	certificate := httptest.NewUnstartedServer(nil)
	certificate.StartTLS()
	tb.Cleanup(certificate.Close)
	roots := x509.NewCertPool()
	roots.AddCert(certificate.Certificate())
	k := &konnectivityServer{
		proxy: server.NewProxyServer("server", []proxystrategies.ProxyStrategy{proxystrategies.ProxyStrategyDestHost}, 1,
			&server.AgentTokenAuthenticationOptions{}, channelSize),
		credentials: credentials.NewTLS(&tls.Config{RootCAs: roots, ServerName: "example.com", MinVersion: tls.VersionTLS13}),
	}
	serve := func(register func(*grpc.Server)) string {
		s := grpc.NewServer(grpc.Creds(credentials.NewServerTLSFromCert(&certificate.TLS.Certificates[0])))
		register(s)
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			tb.Fatal(err)
		}
		go func() { _ = s.Serve(listener) }()
		tb.Cleanup(s.Stop)
		return listener.Addr().String()
	}
	k.clients = serve(func(s *grpc.Server) { frontend.RegisterProxyServiceServer(s, k.proxy) })
	k.agents = serve(func(s *grpc.Server) { backend.RegisterAgentServiceServer(s, k.proxy) })
	return k
}

func (k *konnectivityServer) connect(tb testing.TB, target string) func(context.Context) (net.Conn, error) {
	tb.Helper()
	connected := k.proxy.BackendManagers[0].NumBackends()
	stop := make(chan struct{})
	id := fmt.Sprintf("agent-%d", connected)
	config := konnectivityagent.ClientSetConfig{
		Address: k.agents, AgentID: id, AgentIdentifiers: "host=127.0.0.1&host=" + id, XfrChannelSize: channelSize,
		SyncInterval: time.Second, SyncIntervalCap: 10 * time.Second, ProbeInterval: time.Second,
		DialOptions: []grpc.DialOption{grpc.WithTransportCredentials(k.credentials)},
	}
	agent := config.NewAgentClientSet(stop, stop)
	agent.SetServerCounter(konnectivityagent.NewResponseBasedCounter(agent))
	agent.Serve()
	tb.Cleanup(func() { close(stop) })
	env.Eventually(tb, func(context.Context) error {
		if n := k.proxy.BackendManagers[0].NumBackends(); n == connected {
			return fmt.Errorf("%d identifiers of agents are known", n)
		}
		return nil
	})
	return func(ctx context.Context) (net.Conn, error) {
		way, err := konnectivity.CreateSingleUseGrpcTunnel(context.WithoutCancel(ctx), k.clients, grpc.WithTransportCredentials(k.credentials))
		if err != nil {
			return nil, err
		}
		return way.DialContext(ctx, "tcp", target)
	}
}
