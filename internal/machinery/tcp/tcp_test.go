package tcp

import (
	"context"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/client-go/rest"
)

// host is a name with addresses, each of which answers in its way.
type host struct {
	addresses []string
	// answers have what becomes of a connection to an address; one that is not there never answers.
	answers map[string]answer

	mu    sync.Mutex
	tried []string
	// given has the other ends of the connections that were made.
	given []net.Conn
}

type answer struct {
	after time.Duration
	err   error
	// late has the answer come although nobody waits for it any more.
	late bool
}

func (h *host) racer() racer {
	return racer{
		lookup: func(context.Context, string, string) (found []netip.Addr, err error) {
			for _, address := range h.addresses {
				found = append(found, netip.MustParseAddr(address))
			}
			return found, nil
		},
		single: h.connect,
		turns:  &turns{},
		choose: theFirst,
	}
}

// theFirst and theLast choose where the first connection to a host begins.
func theFirst(int) int  { return 0 }
func theLast(n int) int { return n - 1 }

func (h *host) connect(ctx context.Context, network, address string) (net.Conn, error) {
	ip, _, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	h.mu.Lock()
	h.tried = append(h.tried, ip)
	h.mu.Unlock()
	fails := func(err error) error {
		return &net.OpError{Op: "dial", Net: network, Addr: net.TCPAddrFromAddrPort(netip.MustParseAddrPort(address)), Err: err}
	}
	answer, answers := h.answers[ip]
	if !answers {
		<-ctx.Done()
		return nil, fails(ctx.Err())
	}
	done := ctx.Done()
	if answer.late {
		done = nil
	}
	select {
	case <-done:
		return nil, fails(ctx.Err())
	case <-time.After(answer.after):
	}
	if answer.err != nil {
		return nil, fails(answer.err)
	}
	near, far := net.Pipe()
	h.mu.Lock()
	defer h.mu.Unlock()
	h.given = append(h.given, far)
	return near, nil
}

// The next address of a name is tried when one has failed, or has not answered for a while, by the clock of the test.
func TestDial(t *testing.T) {
	t.Parallel()
	refused := answer{err: syscall.ECONNREFUSED}
	for name, test := range map[string]struct {
		addresses []string
		answers   map[string]answer
		took      time.Duration
		tried     []string
	}{
		"one address": {[]string{"192.0.2.1"}, map[string]answer{"192.0.2.1": {after: time.Second}}, time.Second, []string{"192.0.2.1"}},
		"the first answers": {[]string{"192.0.2.1", "192.0.2.2"}, map[string]answer{"192.0.2.1": {}, "192.0.2.2": {}}, 0,
			[]string{"192.0.2.1"}},
		"the first is silent": {[]string{"192.0.2.1", "192.0.2.2"}, map[string]answer{"192.0.2.2": {}}, attemptDelay,
			[]string{"192.0.2.1", "192.0.2.2"}},
		"two are silent": {[]string{"192.0.2.1", "192.0.2.2", "192.0.2.3"}, map[string]answer{"192.0.2.3": {}}, 2 * attemptDelay,
			[]string{"192.0.2.1", "192.0.2.2", "192.0.2.3"}},
		"two refuse": {[]string{"192.0.2.1", "192.0.2.2", "192.0.2.3"},
			map[string]answer{"192.0.2.1": refused, "192.0.2.2": refused, "192.0.2.3": {}}, 0,
			[]string{"192.0.2.1", "192.0.2.2", "192.0.2.3"}},
		"the first is slow": {[]string{"192.0.2.1", "192.0.2.2"}, map[string]answer{"192.0.2.1": {after: 2 * attemptDelay}}, 2 * attemptDelay,
			[]string{"192.0.2.1", "192.0.2.2"}},
		"IPv6 leads nowhere": {[]string{"2001:db8::1", "2001:db8::2", "2001:db8::3", "192.0.2.1", "::ffff:192.0.2.2"},
			map[string]answer{"192.0.2.2": {}}, 3 * attemptDelay, []string{"2001:db8::1", "192.0.2.1", "2001:db8::2", "192.0.2.2"}},
		"IPv4 comes first": {[]string{"192.0.2.1", "192.0.2.2", "192.0.2.3", "2001:db8::1"}, map[string]answer{"192.0.2.3": {}}, 3 * attemptDelay,
			[]string{"192.0.2.1", "2001:db8::1", "192.0.2.2", "192.0.2.3"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				h := &host{addresses: test.addresses, answers: test.answers}
				began := time.Now()
				conn, err := h.racer().dial(t.Context(), "tcp", "hub.example.com:6443")
				if err != nil {
					t.Fatal(err)
				}
				defer conn.Close()
				if took := time.Since(began); took != test.took {
					t.Errorf("it took %s, want %s", took, test.took)
				}
				synctest.Wait() // for the attempts that are ended
				h.mu.Lock()
				defer h.mu.Unlock()
				if !reflect.DeepEqual(h.tried, test.tried) {
					t.Errorf("it tried %v, want %v", h.tried, test.tried)
				}
			})
		})
	}
}

// Each connection to one of several replicas begins at another address than the one before, in whatever order the resolver has them, until
// all have been tried: of those before, a process hangs, or is that of another host.
func TestDialBeginsElsewhere(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		addresses []string
		choose    func(n int) int
		// turns is what the resolver does to its answers each time.
		turns func([]string)
		began []string
	}{
		"one address":             {[]string{"192.0.2.1"}, theFirst, nil, []string{"192.0.2.1", "192.0.2.1"}},
		"one of each family":      {[]string{"2001:db8::1", "192.0.2.1"}, theFirst, nil, []string{"2001:db8::1", "2001:db8::1"}},
		"two":                     {[]string{"192.0.2.1", "192.0.2.2"}, theFirst, nil, []string{"192.0.2.1", "192.0.2.2", "192.0.2.1"}},
		"two, from the second on": {[]string{"192.0.2.1", "192.0.2.2"}, theLast, nil, []string{"192.0.2.2", "192.0.2.1", "192.0.2.2"}},
		"a resolver that turns them": {[]string{"192.0.2.1", "192.0.2.2"}, theFirst, slices.Reverse[[]string],
			[]string{"192.0.2.1", "192.0.2.2", "192.0.2.1"}},
		"one is there twice": {[]string{"192.0.2.1", "192.0.2.1", "192.0.2.2"}, theFirst, nil,
			[]string{"192.0.2.1", "192.0.2.2", "192.0.2.1"}},
		"three": {[]string{"192.0.2.1", "192.0.2.2", "192.0.2.3"}, theFirst, nil,
			[]string{"192.0.2.1", "192.0.2.2", "192.0.2.3", "192.0.2.1"}},
		"two of each family": {[]string{"2001:db8::1", "2001:db8::2", "192.0.2.1", "192.0.2.2"}, theLast, nil,
			[]string{"2001:db8::2", "192.0.2.1", "192.0.2.2", "2001:db8::1", "2001:db8::2"}},
		"one of the family that comes first": {[]string{"2001:db8::1", "192.0.2.1", "192.0.2.2"}, theLast, nil,
			[]string{"2001:db8::1", "192.0.2.1", "192.0.2.2", "2001:db8::1"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				h := &host{addresses: test.addresses, answers: map[string]answer{}}
				for _, address := range test.addresses {
					h.answers[address] = answer{}
				}
				r := h.racer()
				r.choose = test.choose
				for range test.began {
					conn, err := r.dial(t.Context(), "tcp", "hub.example.com:6443")
					if err != nil {
						t.Fatal(err)
					}
					_ = conn.Close() // nobody answers there
					if test.turns != nil {
						test.turns(h.addresses)
					}
				}
				synctest.Wait()
				h.mu.Lock()
				defer h.mu.Unlock()
				if !reflect.DeepEqual(h.tried, test.began) {
					t.Errorf("the connections began at %v, want %v", h.tried, test.began)
				}
			})
		})
	}
}

// A connection that begins elsewhere goes on to all other addresses, of both families in turn.
func TestDialGoesOn(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := &host{addresses: []string{"2001:db8::1", "2001:db8::2", "2001:db8::3", "192.0.2.1"}, answers: map[string]answer{"192.0.2.1": {}}}
		r := h.racer()
		for range 2 {
			conn, err := r.dial(t.Context(), "tcp", "hub.example.com:6443")
			if err != nil {
				t.Fatal(err)
			}
			_ = conn.Close()
			synctest.Wait() // for the attempts that are ended
		}
		want := []string{"2001:db8::1", "192.0.2.1", "2001:db8::2", "192.0.2.1"}
		h.mu.Lock()
		defer h.mu.Unlock()
		if !reflect.DeepEqual(h.tried, want) {
			t.Errorf("it tried %v, want %v", h.tried, want)
		}
	})
}

// A connection that is made after another one was taken is closed.
func TestDialClosesOthers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := &host{addresses: []string{"192.0.2.1", "192.0.2.2"},
			answers: map[string]answer{"192.0.2.1": {after: time.Hour, late: true}, "192.0.2.2": {}}}
		conn, err := h.racer().dial(t.Context(), "tcp", "hub.example.com:6443")
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		<-time.After(2 * time.Hour)
		synctest.Wait()
		h.mu.Lock()
		defer h.mu.Unlock()
		if len(h.given) != 2 {
			t.Fatalf("%d connections were made", len(h.given))
		}
		if _, err := h.given[1].Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
			t.Errorf("the second connection is open: %v", err)
		}
	})
}

// The error names all addresses that were tried, and says of what kind it is.
func TestDialFails(t *testing.T) {
	t.Parallel()
	refused := answer{err: syscall.ECONNREFUSED}
	for name, test := range map[string]struct {
		answers map[string]answer
		cancel  bool
		is      error
		timeout bool
	}{
		"all refuse":      {map[string]answer{"192.0.2.1": refused, "192.0.2.2": refused}, false, syscall.ECONNREFUSED, false},
		"one is silent":   {map[string]answer{"192.0.2.2": refused}, false, context.DeadlineExceeded, false},
		"both are silent": {nil, false, context.DeadlineExceeded, true},
		"nobody waits":    {nil, true, context.Canceled, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithTimeout(t.Context(), connectTimeout)
				defer cancel()
				if test.cancel {
					time.AfterFunc(time.Second, cancel)
				}
				h := &host{addresses: []string{"192.0.2.1", "192.0.2.2"}, answers: test.answers}
				_, err := h.racer().dial(ctx, "tcp", "hub.example.com:6443")
				var dial *net.OpError
				if !errors.Is(err, test.is) || !errors.As(err, &dial) || dial.Op != "dial" {
					t.Fatalf("%v", err)
				}
				for _, address := range h.addresses {
					if !strings.Contains(err.Error(), address+":6443: ") {
						t.Errorf("%v does not name %s", err, address)
					}
				}
				var timeout interface{ Timeout() bool }
				if is := errors.As(err, &timeout) && timeout.Timeout(); is != test.timeout {
					t.Errorf("%v is a timeout: %t", err, is)
				}
			})
		})
	}
}

// Whoever does not wait any more, even before the first attempt, learns that, as from net.Dialer.
func TestDialTooLate(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	h := &host{addresses: []string{"192.0.2.1", "192.0.2.2"}}
	if _, err := h.racer().dial(ctx, "tcp", "hub.example.com:6443"); !errors.Is(err, context.Canceled) || err.Error() == "" {
		t.Errorf("a name: %v", err)
	}
	var timeout net.Error
	if _, err := new(Dialer).DialContext(ctx, "tcp", "192.0.2.1:6443"); !errors.As(err, &timeout) || timeout.Timeout() {
		t.Errorf("an address: %v", err)
	}
}

// What has no name is not looked up, by which it would lose its zone: net.Dialer knows this machine as no host.
func TestHasNoName(t *testing.T) {
	t.Parallel()
	for address, want := range map[string]bool{
		"192.0.2.1:6443": true, "[2001:db8::1]:6443": true, "[fe80::1%eth0]:6443": true, ":1883": true,
		"hub.example.com:6443": false, "localhost:6443": false, "hub.example.com": false,
	} {
		if got := hasNoName(address); got != want {
			t.Errorf("%s: %t", address, got)
		}
	}
}

// A name that is not known is an error as of net.Dialer.
func TestDialUnknown(t *testing.T) {
	t.Parallel()
	unknown := &net.DNSError{Err: "no such host", Name: "hub.example.com", IsNotFound: true}
	for name, found := range map[string]error{"unknown": unknown, "without addresses": nil} {
		r := racer{lookup: func(context.Context, string, string) ([]netip.Addr, error) { return nil, found }}
		_, err := r.dial(t.Context(), "tcp", "hub.example.com:6443")
		var dial *net.OpError
		var lookup *net.DNSError
		if !errors.As(err, &dial) || dial.Op != "dial" || !errors.As(err, &lookup) || lookup.Name != "hub.example.com" {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := new(Dialer).DialContext(t.Context(), "tcp", "hub.example.com"); err == nil || !strings.Contains(err.Error(), "missing port") {
		t.Errorf("without a port: %v", err)
	}
}

// A client of a hub whose first address never answers is served by the second.
func TestClient(t *testing.T) {
	t.Parallel()
	hub := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "second") }))
	t.Cleanup(hub.Close)
	_, port, err := net.SplitHostPort(hub.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	r := (&host{addresses: []string{"192.0.2.1", "127.0.0.1"}}).racer()
	r.choose = theLast // by their values, which is the first here
	silent := r.single
	r.single = func(ctx context.Context, network, address string) (net.Conn, error) {
		if strings.HasPrefix(address, "192.0.2.1:") {
			return silent(ctx, network, address)
		}
		return (&net.Dialer{}).DialContext(ctx, network, address)
	}
	client, err := rest.HTTPClientFor(&rest.Config{Dial: r.dial, Proxy: http.ProxyURL(nil)})
	if err != nil {
		t.Fatal(err)
	}
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://hub.example.com:"+port, nil)
	if err != nil {
		t.Fatal(err)
	}
	response, err := client.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	if body, err := io.ReadAll(response.Body); err != nil || string(body) != "second" {
		t.Errorf("%q answers, %v", body, err)
	}
}

// A client that comes to a machine that is no hub, although it takes connections, comes to the hub by its next request.
func TestClientComesElsewhere(t *testing.T) {
	t.Parallel()
	other := httptest.NewServer(http.NotFoundHandler()) // does not speak TLS
	t.Cleanup(other.Close)
	hub := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "hub") }))
	t.Cleanup(hub.Close)
	servers := map[string]*httptest.Server{"192.0.2.1:6443": other, "192.0.2.2:6443": hub}
	r := (&host{addresses: []string{"192.0.2.1", "192.0.2.2"}}).racer()
	r.single = func(ctx context.Context, network, address string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, network, servers[address].Listener.Addr().String())
	}
	config := &rest.Config{Dial: r.dial, Proxy: http.ProxyURL(nil)}
	config.CAData = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: hub.Certificate().Raw})
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		t.Fatal(err)
	}
	get := func() (*http.Response, error) {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://example.com:6443", nil)
		if err != nil {
			t.Fatal(err)
		}
		return client.Do(request)
	}
	if response, err := get(); err == nil {
		response.Body.Close()
		t.Fatal("the machine that is no hub was not tried")
	}
	response, err := get()
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	if body, err := io.ReadAll(response.Body); err != nil || string(body) != "hub" {
		t.Errorf("%q answers, %v", body, err)
	}
}

// A configuration that says how its clients connect keeps that.
func TestUse(t *testing.T) {
	t.Parallel()
	failure := errors.New("its own")
	own := &rest.Config{Dial: func(context.Context, string, string) (net.Conn, error) { return nil, failure }}
	new(Dialer).Use(own)
	if _, err := own.Dial(t.Context(), "tcp", "192.0.2.1:6443"); !errors.Is(err, failure) {
		t.Errorf("%v", err)
	}
	listener := listen(t)
	config := &rest.Config{}
	new(Dialer).Use(config)
	conn, err := config.Dial(t.Context(), "tcp", listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	_ = conn.Close()
}

func listen(t *testing.T) net.Listener {
	t.Helper()
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	return listener
}
