package server

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/endpoints/request"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	addonv1beta1 "github.com/capstan-io/capstan/api/addon/v1beta1"
	clusterv1 "github.com/capstan-io/capstan/api/cluster/v1"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
	"github.com/capstan-io/capstan/internal/reach/access"
	"github.com/capstan-io/capstan/internal/reach/api"
	"github.com/capstan-io/capstan/internal/reach/peers"
	"github.com/capstan-io/capstan/internal/reach/tunnel"
)

const (
	versionPath = "/apis/cluster.open-cluster-management.io/v1/"
	clusterPath = versionPath + "managedclusters/"
)

var testOptions = Options{Version: api.Standalone,
	ExposedServices: types.NamespacedName{Namespace: fleet.NamespaceAddOn, Name: fleet.ConfigMapExposedServices}}

// newHub serves what an API server would hand to the Server, from whoever the header From names. Who has requested by another path says so
// in the header Prefix.
func newHub(t *testing.T, objects ...client.Object) (*Server, *httptest.Server) {
	t.Helper()
	scheme := runtime.NewScheme()
	metav1.AddToGroupVersion(scheme, clusterv1.GroupVersion)
	metav1.AddToGroupVersion(scheme, metav1.Unversioned)
	for _, add := range []func(*runtime.Scheme) error{clusterv1.AddToScheme, addonv1beta1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	s := New(testOptions)
	s.clusters.reader = fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).Build()
	close(s.clusters.synced)
	handler := s.Handler(http.NotFoundHandler(), serializer.NewCodecFactory(scheme))
	infos := &request.RequestInfoFactory{APIPrefixes: sets.NewString("apis"), GrouplessAPIPrefixes: sets.NewString("api")}
	hub := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		info, err := infos.NewRequestInfo(r)
		if err != nil {
			t.Error(err)
		}
		who := &user.DefaultInfo{Name: r.Header.Get("From"), Groups: []string{user.AllAuthenticated}}
		if name, _, err := fleet.ParseClusterUser(who.Name); err == nil {
			who.Groups = append(who.Groups, fleet.ClusterGroups(name)...)
		}
		ctx := r.Context()
		if prefix := r.Header.Get("Prefix"); prefix != "" {
			ctx = WithPrefix(ctx, prefix)
		}
		handler.ServeHTTP(w, r.WithContext(request.WithUser(request.WithRequestInfo(ctx, info), who)))
	}))
	t.Cleanup(hub.Close)
	t.Cleanup(s.closeAll)
	return s, hub
}

func accepted(name string) []client.Object {
	managed := &clusterv1.ManagedCluster{ObjectMeta: metav1.ObjectMeta{Name: name}}
	managed.Spec.HubAcceptsClient = true
	return []client.Object{managed, &addonv1beta1.ManagedClusterAddOn{ObjectMeta: metav1.ObjectMeta{Namespace: name,
		Name: fleet.AddOnClusterProxy, Annotations: map[string]string{fleet.AnnotationBuiltIn: fleet.LabelTrue}}}}
}

// from adds who sends a request, as an API server knows it.
type from string

func (f from) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("From", string(f))
	return http.DefaultTransport.RoundTrip(r)
}

// connectAgent makes a tunnel as the agent of a cluster, and answers what comes through it.
func connectAgent(t *testing.T, s *Server, hub *httptest.Server, name string, agent http.Handler) *tunnel.Tunnel {
	t.Helper()
	made := makeTunnel(t, s, hub, name)
	go func() { _ = (&http.Server{Handler: agent}).Serve(made.Listener()) }()
	return made
}

// makeTunnel makes a tunnel as the agent of a cluster.
func makeTunnel(t *testing.T, s *Server, hub *httptest.Server, name string) *tunnel.Tunnel {
	t.Helper()
	s.mu.Lock()
	before := s.made
	s.mu.Unlock()
	made, err := tunnel.Dial(t.Context(), &http.Client{Transport: from(fleet.ClusterUser(name, "agent"))}, hub.URL+clusterPath+name+"/tunnel")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(made.Close)
	for { // the hub has answered before it has added the tunnel
		s.mu.Lock()
		added := s.made > before
		s.mu.Unlock()
		if added {
			return made
		}
	}
}

func get(t *testing.T, hub *httptest.Server, path string) (int, string) {
	t.Helper()
	return ask(t, hub, http.MethodGet, "managedclusters/"+path)
}

// ask sends a request for a resource as alice.
func ask(t *testing.T, hub *httptest.Server, method, path string) (int, string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, hub.URL+versionPath+path, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	response, err := (&http.Client{Transport: from("alice")}).Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return response.StatusCode, string(body)
}

// CP-07: a request comes to the agent of its cluster as that of the user, with the path as it was written.
func TestProxy(t *testing.T) {
	t.Parallel()
	s, hub := newHub(t, append(accepted("c1"), accepted("c2")...)...)
	for _, name := range []string{"c1", "c2"} {
		connectAgent(t, s, hub, name, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			who, err := access.Read(r.Header)
			fmt.Fprint(w, name, " ", r.URL.RequestURI(), " ", who, " ", err)
		}))
	}
	for path, want := range map[string]string{
		"c1/proxy/api/v1/pods?watch=true": "c1 /api/v1/pods?watch=true {alice [system:authenticated]} <nil>",
		"c2/proxy/api/a%2Fb":              "c2 /api/a%2Fb {alice [system:authenticated]} <nil>",
		"c2/proxy":                        "c2 / {alice [system:authenticated]} <nil>",
		"c2/proxy/":                       "c2 / {alice [system:authenticated]} <nil>",
	} {
		if code, body := get(t, hub, path); code != http.StatusOK || body != want {
			t.Errorf("%s: %d %s", path, code, body)
		}
	}
	for _, path := range []string{"c1/%70roxy/version", "c1/proxy/..", "c1/proxy/%2e%2e/x", "%631/proxy/x",
		"/proxy/x?fieldSelector=metadata.name%3Dc1"} {
		if code, body := get(t, hub, path); code != http.StatusBadRequest {
			t.Errorf("%s: %d %s", path, code, body)
		}
	}
	for path, want := range map[string]int{
		"watch/managedclusters/c1/proxy/x":                http.StatusBadRequest,
		"namespaces/own/managedclusters/c1/proxy/x":       http.StatusNotFound,
		"watch/namespaces/own/managedclusters/c1/proxy/x": http.StatusNotFound,
	} {
		if code, body := ask(t, hub, http.MethodGet, path); code != want {
			t.Errorf("%s: %d %s, want %d", path, code, body, want)
		}
	}
}

// CP-09: whose name would be another one at the agent is refused by the hub.
func TestNamesThatHeadersChange(t *testing.T) {
	t.Parallel()
	s, hub := newHub(t, accepted("c1")...)
	connectAgent(t, s, hub, "c1", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		who, err := access.Read(r.Header)
		fmt.Fprint(w, who.Name, " ", err)
	}))
	for name, want := range map[string]int{
		"alice": http.StatusOK, "alice\x20": http.StatusForbidden, "\talice": http.StatusForbidden, "al\nice": http.StatusForbidden,
	} {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, clusterPath+"c1/proxy/version", http.NoBody)
		r.Header.Set("From", name)
		w := httptest.NewRecorder()
		hub.Config.Handler.ServeHTTP(w, r)
		if w.Code != want {
			t.Errorf("%q: %d %s, want %d", name, w.Code, w.Body, want)
		}
	}
}

// CP-07: the newest tunnel is used, an older one when that has ended, and what a cluster without one answers says why.
func TestTunnels(t *testing.T) {
	t.Parallel()
	disabled := accepted("disabled")[:1]
	other := accepted("other")
	other[1].SetAnnotations(nil)
	denied := accepted("denied")
	denied[0].(*clusterv1.ManagedCluster).Spec.HubAcceptsClient = false
	s, hub := newHub(t, append(append(append(accepted("c1"), disabled...), other...), denied...)...)
	answers := func(text string) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Connection", "close") // so that each request opens a stream
			_, _ = io.WriteString(w, text)
		})
	}
	first := connectAgent(t, s, hub, "c1", answers("first"))
	connectAgent(t, s, hub, "c1", answers("second"))
	awaitAnswer(t, hub, "c1/proxy/", "second")
	var last *tunnel.Tunnel
	for range maxTunnels {
		last = connectAgent(t, s, hub, "c1", answers("last"))
	}
	<-first.Done() // more than enough
	awaitAnswer(t, hub, "c1/proxy/", "last")
	s.cut("c1")
	<-last.Done()
	awaitAnswer(t, hub, "c1/proxy/", "cluster c1 is not connected")
	awaitAnswer(t, hub, "c1/proxy/", `"details":{"name":"c1","group":"cluster.open-cluster-management.io","kind":"managedclusters"}`)
	for name, want := range map[string]string{
		"disabled": "capstan addon enable --names cluster-proxy --clusters disabled", "other": "is not the one that the hub has built in",
		"denied": "is not accepted", "none": "not found",
	} {
		if code, body := get(t, hub, name+"/proxy/"); code/100 == 2 || !strings.Contains(body, want) {
			t.Errorf("%s: %d %s", name, code, body)
		}
		if _, err := tunnel.Dial(t.Context(), &http.Client{Transport: from(fleet.ClusterUser(name, "agent"))},
			hub.URL+clusterPath+name+"/tunnel"); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s has a tunnel: %v", name, err)
		}
	}
	for _, who := range []string{"alice", fleet.ClusterUser("c2", "agent"), fleet.AddOnUser("c1", "x", "agent")} {
		_, err := tunnel.Dial(t.Context(), &http.Client{Transport: from(who)}, hub.URL+clusterPath+"c1/tunnel")
		if !apierrors.IsForbidden(err) {
			t.Errorf("%s makes a tunnel of c1: %v", who, err)
		}
	}
}

// stuck is a connection to an agent whose end waits for its release, as the one of TLS waits for an agent that does not read.
type stuck struct {
	net.Conn
	released <-chan struct{}
}

func (s stuck) Close() error {
	<-s.released
	return s.Conn.Close()
}

// over has a request come over a connection.
type over struct {
	http.ResponseWriter
	conn net.Conn
}

func (o over) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	return o.conn, bufio.NewReadWriter(bufio.NewReader(o.conn), bufio.NewWriter(o.conn)), nil
}

// CP-10: the tunnels that a cluster has too many end, and whoever needs another cluster does not wait until they have.
func TestEndsThatTakeTime(t *testing.T) {
	t.Parallel()
	s, released := New(testOptions), make(chan struct{})
	var tunnels []*tunnel.Tunnel
	for range maxTunnels + 2 {
		conn, agent := net.Pipe()
		go func() { _, _ = io.Copy(io.Discard, agent) }()
		r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/", http.NoBody)
		r.Header.Set("Upgrade", tunnel.Protocol)
		made, err := tunnel.Accept(over{httptest.NewRecorder(), stuck{conn, released}}, r)
		if err != nil {
			t.Fatal(err)
		}
		s.add("c1", made)
		tunnels = append(tunnels, made)
	}
	if _, err := s.openHere("c2"); !errors.As(err, new(*NotConnectedError)) {
		t.Errorf("another cluster: %v", err)
	}
	for _, old := range tunnels[:2] {
		<-old.Done()
	}
	close(released)
	for _, one := range tunnels {
		one.Close()
	}
}

// An agent that comes to a hub that has just started waits until the hub knows its clusters, for ten seconds at most.
func TestAwaitClusters(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		happens func(c *clusters, end func())
		waits   time.Duration
	}{
		"they become known":  {func(c *clusters, _ func()) { close(c.synced) }, time.Second},
		"the agent gives up": {func(_ *clusters, end func()) { end() }, time.Second},
		"the hub ends":       {func(c *clusters, _ func()) { close(c.ended) }, time.Second},
		"they stay unknown":  {func(*clusters, func()) {}, 10 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				ctx, end := context.WithCancel(t.Context())
				c, began := newClusters(func(string) {}), time.Now()
				time.AfterFunc(time.Second, func() { test.happens(c, end) })
				c.await(ctx)
				if waited := time.Since(began); waited != test.waits {
					t.Errorf("it waits for %s", waited)
				}
			})
		})
	}
}

// waited is a context that says when somebody waits for its end.
type waited struct {
	context.Context
	by func()
}

func (w waited) Done() <-chan struct{} {
	w.by()
	return w.Context.Done()
}

// The tunnel is made then, and the agent need not try again.
func TestTunnelToAHubThatStarts(t *testing.T) {
	t.Parallel()
	s, hub := newHub(t, accepted("c1")...)
	s.clusters.synced = make(chan struct{})
	known := sync.OnceFunc(func() { close(s.clusters.synced) })
	starting := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		hub.Config.Handler.ServeHTTP(w, r.WithContext(waited{r.Context(), known}))
	}))
	t.Cleanup(starting.Close)
	connectAgent(t, s, starting, "c1", http.NotFoundHandler())
}

// CP-09: a tunnel ends with the credential of its agent, which the API server says by the context of the request.
func TestTunnelEndsWithItsCredential(t *testing.T) {
	t.Parallel()
	s, hub := newHub(t, accepted("c1")...)
	credential, expire := context.WithCancel(t.Context())
	limited := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		hub.Config.Handler.ServeHTTP(w, r.WithContext(credential))
	}))
	t.Cleanup(limited.Close)
	agent := connectAgent(t, s, limited, "c1", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, "x")
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	}))
	open, err := send(t.Context(), hub, "c1/proxy/watch")
	if err != nil {
		t.Fatal(err)
	}
	defer open.Body.Close()
	expire()
	<-agent.Done()
	if rest, err := io.ReadAll(open.Body); err == nil {
		t.Errorf("what was open came to a good end: %q", rest)
	}
	awaitAnswer(t, hub, "c1/proxy/", "cluster c1 is not connected")
}

// CG-03: a handler is notified when a cluster has its first tunnel, and when it has none any more.
func TestChanged(t *testing.T) {
	t.Parallel()
	s, hub := newHub(t, accepted("c1")...)
	notified := make(chan string, 4)
	s.Changed = func(cluster string) {
		s.mu.Lock()
		defer s.mu.Unlock()
		notified <- fmt.Sprint(cluster, " is connected: ", s.reached[cluster] != nil)
	}
	first := connectAgent(t, s, hub, "c1", http.NotFoundHandler())
	if got := <-notified; got != "c1 is connected: true" {
		t.Error(got)
	}
	second := connectAgent(t, s, hub, "c1", http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "second")
	}))
	awaitAnswer(t, hub, "c1/proxy/", "second")
	first.Close()
	second.Close()
	if got := <-notified; got != "c1 is connected: false" {
		t.Error(got)
	}
	if len(notified) > 0 {
		t.Errorf("also told: %s", <-notified)
	}
}

// awaitAnswer waits for the moment in which the hub has noticed that a tunnel has ended.
func awaitAnswer(t *testing.T, hub *httptest.Server, path, want string) {
	t.Helper()
	for t.Context().Err() == nil {
		if _, body := get(t, hub, path); strings.Contains(body, want) {
			return
		}
	}
}

// echoAt answers CONNECT to one address with a greeting and then with what it is sent.
func echoAt(t *testing.T, address string) http.Handler {
	t.Helper()
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Host != address {
			http.Error(w, "not "+r.Host, http.StatusForbidden)
			return
		}
		conn, buffered, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer conn.Close()
		_, _ = io.WriteString(conn, "HTTP/1.1 200 OK\r\n\r\nwelcome\n")
		_, _ = io.Copy(conn, buffered)
	})
}

func expectEcho(t *testing.T, conn io.ReadWriter) {
	t.Helper()
	fmt.Fprintln(conn, "hello")
	reader := bufio.NewReader(conn)
	for _, want := range []string{"welcome\n", "hello\n"} {
		if line, err := reader.ReadString('\n'); err != nil || line != want {
			t.Errorf("%q %v", line, err)
		}
	}
}

// CG-01: the hub connects to what the agent lets it, and is answered why it does not.
func TestDialCluster(t *testing.T) {
	t.Parallel()
	s, hub := newHub(t, accepted("c1")...)
	connectAgent(t, s, hub, "c1", echoAt(t, "kubernetes.default.svc:443"))
	conn, err := s.DialCluster(t.Context(), "c1", "kubernetes.default.svc:443")
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	expectEcho(t, conn)
	if _, err := s.DialCluster(t.Context(), "c1", "db:5432"); err == nil || !strings.Contains(err.Error(), "not db:5432") {
		t.Errorf("%v", err)
	}
	if _, err := s.DialCluster(t.Context(), "c2", "kubernetes.default.svc:443"); err == nil || !strings.Contains(err.Error(), "c2 is not connected") {
		t.Errorf("%v", err)
	}
	canceled, cancel := context.WithCancel(t.Context())
	cancel()
	if conn, err := s.DialCluster(canceled, "c1", "kubernetes.default.svc:443"); err == nil {
		conn.Close()
		t.Error("a canceled context connects")
	}
}

// CG-01: another process of the hub connects in the same way, by a request that becomes the connection.
func TestPortForward(t *testing.T) {
	t.Parallel()
	s, hub := newHub(t, accepted("c1")...)
	connectAgent(t, s, hub, "c1", echoAt(t, "kubernetes.default.svc:443"))
	dial := func(cluster, address string) (io.ReadWriteCloser, error) {
		return tunnel.Upgrade(t.Context(), hub.Client(), hub.URL+clusterPath+cluster+"/portforward?address="+address, api.ProtocolPortForward)
	}
	conn, err := dial("c1", "kubernetes.default.svc:443")
	if err != nil {
		t.Fatal(err)
	}
	expectEcho(t, conn)
	s.cut("c1")
	if rest, err := io.ReadAll(conn); len(rest) > 0 {
		t.Errorf("after the end of the tunnel: %q, %v", rest, err)
	}
	connectAgent(t, s, hub, "c1", echoAt(t, "kubernetes.default.svc:443"))
	for what, address := range map[string][2]string{
		"no address: address=HOST:PORT":           {"c1", ""},
		"one that the agent refuses: not db:5432": {"c1", "db:5432"},
		"no cluster: managedclusters":             {"c2", "kubernetes.default.svc:443"},
	} {
		_, want, _ := strings.Cut(what, ": ")
		if _, err := dial(address[0], address[1]); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", what, err)
		}
	}
	code, body := ask(t, hub, http.MethodPost, "managedclusters/c1/portforward?address=kubernetes.default.svc:443")
	if code != http.StatusBadRequest || !strings.Contains(body, api.ProtocolPortForward) {
		t.Errorf("a request that upgrades nothing: %d %s", code, body)
	}
}

// CP-07, CG-01: a connection is created, and its cluster is in no namespace: what else a user may do, or may do in a namespace, is no right
// to it.
func TestConnectionsAreCreated(t *testing.T) {
	t.Parallel()
	s, hub := newHub(t, accepted("c1")...)
	s.peers = peers.New(peers.Options{Version: api.Standalone, User: "hub"})
	connectAgent(t, s, hub, "c1", echoAt(t, "kubernetes.default.svc:443"))
	for subresource, by := range map[string]struct{ who, protocol string }{
		"tunnel": {fleet.ClusterUser("c1", "agent"), tunnel.Protocol},
		"stream": {"hub", api.ProtocolStream},
		"portforward?address=kubernetes.default.svc:443": {"alice", api.ProtocolPortForward},
	} {
		for what, want := range map[string]int{
			"GET managedclusters":                      http.StatusMethodNotAllowed,
			"HEAD managedclusters":                     http.StatusMethodNotAllowed,
			"PUT managedclusters":                      http.StatusMethodNotAllowed,
			"PATCH managedclusters":                    http.StatusMethodNotAllowed,
			"DELETE managedclusters":                   http.StatusMethodNotAllowed,
			"OPTIONS managedclusters":                  http.StatusMethodNotAllowed,
			"GET watch/managedclusters":                http.StatusMethodNotAllowed,
			"POST watch/managedclusters":               http.StatusMethodNotAllowed,
			"GET namespaces/own/managedclusters":       http.StatusNotFound,
			"POST namespaces/own/managedclusters":      http.StatusNotFound,
			"GET watch/namespaces/own/managedclusters": http.StatusNotFound,
		} {
			method, below, _ := strings.Cut(what, " ")
			r, err := http.NewRequestWithContext(t.Context(), method, hub.URL+versionPath+below+"/c1/"+subresource, http.NoBody)
			if err != nil {
				t.Fatal(err)
			}
			r.Header.Set("Connection", "Upgrade")
			r.Header.Set("Upgrade", by.protocol)
			answer, err := (&http.Client{Transport: from(by.who)}).Do(r)
			if err != nil {
				t.Fatal(err)
			}
			answer.Body.Close()
			if answer.StatusCode != want {
				t.Errorf("%s/c1/%s: %s, want %d", what, subresource, answer.Status, want)
			}
		}
	}
}

// CP-05: the agent of a cluster has the right to create its tunnel, and nothing else.
func TestAuthorize(t *testing.T) {
	t.Parallel()
	s := New(testOptions)
	own := authorizer.AttributesRecord{User: &user.DefaultInfo{Name: fleet.ClusterUser("c1", "agent"), Groups: fleet.ClusterGroups("c1")},
		Verb: "create", APIGroup: api.Standalone.Group, APIVersion: api.Standalone.Version, Resource: "managedclusters", Subresource: "tunnel",
		Name: "c1", ResourceRequest: true}
	for name, change := range map[string]func(*authorizer.AttributesRecord){
		"its tunnel":         func(*authorizer.AttributesRecord) {},
		"to read it":         func(a *authorizer.AttributesRecord) { a.Verb = "get" },
		"in a namespace":     func(a *authorizer.AttributesRecord) { a.Namespace = "c1" },
		"of another cluster": func(a *authorizer.AttributesRecord) { a.Name = "c2" },
		"of another group":   func(a *authorizer.AttributesRecord) { a.APIGroup = api.Aggregated.Group },
		"a port":             func(a *authorizer.AttributesRecord) { a.Subresource = "portforward" },
		"as somebody else":   func(a *authorizer.AttributesRecord) { a.User = &user.DefaultInfo{Name: "alice"} },
	} {
		want, attributes := authorizer.DecisionNoOpinion, own
		if name == "its tunnel" {
			want = authorizer.DecisionAllow
		}
		change(&attributes)
		if got, _, err := s.Authorize(t.Context(), attributes); got != want || err != nil {
			t.Errorf("%s: %v, %v", name, got, err)
		}
	}
}

// CP-09: who waits for a cluster when the right or the credential ends is told so, and not that the cluster is not connected.
func TestWhatEndsIsToldSo(t *testing.T) {
	t.Parallel()
	for what, cause := range map[string]*apierrors.StatusError{
		"credential": apierrors.NewUnauthorized("the token has expired"),
		"right":      apierrors.NewForbidden(managedClusters, "c1", errors.New("it is lost")),
	} {
		for path, method := range map[string]string{
			"proxy/api": http.MethodGet,
			"portforward?address=kubernetes.default.svc:443": http.MethodPost,
		} {
			for _, when := range []string{"before", "while the agent does not answer"} {
				t.Run(fmt.Sprintf("%s of %s, %s", what, path, when), func(t *testing.T) {
					t.Parallel()
					s, hub := newHub(t, accepted("c1")...)
					ctx, end := context.WithCancelCause(t.Context())
					connectAgent(t, s, hub, "c1", http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
						end(cause)
						<-r.Context().Done()
					}))
					if when == "before" {
						end(cause)
					}
					limited := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
						hub.Config.Handler.ServeHTTP(w, r.WithContext(ctx))
					}))
					t.Cleanup(limited.Close)
					if code, body := ask(t, limited, method, "managedclusters/c1/"+path); code != int(cause.ErrStatus.Code) ||
						!strings.Contains(body, string(cause.ErrStatus.Reason)) {
						t.Errorf("%d %s, want %v", code, body, cause)
					}
				})
			}
		}
	}
}

// CP-07: a forwarded port ends with the right to it, which the API server says by the context of the request.
func TestPortForwardEndsWithItsRight(t *testing.T) {
	t.Parallel()
	s, hub := newHub(t, accepted("c1")...)
	connectAgent(t, s, hub, "c1", echoAt(t, "kubernetes.default.svc:443"))
	rights, lose := context.WithCancel(t.Context())
	limited := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		hub.Config.Handler.ServeHTTP(w, r.WithContext(rights))
	}))
	t.Cleanup(limited.Close)
	conn, err := tunnel.Upgrade(t.Context(), limited.Client(), limited.URL+clusterPath+"c1/portforward?address=kubernetes.default.svc:443",
		api.ProtocolPortForward)
	if err != nil {
		t.Fatal(err)
	}
	expectEcho(t, conn)
	lose()
	if rest, err := io.ReadAll(conn); len(rest) > 0 {
		t.Errorf("after the end of the right: %q, %v", rest, err)
	}
}
