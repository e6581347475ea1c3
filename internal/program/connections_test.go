package program

import (
	"context"
	"encoding/pem"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/test/bufconn"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/rest"
)

// noticedWithin is how long a connection may be dead before its client knows.
const noticedWithin = 20 * time.Second

// hub is a server in memory. Once it is gone, nothing passes over its connections, and nobody closes them.
type hub struct {
	*httptest.Server
	listener *bufconn.Listener
	gone     atomic.Bool
}

// newHub starts a hub that says its name, and at /watch nothing for as long as it is asked.
func newHub(t *testing.T, name string) *hub {
	h := &hub{listener: bufconn.Listen(1 << 16)}
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/watch" {
			_ = http.NewResponseController(w).Flush()
			<-r.Context().Done()
			return
		}
		_, _ = io.WriteString(w, name)
	})
	h.Server = &httptest.Server{Listener: h.listener, EnableHTTP2: true,
		Config: &http.Server{Handler: handler, ReadHeaderTimeout: time.Minute}}
	h.StartTLS()
	t.Cleanup(h.Close)
	return h
}

func (h *hub) dial(ctx context.Context) (net.Conn, error) {
	server, err := h.listener.DialContext(ctx)
	if err != nil {
		return nil, err
	}
	client, far := net.Pipe()
	go h.forward(server, far)
	go h.forward(far, server)
	return client, nil
}

// forward ends with either of the connections.
func (h *hub) forward(to, from net.Conn) {
	defer to.Close()
	buffer := make([]byte, 1<<15)
	for {
		n, err := from.Read(buffer)
		if err == nil && !h.gone.Load() {
			_, err = to.Write(buffer[:n])
		}
		if err != nil {
			return
		}
	}
}

func (h *hub) trusted() []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: h.Certificate().Raw})
}

func ask(t *testing.T, client *http.Client, path string) *http.Response {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://example.com"+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	response, err := client.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	return response
}

// A watch ends with an error when its hub is gone without a word, and the next request goes to another hub.
func TestConnectionIsDead(t *testing.T) {
	for name := range connectionChecks {
		t.Setenv(name, "")
	}
	CheckConnections()
	synctest.Test(t, func(t *testing.T) {
		first, second := newHub(t, "first"), newHub(t, "second")
		client, err := rest.HTTPClientFor(&rest.Config{
			TLSClientConfig: rest.TLSClientConfig{CAData: first.trusted()}, // both have the same
			Proxy:           http.ProxyURL(nil),                            // not that of the environment
			Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
				if first.gone.Load() {
					return second.dial(ctx)
				}
				return first.dial(ctx)
			},
		})
		if err != nil {
			t.Fatal(err)
		}
		defer utilnet.CloseIdleConnectionsFor(client.Transport)
		watch := ask(t, client, "/watch")
		defer watch.Body.Close()
		first.gone.Store(true)
		began := time.Now() // of the clock of the test
		if _, err := io.ReadAll(watch.Body); err == nil {
			t.Error("the watch has ended as if the hub had ended it")
		}
		if took := time.Since(began); took > noticedWithin {
			t.Errorf("the connection was dead for %s before the client knew, want %s at most", took, noticedWithin)
		}
		answer := ask(t, client, "/")
		defer answer.Body.Close()
		if name, err := io.ReadAll(answer.Body); err != nil || string(name) != "second" {
			t.Errorf("the next request was answered by %q, %v; want the second hub", name, err)
		}
	})
}

// What an operator has set stays.
func TestCheckConnectionsOfTheEnvironment(t *testing.T) {
	const set, unset = "HTTP2_READ_IDLE_TIMEOUT_SECONDS", "HTTP2_PING_TIMEOUT_SECONDS"
	t.Setenv(set, "45")
	t.Setenv(unset, "")
	CheckConnections()
	if os.Getenv(set) != "45" || os.Getenv(unset) != connectionChecks[unset] {
		t.Errorf("%s=%s %s=%s", set, os.Getenv(set), unset, os.Getenv(unset))
	}
}
