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
	"sync"
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

// CP-03 CP-10: a tunnel that the agent has retired is not used any more, but the other one that it has, to another process.
func TestRetiredTunnel(t *testing.T) {
	t.Parallel()
	servers, hubs := newHubs(t, accepted("c1")...)
	before := connectAgent(t, servers[0], hubs[0], "c1", http.NotFoundHandler())
	connectAgent(t, servers[1], hubs[1], "c1", here)
	before.Retire()
	awaitAnswer(t, hubs[0], "c1/proxy/", "here")
}

// leaseAt announces another process at an address.
func leaseAt(address string) *coordinationv1.Lease {
	return &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Namespace: "hub", Name: peers.LeaseOf(address),
			Labels: map[string]string{fleet.LabelTunnelServer: fleet.LabelTrue}},
		Spec: coordinationv1.LeaseSpec{HolderIdentity: ptr.To(address), RenewTime: ptr.To(metav1.NewMicroTime(time.Now()))},
	}
}

// requestAfter sends requests to a cluster until another process is asked for it, which closes asked. The last of them has to reach the
// cluster, whose agent connect connects meanwhile.
func requestAfter(t *testing.T, hub *httptest.Server, asked <-chan struct{}, connect func()) {
	t.Helper()
	done := make(chan string, 1)
	go func() {
		defer close(done)
		var answer string
		for t.Context().Err() == nil {
			code, body := get(t, hub, "c1/proxy/")
			answer = fmt.Sprint(code, " ", body)
			select {
			case <-asked:
				done <- answer
				return
			default:
			}
		}
	}()
	<-asked
	connect()
	if got := <-done; got != "200 here" {
		t.Errorf("the request that waited is answered %s", got)
	}
}

var here = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "here") })

// silent is a process that does not answer.
type silent func()

func (s silent) RoundTrip(r *http.Request) (*http.Response, error) {
	s()
	<-r.Context().Done()
	return nil, r.Context().Err()
}

// CP-03: a request that waits for a process that is gone reaches its cluster as soon as the agent has come to this process.
func TestTunnelArrives(t *testing.T) {
	t.Parallel()
	s, hub := newHub(t, accepted("c1")...)
	asked := make(chan struct{})
	findPeers(t, s, hub, fake.NewClientset(leaseAt("192.0.2.1:9443")), func(http.RoundTripper) http.RoundTripper {
		return silent(sync.OnceFunc(func() { close(asked) }))
	})
	requestAfter(t, hub, asked, func() { connectAgent(t, s, hub, "c1", here) })
}

// late is a transport to other processes. A connection that is refused is one that takes too long: until another process has answered, and
// the agent has moved then.
type late struct {
	http.RoundTripper
	answered chan struct{}
	asked    func()
	moved    <-chan struct{}
}

func (l late) RoundTrip(r *http.Request) (*http.Response, error) {
	response, err := l.RoundTripper.RoundTrip(r)
	if err == nil {
		select {
		case l.answered <- struct{}{}:
		default:
		}
		return response, nil
	}
	select {
	case <-l.answered:
		l.asked()
		<-l.moved
		return nil, &net.OpError{Op: "dial", Net: "tcp", Err: os.ErrDeadlineExceeded}
	case <-r.Context().Done(): // the other process is not known yet
		return nil, err
	}
}

// CP-03: a request that has waited for a process that is gone reaches its cluster if the agent has come to a third process meanwhile, which
// did not have the tunnel when it was asked.
func TestTunnelArrivesElsewhere(t *testing.T) {
	t.Parallel()
	const nobodyListens = "127.0.0.1:1"
	first, hub := newHub(t, accepted("c1")...)
	third, thirdHub := newHub(t, accepted("c1")...)
	third.peers = peers.New(peers.Options{Version: api.Standalone, User: "hub"})
	asked, moved := make(chan struct{}), make(chan struct{})
	once := sync.OnceFunc(func() { close(asked) })
	leases := fake.NewClientset(leaseAt(nobodyListens), leaseAt(strings.TrimPrefix(thirdHub.URL, "http://")))
	answered := make(chan struct{}, 1)
	findPeers(t, first, hub, leases, func(t http.RoundTripper) http.RoundTripper { return late{as{"hub", t}, answered, once, moved} })
	requestAfter(t, hub, asked, func() {
		connectAgent(t, third, thirdHub, "c1", here)
		close(moved)
	})
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
