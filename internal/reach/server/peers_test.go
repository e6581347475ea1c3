package server

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capstan-io/capstan/internal/reach/access"
	"github.com/capstan-io/capstan/internal/reach/api"
	"github.com/capstan-io/capstan/internal/reach/peers"
	"github.com/capstan-io/capstan/internal/reach/tunnel"
)

// as is a transport for requests of a user, as from is, over connections of another one.
type as struct {
	user string
	http.RoundTripper
}

func (a as) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("From", a.user)
	return a.RoundTripper.RoundTrip(r)
}

// newHubs are two processes of one hub.
func newHubs(t *testing.T, objects ...client.Object) (servers []*Server, hubs []*httptest.Server) {
	t.Helper()
	leases := fake.NewClientset()
	for range 2 {
		s, hub := newHub(t, objects...)
		s.peers = peers.New(peers.Options{Version: api.Standalone, Address: strings.TrimPrefix(hub.URL, "http://"), Namespace: "hub", User: "hub",
			Access: func(context.Context) (*rest.Config, error) {
				return &rest.Config{Host: "http://hub.example.com", WrapTransport: func(t http.RoundTripper) http.RoundTripper { return as{"hub", t} }}, nil
			}})
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- s.peers.Run(ctx, leases) }()
		t.Cleanup(func() {
			cancel()
			if err := <-ended; err != nil {
				t.Error(err)
			}
		})
		servers, hubs = append(servers, s), append(hubs, hub)
	}
	return servers, hubs
}

// CP-03: of several processes, each reaches the clusters whose agents have their tunnels to another one, also when an agent goes from one
// to the other.
func TestPeers(t *testing.T) {
	t.Parallel()
	servers, hubs := newHubs(t, append(accepted("c1"), accepted("c2")...)...)
	agent := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		who, err := access.Read(r.Header)
		fmt.Fprint(w, r.URL.RequestURI(), " ", who, " ", err)
	})
	const want = "/api/v1/pods {alice [system:authenticated]} <nil>"
	at := connectAgent(t, servers[0], hubs[0], "c1", agent)
	awaitAnswer(t, hubs[1], "c1/proxy/api/v1/pods", want)
	awaitAnswer(t, hubs[0], "c1/proxy/api/v1/pods", want)
	at.Close()
	awaitStatus(t, hubs[1], "c1/proxy/", http.StatusServiceUnavailable)
	connectAgent(t, servers[1], hubs[1], "c1", agent)
	awaitAnswer(t, hubs[0], "c1/proxy/api/v1/pods", want)
	if code, body := get(t, hubs[0], "c2/proxy/"); code != http.StatusServiceUnavailable ||
		!strings.Contains(body, "cluster c2 is not connected: its agent has no tunnel to the hub;") {
		t.Errorf("a cluster without a tunnel: %d %s", code, body)
	}
}

// CP-03: nobody else opens streams, in which requests are those of whoever they say.
func TestStreamOfAnother(t *testing.T) {
	t.Parallel()
	servers, hubs := newHubs(t, accepted("c1")...)
	alone, single := newHub(t, accepted("c1")...)
	connectAgent(t, servers[0], hubs[0], "c1", http.NotFoundHandler())
	connectAgent(t, alone, single, "c1", http.NotFoundHandler())
	for _, try := range []struct {
		who string
		hub *httptest.Server
	}{{"alice", hubs[0]}, {"", hubs[0]}, {"system:open-cluster-management:c1:agent", hubs[0]}, {"hub", single}, {"", single}} {
		_, err := tunnel.Upgrade(t.Context(), &http.Client{Transport: from(try.who)}, try.hub.URL+clusterPath+"c1/stream", api.ProtocolStream)
		if !apierrors.IsForbidden(err) {
			t.Errorf("%q opens a stream: %v", try.who, err)
		}
	}
}

func awaitStatus(t *testing.T, hub *httptest.Server, path string, want int) {
	t.Helper()
	for t.Context().Err() == nil {
		if code, _ := get(t, hub, path); code == want {
			return
		}
	}
}
