package clusterproxy

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/cluster"

	addonv1beta1 "github.com/capstan-io/capstan/api/addon/v1beta1"
	"github.com/capstan-io/capstan/internal/machinery/forwardproxy/proxytest"
	"github.com/capstan-io/capstan/internal/reach/agentconfig"
	"github.com/capstan-io/capstan/internal/reach/tunnel"
)

// A hub that is away, also behind a load balancer, is tried again soon, and one that refuses or is busy is left alone for longer.
func TestRetries(t *testing.T) {
	t.Parallel()
	network := func(op string, err error) error { return fmt.Errorf("Post: %w", &net.OpError{Op: op, Err: err}) }
	answer := func(code int) error {
		return fmt.Errorf("Post: %w", apierrors.NewGenericServerResponse(code, "create", schema.GroupResource{Resource: "tunnel"}, "", "", 0, true))
	}
	for name, test := range map[string]struct {
		err  error
		last time.Duration
		from bool
	}{
		"away":                        {network("dial", errors.New("connection refused")), absentRetry, false},
		"silent":                      {network("read", os.NewSyscallError("read", syscall.ETIMEDOUT)), lastRetry, false},
		"reset":                       {network("read", os.NewSyscallError("read", syscall.ECONNRESET)), unavailableRetry, false},
		"gone while it is asked":      {network("write", os.NewSyscallError("write", syscall.EPIPE)), unavailableRetry, false},
		"closed":                      {fmt.Errorf("Post: %w", io.EOF), unavailableRetry, false},
		"closed in between":           {fmt.Errorf("Post: %w", io.ErrUnexpectedEOF), unavailableRetry, false},
		"starts":                      {fmt.Errorf("Post: %w", apierrors.NewServiceUnavailable("try again in a second")), unavailableRetry, true},
		"behind a bad gateway":        {answer(http.StatusBadGateway), unavailableRetry, false},
		"behind a gateway's time-out": {answer(http.StatusGatewayTimeout), unavailableRetry, false},
		"behind one that has no hub":  {answer(http.StatusServiceUnavailable), unavailableRetry, true},
		"knows nobody":                {apierrors.NewUnauthorized("no"), lastRetry, true},
		"refuses":                     {answer(http.StatusForbidden), lastRetry, true},
		"busy":                        {answer(http.StatusTooManyRequests), lastRetry, true},
		"broken":                      {answer(http.StatusInternalServerError), lastRetry, true},
		"refuses the certificate":     {network("remote error", errors.New("tls: bad certificate")), lastRetry, false},
	} {
		wait := firstRetry
		for range 20 {
			wait = longer(wait, test.err)
		}
		if wait != test.last || answered(test.err) != test.from {
			t.Errorf("%s: waits up to %s; it is from the hub: %t", name, wait, answered(test.err))
		}
	}
}

// silentHub does not answer requests with a method, and has nothing at other paths.
type silentHub struct {
	method string
	closed int
}

func (s *silentHub) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Method == s.method {
		<-r.Context().Done()
		return nil, r.Context().Err()
	}
	return &http.Response{StatusCode: http.StatusNotFound, Header: http.Header{}, Body: http.NoBody, Request: r}, nil
}

func (s *silentHub) CloseIdleConnections() { s.closed++ }

// CP-10: a hub that is silent, as after a cut that nobody is told of, has half a minute. Then that is reported, and over other connections
// it is tried again.
func TestHubIsSilent(t *testing.T) {
	t.Parallel()
	for name, method := range map[string]string{"asked for its API": http.MethodGet, "asked for a tunnel": http.MethodPost} {
		synctest.Test(t, func(t *testing.T) {
			hub, changed := &silentHub{method: method}, make(chan struct{}, 10)
			l := &link{cluster: "c1", config: &rest.Config{Host: "https://hub.invalid"}, base: &url.URL{Scheme: "https", Host: "hub.invalid"},
				clock: clock.RealClock{}, connected: true, changed: func() { changed <- struct{}{} }}
			ctx, stop := context.WithCancel(t.Context())
			defer stop()
			begun := time.Now()
			go l.keep(ctx, route{hub: &http.Client{Transport: hub}})
			<-changed
			connected, problem := l.state()
			took := time.Since(begun)
			if connected || !strings.Contains(problem, "the hub has not answered for 30s") || took != 30*time.Second {
				t.Errorf("%s: after %s, it is connected: %t, %s", name, took, connected, problem)
			}
			if hub.closed != 1 {
				t.Errorf("%s: connections that nobody uses are closed %d times", name, hub.closed)
			}
		})
	}
}

// CP-10: what is reported fits into a condition, and is not reported anew when the same happens again.
func TestProblemsInConditions(t *testing.T) {
	t.Parallel()
	cutAt := func(port int) error {
		at := &net.TCPAddr{IP: net.IPv4(192, 0, 2, 1), Port: port}
		return fmt.Errorf("Post: %w", &net.OpError{Op: "read", Net: "tcp", Source: at, Addr: at, Err: syscall.ECONNRESET})
	}
	page := func() error { // of a proxy that refuses
		return apierrors.NewGenericServerResponse(http.StatusForbidden, "create", schema.GroupResource{Resource: "tunnel"}, "",
			strings.Repeat("<p>ü</p>", 8<<10), 0, true)
	}
	for name, problems := range map[string][]error{"cut at different ports": {cutAt(40001), cutAt(40002)}, "a page": {page(), page()}} {
		reports := 0
		l := &link{changed: func() { reports++ }}
		for _, problem := range problems {
			l.set(t.Context(), false, problem)
		}
		_, problem := l.state()
		if reports != 1 || problem == "" || len(problem) > 8<<10 || !utf8.ValidString(problem) {
			t.Errorf("%s: %d reports, the last of %d bytes", name, reports, len(problem))
		}
	}
}

// hubAt is a hub that agents know by an address, with TLS that is verified by another name.
type hubAt struct {
	cluster.Cluster
	config *rest.Config
}

func (h hubAt) GetConfig() *rest.Config { return h.config }

// startHub starts a hub that takes all tunnels, and says when it has one and when that has ended.
func startHub(t *testing.T, address string) (hub hubAt, listens string, made, ended <-chan struct{}) {
	t.Helper()
	begins, ends := make(chan struct{}, 10), make(chan struct{}, 10)
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodPost {
			http.NotFound(w, r)
			return
		}
		made, err := tunnel.Accept(w, r)
		if err != nil {
			t.Error(err)
			return
		}
		begins <- struct{}{}
		<-made.Done()
		ends <- struct{}{}
	}))
	t.Cleanup(server.Close)
	trust := rest.TLSClientConfig{CAData: pemOf(server), ServerName: "example.com"}
	return hubAt{config: &rest.Config{Host: "https://" + address, TLSClientConfig: trust}}, server.Listener.Addr().String(), begins, ends
}

// startLink has an agent keep a tunnel to a hub, through which everybody is let into a cluster.
func startLink(t *testing.T, hub *rest.Config, clk clock.WithTicker) {
	t.Helper()
	_, managed := apiServerOf(t)
	allowed := &rules{clock: clock.RealClock{}}
	allowed.set(nil)
	l, err := newLink(Options{Hub: hubAt{config: hub}, Managed: managed, Cluster: "c1", Clock: clk}, allowed, func() {})
	if err != nil {
		t.Fatal(err)
	}
	go func() { _ = l.Start(t.Context()) }()
	l.enable()
}

// The API for tunnels is found out once, and again when the hub refuses a tunnel: it may be another hub by then.
func TestAPIForTunnels(t *testing.T) {
	t.Parallel()
	var discoveries, refusals atomic.Int32
	made := make(chan *tunnel.Tunnel)
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.Method != http.MethodPost:
			discoveries.Add(1)
			http.NotFound(w, r)
		case refusals.Load() > 0:
			refusals.Add(-1)
			http.NotFound(w, r)
		default:
			accepted, err := tunnel.Accept(w, r)
			if err != nil {
				t.Error(err)
				return
			}
			made <- accepted
			<-accepted.Done()
		}
	}))
	t.Cleanup(server.Close)
	startLink(t, &rest.Config{Host: server.URL, TLSClientConfig: rest.TLSClientConfig{CAData: pemOf(server)}}, clock.RealClock{})
	current := <-made
	for _, test := range []struct{ refusals, discoveries int32 }{{0, 1}, {1, 2}, {0, 2}, {2, 4}} {
		refusals.Store(test.refusals)
		current.Close()
		current = <-made
		if got := discoveries.Load(); got != test.discoveries {
			t.Errorf("after %d refusals, the hub was asked for its API %d times, want %d", test.refusals, got, test.discoveries)
		}
	}
}

// tunnelPair returns both ends of a tunnel.
func tunnelPair(t *testing.T) (hub, agent *tunnel.Tunnel) {
	t.Helper()
	made := make(chan *tunnel.Tunnel, 1)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		accepted, err := tunnel.Accept(w, r)
		if err != nil {
			t.Error(err)
		}
		made <- accepted
	}))
	t.Cleanup(server.Close)
	agent, err := tunnel.Dial(t.Context(), server.Client(), server.URL)
	if err != nil {
		t.Fatal(err)
	}
	hub = <-made
	t.Cleanup(hub.Close)
	t.Cleanup(agent.Close)
	return hub, agent
}

// observed is a connection that says when something is about to be written, and when it is closed.
type observed struct {
	net.Conn
	written, closed chan struct{}
	once            sync.Once
}

func (o *observed) Write(b []byte) (int, error) {
	o.written <- struct{}{}
	return o.Conn.Write(b)
}

func (o *observed) Close() error {
	o.once.Do(func() { close(o.closed) })
	return o.Conn.Close()
}

// CP-10: what is sent to a cluster that does not read ends with the tunnel.
func TestWhatIsNotReadEndsWithTheTunnel(t *testing.T) {
	t.Parallel()
	near, server := net.Pipe()
	t.Cleanup(func() { _ = server.Close() })
	conn := &observed{Conn: near, written: make(chan struct{}, 10), closed: make(chan struct{})}
	managed := &rest.Config{Host: "http://cluster.invalid",
		Dial: func(context.Context, string, string) (net.Conn, error) { return conn, nil }}
	allowed := &rules{clock: clock.RealClock{}}
	allowed.set(nil)
	h, err := newHandler(managed, allowed, false)
	if err != nil {
		t.Fatal(err)
	}
	hub, agent := tunnelPair(t)
	l := &link{handler: h}
	go l.serve(t.Context(), agent, l.newServer())
	go func() { // upgrades the connection, and reads nothing from then on
		if _, err := http.ReadRequest(bufio.NewReader(server)); err != nil {
			t.Error(err)
		}
		_, _ = io.WriteString(server, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n")
	}()
	user, err := hub.Open()
	if err != nil {
		t.Fatal(err)
	}
	if _, code := handshakeOver(t, user, "alice"); code != http.StatusSwitchingProtocols {
		t.Fatalf("the answer is %d", code)
	}
	for len(conn.written) > 0 { // the request
		<-conn.written
	}
	if _, err := io.WriteString(user, "x"); err != nil {
		t.Fatal(err)
	}
	<-conn.written
	hub.Close()
	<-conn.closed
}

// CP-13: the tunnel goes through the proxy of the configuration, and is made again through another one when that changes, and then alone.
func TestConfigure(t *testing.T) {
	t.Parallel()
	const address = "hub.invalid:6443"
	hub, listens, made, ended := startHub(t, address)
	first := proxytest.Start(t, false, nil, map[string]string{address: listens})
	second := proxytest.Start(t, true, nil, map[string]string{address: listens})
	_, managed := apiServerOf(t)
	changed := make(chan struct{}, 100)
	l, err := newLink(Options{Hub: hub, Managed: managed, Cluster: "c1", Clock: clock.RealClock{}}, &rules{clock: clock.RealClock{}},
		func() { changed <- struct{}{} })
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	go func() { _ = l.Start(ctx) }()
	configure := func(c agentconfig.Config) {
		t.Helper()
		if err := l.configure(c); err != nil {
			t.Fatal(err)
		}
		l.enable()
	}
	configure(agentconfig.Config{Proxy: addonv1beta1.ProxyConfig{HTTPSProxy: first.URL}})
	<-made
	configure(agentconfig.Config{Proxy: addonv1beta1.ProxyConfig{HTTPSProxy: first.URL}, ServiceDomain: "cluster.local"})
	select {
	case <-ended:
		t.Error("a tunnel is made again whose proxy is the same")
	default:
	}
	before := first.Connections()
	configure(agentconfig.Config{Proxy: addonv1beta1.ProxyConfig{HTTPSProxy: second.URL, CABundle: second.CA()}})
	<-ended
	<-made
	if second.Connections() == 0 || first.Connections() != before {
		t.Errorf("the proxies have %d and %d connections", first.Connections(), second.Connections())
	}
	// Neither a proxy that is not trusted nor the direct way leads there, and the state says why.
	for want, proxy := range map[string]addonv1beta1.ProxyConfig{
		"certificate": {HTTPSProxy: second.URL}, "hub.invalid": {HTTPSProxy: second.URL, NoProxy: "hub.invalid"}} {
		configure(agentconfig.Config{Proxy: proxy})
		for connected, problem := l.state(); connected || problem == ""; connected, problem = l.state() {
			<-changed
		}
		if _, problem := l.state(); !strings.Contains(problem, want) {
			t.Errorf("through %+v: %s, want %q", proxy, problem, want)
		}
	}
}
