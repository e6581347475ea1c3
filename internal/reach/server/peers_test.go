package server

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capstan-io/capstan/internal/machinery/fleet"
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
		findPeers(t, s, hub, leases, func(t http.RoundTripper) http.RoundTripper { return as{"hub", t} })
		servers, hubs = append(servers, s), append(hubs, hub)
	}
	return servers, hubs
}

// findPeers has a process find others by Leases, and send them requests.
func findPeers(t *testing.T, s *Server, hub *httptest.Server, leases kubernetes.Interface, by func(http.RoundTripper) http.RoundTripper) {
	t.Helper()
	s.peers = peers.New(peers.Options{Version: api.Standalone, Address: strings.TrimPrefix(hub.URL, "http://"), Namespace: "hub", User: "hub",
		Access: func(context.Context) (*rest.Config, error) {
			return &rest.Config{Host: "http://hub.example.com", WrapTransport: by}, nil
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

// gone is a process that does not answer. What happens meanwhile is up to the test.
type gone func()

func (g gone) RoundTrip(*http.Request) (*http.Response, error) {
	g()
	return nil, &net.OpError{Op: "dial", Net: "tcp", Err: os.ErrDeadlineExceeded}
}

// CP-03: a request that has waited for a process that is gone reaches its cluster if the agent has come to this process meanwhile.
func TestPeerIsGone(t *testing.T) {
	t.Parallel()
	const address = "192.0.2.1:9443"
	s, hub := newHub(t, accepted("c1")...)
	var waited atomic.Bool
	findPeers(t, s, hub, fake.NewClientset(&coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Namespace: "hub", Name: peers.LeaseOf(address),
			Labels: map[string]string{fleet.LabelTunnelServer: fleet.LabelTrue}},
		Spec: coordinationv1.LeaseSpec{HolderIdentity: ptr.To(address), RenewTime: ptr.To(metav1.NewMicroTime(time.Now()))},
	}), func(http.RoundTripper) http.RoundTripper {
		return gone(func() {
			waited.Store(true)
			connectAgent(t, s, hub, "c1", http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "here") }))
		})
	})
	for t.Context().Err() == nil {
		code, body := get(t, hub, "c1/proxy/")
		if !waited.Load() { // it does not know of the other process yet
			continue
		}
		if code != http.StatusOK || body != "here" {
			t.Errorf("the request that waited is answered %d %s", code, body)
		}
		return
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

// Only what has not answered at all is asked again, whatever another process has answered before.
func TestIsGone(t *testing.T) {
	t.Parallel()
	refused := &net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}
	silent := &net.OpError{Op: "dial", Err: os.ErrDeadlineExceeded}
	for name, test := range map[string]struct {
		err  error
		want bool
	}{
		"no error":          {nil, false},
		"refused":           {refused, false},
		"silent":            {fmt.Errorf("process 2: %w", silent), true},
		"one of several":    {fmt.Errorf("ask: %w", errors.Join(refused, fmt.Errorf("process 2: %w", silent))), true},
		"silent afterwards": {&net.OpError{Op: "read", Err: os.ErrDeadlineExceeded}, false},
	} {
		if got := isGone(test.err); got != test.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}
